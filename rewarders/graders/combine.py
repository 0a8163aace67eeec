"""What do all graders of a dataset together say of an item? A weighted sum, multiplied by the rewards of gates.

A part that is missing makes the item ungraded: no sum of what happens to be there, and no gate that stands open because
its grader broke. How graders are run is decided in ``tfgrpo.rewarders.graders.running``.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tfgrpo.rewarders.graders.base import Grader, GraderInput
from tfgrpo.rewarders.graders.builtin.reasoning_format import ReasoningFormat
from tfgrpo.rewarders.graders.calling import Kept, grade_blocking
from tfgrpo.rewarders.graders.grades import SILENT, Grade, Graded, NotGraded
from tfgrpo.rewarders.graders.running import GraderRunner
from tfgrpo.stores.errors import RewarderTimeout

FORMAT: Final = "reasoning_format"
"""Name of the grader that is added to every set."""
_FORMAT_GRADER: Final = ReasoningFormat()


@dataclass(frozen=True, slots=True)
class NamedGrader:
    """A grader with the name that its rewards are kept under."""

    name: str
    grader: Grader
    weight: float = 1.0
    """Relative to the other weights; a gate has none."""
    timeout_s: float | None = None
    """Seconds for one batch. None: the limit of the call, or of the runner."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight) and self.weight >= 0.0):
            raise ValueError(f"the weight of {self.name} is {self.weight}; accepted: a finite number of at least 0")
        if self.timeout_s is not None and not self.timeout_s > 0.0:
            raise ValueError(f"timeout_s of {self.name} is {self.timeout_s}; accepted: more than 0")


@dataclass(frozen=True, slots=True)
class GraderSet:
    """What grades the completions of one dataset. Raises ``ValueError`` when no weight is above 0."""

    additive: tuple[NamedGrader, ...] = ()
    multiplicative: tuple[NamedGrader, ...] = ()
    """Gates: the weighted sum is multiplied by the reward of each."""
    format_weight: float = 1.0
    """Weight of the format grader, which is added to ``additive`` as the last. 0: left out."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.format_weight) and self.format_weight >= 0.0):
            given = f"format_weight is {self.format_weight}"
            raise ValueError(f"{given}; accepted: a finite number of at least 0")
        if not 0.0 < sum(part.weight for part in self.summed) < math.inf:
            raise ValueError("the weights sum to no finite number above 0")

    @property
    def summed(self) -> tuple[NamedGrader, ...]:
        """The graders whose rewards are added up, the format grader last."""
        if self.format_weight == 0.0:
            return self.additive
        return (*self.additive, NamedGrader(FORMAT, _FORMAT_GRADER, self.format_weight))

    @property
    def members(self) -> tuple[NamedGrader, ...]:
        """Every grader: those that are added up, then the gates."""
        return (*self.summed, *self.multiplicative)

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of each summed grader in the sum; together 1."""
        whole = math.fsum(part.weight for part in self.summed)
        return tuple(part.weight / whole for part in self.summed)


@dataclass(frozen=True, slots=True)
class ItemGrade:
    """What a set of graders says of one item."""

    reward: float | None
    """None: ungraded, for the reasons in ``errors``. Otherwise finite, and neither clamped nor rounded."""
    parts: Mapping[str, float]
    """Rewards by name of the grader, as given: neither weighted nor multiplied. A second grader of a name is ``name#2``."""
    errors: Mapping[str, str]
    """Why parts are missing, by the same names."""
    broke: bool = False
    """A grader failed, rather than the item."""
    late: bool = False
    """A grader took too long."""

    @property
    def reasons(self) -> str:
        """Why it has no reward, with the names of the graders."""
        errors = self.errors.items()
        return "; ".join(why if why.startswith(f"{name}: ") else f"{name}: {why}" for name, why in errors)


async def grade_items(
    runner: GraderRunner, grader_set: GraderSet, inputs: Sequence[GraderInput], timeout_s: float | None = None
) -> tuple[ItemGrade, ...]:
    """Grade every input with every grader of the set, all graders at the same time.

    ``reward = sum(weight / sum(weights) * part) * gate * gate ...``, with the parts in the order of the set. ``timeout_s``
    is the most that any grader gets, whatever its own limit; None: its own, else that of the runner.
    """
    distinct = {(part.name, id(part.grader)): part for part in grader_set.members}
    graded = await asyncio.gather(
        *(runner.grade(part.name, part.grader, inputs, _within(part, timeout_s)) for part in distinct.values())
    )
    return _combined(grader_set, dict(zip(distinct, graded, strict=True)), len(inputs))


def _within(part: NamedGrader, timeout_s: float | None) -> float | None:
    return min((limit for limit in (part.timeout_s, timeout_s) if limit is not None), default=None)


def grade_items_here(grader_set: GraderSet, inputs: Sequence[GraderInput]) -> tuple[ItemGrade, ...]:
    """As ``grade_items``, in this thread and without a time limit: for plain graders that are known to be quick."""
    said: dict[tuple[str, int], Sequence[Grade]] = {}
    for part in grader_set.members:
        kept = Kept(len(inputs))
        grade_blocking(part.grader, inputs, kept)
        said[part.name, id(part.grader)] = [grade or SILENT for grade in kept.grades]
    return _combined(grader_set, said, len(inputs))


def _combined(
    grader_set: GraderSet, said: Mapping[tuple[str, int], Sequence[Grade]], count: int
) -> tuple[ItemGrade, ...]:
    columns = [said[part.name, id(part.grader)] for part in grader_set.members]
    labels = labelled([part.name for part in grader_set.members])
    shares = grader_set.shares
    return tuple(_put_together(labels, shares, [column[at] for column in columns]) for at in range(count))


def labelled(names: Sequence[str]) -> tuple[str, ...]:
    """The names, with a number behind those that came before."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return tuple(found)


def _put_together(labels: Sequence[str], shares: Sequence[float], grades: Sequence[Grade]) -> ItemGrade:
    """``grades``: one for each label; those beyond the shares are gates."""
    parts: dict[str, float] = {}
    errors: dict[str, str] = {}
    for label, grade in zip(labels, grades, strict=True):
        if isinstance(grade, Graded):
            parts[label] = grade.reward
        else:
            errors[label] = grade.reason
    if errors:
        failed = [grade for grade in grades if isinstance(grade, NotGraded)]
        late = any(grade.error_type == RewarderTimeout.__name__ for grade in failed)
        return ItemGrade(None, parts, errors, any(grade.broke for grade in failed), late)
    rewards = [parts[label] for label in labels]
    reward = 0.0
    for share, part in zip(shares, rewards, strict=False):
        reward += share * part
    for gate in rewards[len(shares) :]:
        reward *= gate
    if not math.isfinite(reward):
        return ItemGrade(None, parts, {"reward": "the rewards of its graders come to no finite number"})
    return ItemGrade(reward, parts, errors)
