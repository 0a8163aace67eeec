"""What is one completion worth? Graders, and what loads, runs and combines them."""

from rewarders.graders.base import Grader, GradeResult, GraderInput, ItemGrader, grader
from rewarders.graders.combine import GraderSet, ItemGrade, NamedGrader, grade_items
from rewarders.graders.grades import Grade, Graded, NotGraded
from rewarders.graders.loading import load_python_grader
from rewarders.graders.remote import RemoteGrader
from rewarders.graders.rewarder import GraderRewarder
from rewarders.graders.running import GraderRunner
from rewarders.graders.table import BUILT_IN, build_grader

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
    "grade_items",
    "grader",
    "load_python_grader",
]
