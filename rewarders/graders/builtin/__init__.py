"""Built-in graders."""

__all__ = ["formats", "json_schema", "labels", "math_exact", "math_verify", "number_match", "xml_schema"]
