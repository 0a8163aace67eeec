"""Graders of single completions: loading, running and combining them."""

from tfgrpo.rewarders.graders.base import Grader, GradeResult, GraderInput, grader

__all__ = [
    "GradeResult",
    "Grader",
    "GraderInput",
    "builtin",
    "combine",
    "grader",
    "loading",
    "remote",
    "rewarder",
    "running",
]
