"""Built-in graders."""

__all__ = ["formats", "labels", "math_verify", "number_match", "schema_grader"]
