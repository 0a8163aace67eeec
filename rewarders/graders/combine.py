"""Combine the graders of a dataset: a weighted sum of rewards, multiplied by the rewards of gates.

An item with any missing part is ungraded: no partial sums, and no gate that is open because its grader failed.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tfgrpo.rewarders.graders.base import Grade, Grader, GraderInput, NotGraded
from tfgrpo.rewarders.graders.builtin.formats import ReasoningFormat
from tfgrpo.rewarders.graders.calling import BatchGrades, grade_blocking
from tfgrpo.rewarders.graders.grades import NO_GRADE
from tfgrpo.rewarders.graders.running import GraderRunner
from tfgrpo.stores.errors import OptionError, RewarderTimeout

FORMAT: Final = "reasoning_format"
"""Name of the grader that is added to every set."""
_FORMAT_GRADER: Final = ReasoningFormat()


@dataclass(frozen=True, slots=True)
class NamedGrader:
    """A grader with the name of its rewards."""

    name: str
    grader: Grader
    weight: float = 1.0
    """Relative to the other weights; a gate has none."""
    timeout_s: float | None = None
    """Seconds for one batch. None: the limit of the call, or of the runner."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight) and self.weight >= 0.0):
            raise OptionError(f"the weight of {self.name} is {self.weight}", "a finite number of at least 0")
        if self.timeout_s is not None and not self.timeout_s > 0.0:
            raise OptionError(f"timeout_s of {self.name} is {self.timeout_s}", "more than 0")


@dataclass(frozen=True, slots=True)
class GraderSet:
    """The graders of one dataset. Raises ``ValueError`` when no weight is above 0."""

    additive: tuple[NamedGrader, ...] = ()
    multiplicative: tuple[NamedGrader, ...] = ()
    """Gates: the weighted sum is multiplied by the reward of each."""
    format_weight: float = 1.0
    """Weight of the format grader, which is added to ``additive`` as the last. 0: none."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.format_weight) and self.format_weight >= 0.0):
            given = f"format_weight is {self.format_weight}"
            raise OptionError(given, "a finite number of at least 0")
        if not 0.0 < sum(part.weight for part in self.summed) < math.inf:
            raise ValueError("the weights sum to no finite number above 0")

    @property
    def summed(self) -> tuple[NamedGrader, ...]:
        """The graders of the sum, the format grader last."""
        if self.format_weight == 0.0:
            return self.additive
        return (*self.additive, NamedGrader(FORMAT, _FORMAT_GRADER, self.format_weight))

    @property
    def members(self) -> tuple[NamedGrader, ...]:
        """Every grader: those of the sum, then the gates."""
        return (*self.summed, *self.multiplicative)

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of each summed grader in the sum; together 1."""
        whole = math.fsum(part.weight for part in self.summed)
        return tuple(part.weight / whole for part in self.summed)


@dataclass(frozen=True, slots=True)
class ItemGrade:
    """The combined grade of one item."""

    reward: float | None
    """None: ungraded, for the reasons in ``errors``. Otherwise finite, and neither clamped nor rounded."""
    parts: Mapping[str, float]
    """Rewards by name of the grader, neither weighted nor multiplied. A second grader of a name is ``name#2``."""
    errors: Mapping[str, str]
    """Reasons of missing parts, by the same names."""
    broke: bool = False
    """A grader failed, rather than the item."""
    late: bool = False
    """A grader took too long."""

    @property
    def reasons(self) -> str:
        """All errors in one line, with the names of the graders."""
        errors = self.errors.items()
        return "; ".join(why if why.startswith(f"{name}: ") else f"{name}: {why}" for name, why in errors)


async def grade_items(
    runner: GraderRunner, grader_set: GraderSet, inputs: Sequence[GraderInput], timeout_s: float | None = None
) -> tuple[ItemGrade, ...]:
    """Grade every input with every grader of the set, all graders at the same time.

    ``reward = sum(weight / sum(weights) * part) * gate * gate ...``, with the parts in the order of the set. ``timeout_s``
    bounds the limit of every grader; None: its own, else that of the runner.
    """
    # A grader that is listed twice is asked once.
    distinct = {(part.name, id(part.grader)): part for part in grader_set.members}

    def grades(part: NamedGrader) -> Awaitable[tuple[Grade, ...]]:
        limit_s = min((limit for limit in (part.timeout_s, timeout_s) if limit is not None), default=None)
        return runner.grade(part.name, part.grader, inputs, limit_s)

    graded = await asyncio.gather(*map(grades, distinct.values()))
    return _combined(grader_set, dict(zip(distinct, graded, strict=True)))


def grade_items_here(grader_set: GraderSet, inputs: Sequence[GraderInput]) -> tuple[ItemGrade, ...]:
    """As ``grade_items``, in this thread and without a time limit: for plain graders that are known to be quick."""
    graded: dict[tuple[str, int], Sequence[Grade]] = {}
    for part in grader_set.members:
        grades = BatchGrades(len(inputs))
        grade_blocking(part.grader, inputs, grades)
        graded[part.name, id(part.grader)] = grades.complete(NO_GRADE)
    return _combined(grader_set, graded)


def _combined(grader_set: GraderSet, graded: Mapping[tuple[str, int], Sequence[Grade]]) -> tuple[ItemGrade, ...]:
    members, shares = grader_set.members, grader_set.shares
    counts: Counter[str] = Counter()
    labels = []
    for part in members:
        counts[part.name] += 1
        labels.append(part.name if counts[part.name] == 1 else f"{part.name}#{counts[part.name]}")
    columns = (graded[part.name, id(part.grader)] for part in members)
    return tuple(_item_grade(labels, shares, grades) for grades in zip(*columns, strict=True))


def _item_grade(labels: Sequence[str], shares: Sequence[float], grades: Sequence[Grade]) -> ItemGrade:
    """Combine one grade for each label; those beyond the shares are gates."""
    labelled = list(zip(labels, grades, strict=True))
    parts = {label: grade for label, grade in labelled if not isinstance(grade, NotGraded)}
    failed = {label: grade for label, grade in labelled if isinstance(grade, NotGraded)}
    if failed:
        errors = {label: grade.reason for label, grade in failed.items()}
        late = any(grade.error_type == RewarderTimeout.__name__ for grade in failed.values())
        return ItemGrade(None, parts, errors, any(grade.broke for grade in failed.values()), late)
    rewards = [grade for grade in grades if not isinstance(grade, NotGraded)]
    reward = 0.0
    for share, part in zip(shares, rewards, strict=False):
        reward += share * part
    for gate in rewards[len(shares) :]:
        reward *= gate
    if not math.isfinite(reward):
        return ItemGrade(None, parts, {"reward": "the combined reward is no finite number"})
    return ItemGrade(reward, parts, {})
