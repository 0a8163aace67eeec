"""Built-in graders."""

__all__ = ["formats", "labels", "math_exact", "math_verify", "number_match", "schema_grader"]
