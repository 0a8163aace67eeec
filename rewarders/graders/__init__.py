"""Graders of single completions: loading, running and combining them."""

from tfgrpo.rewarders.graders.base import Grade, Graded, Grader, GradeResult, GraderInput, ItemGrader, NotGraded, grader
from tfgrpo.rewarders.graders.combine import GraderSet, ItemGrade, NamedGrader, grade_items
from tfgrpo.rewarders.graders.loading import BUILT_IN, build_grader, load_python_grader
from tfgrpo.rewarders.graders.remote import RemoteGrader
from tfgrpo.rewarders.graders.rewarder import GraderRewarder
from tfgrpo.rewarders.graders.running import GraderRunner

__all__ = [
    "BUILT_IN",
    "Grade",
    "GradeResult",
    "Graded",
    "Grader",
    "GraderInput",
    "GraderRewarder",
    "GraderRunner",
    "GraderSet",
    "ItemGrade",
    "ItemGrader",
    "NamedGrader",
    "NotGraded",
    "RemoteGrader",
    "build_grader",
    "builtin",
    "grade_items",
    "grader",
    "load_python_grader",
]
