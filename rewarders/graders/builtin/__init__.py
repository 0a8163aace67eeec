"""Built-in graders."""

__all__ = ["answers", "formats", "math_verify"]
