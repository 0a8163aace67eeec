"""Files that are written atomically: the one store of lines, and whole files that are replaced."""

__all__ = ["atomic", "layout", "lines"]
