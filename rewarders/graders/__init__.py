"""Graders of single completions: the form they are written in, the built-in ones, and services elsewhere."""

from tfgrpo.rewarders.graders.base import Grader
from tfgrpo.rewarders.scorer import GradeResult, GraderInput

__all__ = ["GradeResult", "Grader", "GraderInput", "base", "builtin", "remote"]
