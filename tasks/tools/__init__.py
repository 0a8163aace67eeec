"""Tools of an actor: typed Python functions with a schema from their signature."""

from tfgrpo.tasks.tools.schema import Tool, ToolResult, check_tools, load_tools, priced, run_tool, tool_from_function

__all__ = ["Tool", "ToolResult", "bookkeeping", "check_tools", "load_tools", "priced", "run_tool", "tool_from_function"]
