"""Built-in graders."""

__all__ = ["formats", "json_conforms", "labels", "math_verify", "number_match", "schema_grader"]
