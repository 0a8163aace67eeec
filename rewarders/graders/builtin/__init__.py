"""Built-in graders."""

__all__ = ["answers", "formats", "json_conforms", "math_verify"]
