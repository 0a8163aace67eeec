"""Graders of single completions: the form they are written in, the built-in ones, and services elsewhere."""

from tfgrpo.rewarders.scorer import Grader, GradeResult, GraderInput

__all__ = ["GradeResult", "Grader", "GraderInput", "builtin", "remote"]
