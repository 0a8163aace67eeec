"""The graders that ship."""

__all__ = [
    "completion_length",
    "json_schema",
    "json_valid",
    "labels",
    "latex_only",
    "math_exact",
    "math_verify",
    "number_match",
    "reasoning_format",
    "xml_schema",
]
