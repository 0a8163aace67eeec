"""Tools of an actor: typed Python functions with a schema from their signature."""

from tfgrpo.tasks.tools.schema import Tool, ToolResult, load_tools, priced, run_tool, tool_from_function

__all__ = [
    "Tool",
    "ToolResult",
    "bookkeeping",
    "load_tools",
    "mcp_servers",
    "priced",
    "python",
    "run_tool",
    "tool_from_function",
]
