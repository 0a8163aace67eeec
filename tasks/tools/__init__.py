"""Tools of an actor: typed Python functions with a schema from their signature."""

from tfgrpo.tasks.tools.registry import check_tools, load_tools
from tfgrpo.tasks.tools.schema import Tool, ToolResult, priced, run_tool, tool_from_function

__all__ = ["Tool", "ToolResult", "bookkeeping", "check_tools", "load_tools", "priced", "run_tool", "tool_from_function"]
