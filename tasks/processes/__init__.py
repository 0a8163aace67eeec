"""Programs in processes of their own, limited and guarded: agents that are commands, and the Python tool."""

__all__ = ["guard", "process"]
