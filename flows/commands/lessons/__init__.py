"""Sub-commands that look at what was learned, change it, or take it back."""

__all__ = ["experiences"]
