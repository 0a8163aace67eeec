"""Files that are written atomically and locked between processes."""

__all__ = ["atomic", "layout", "line_file"]
