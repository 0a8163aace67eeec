"""The terminal: what a command reads from its command line and shows to people."""

__all__ = ["console", "environment", "figures", "observer", "parsing"]
