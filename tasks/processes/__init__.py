"""Programs in separate processes, limited and guarded: agents that are commands, and the Python tool."""

__all__ = ["guard", "process"]
