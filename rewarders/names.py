"""Names of the built-in rewarders whose modules are imported when one is built."""

from __future__ import annotations

from typing import Final

REMOTE: Final = "remote"
"""Name of the rewarder that calls a grading service."""
GRADER_NAMES: Final = (
    "category_match",
    "completion_length_cap",
    "json_schema",
    "json_valid",
    "label_match",
    "latex_only",
    "math-verify",
    "math_exact",
    "math_verify",
    "number_match",
    "number_only",
    "reasoning_format",
    "xml_schema",
    REMOTE,
)
COMPARING: Final = frozenset(
    {"category_match", "label_match", "math_exact", "math_verify", "math-verify", "number_match"}
)
"""Graders that need a reference answer."""
POWL_NAMES: Final = frozenset(
    {"powl_equal", "powl_footprint", "powl_group_consensus", "powl_self_consistency", "powl_valid"}
)
