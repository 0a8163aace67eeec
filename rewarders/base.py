"""Rewarders: their input, their verdicts, and the two protocols.

A rewarder without a score raises ``RewardError``, or abstains for one rollout with ``Abstained``; both become typed
outcomes, never numbers.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeAlias

from tfgrpo.rewarders.judge.model import JudgeModel
from tfgrpo.stores.errors import OptionError, PipelineError
from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.stores.numeric import is_number
from tfgrpo.stores.outcomes import RewardScore


@dataclass(frozen=True, slots=True)
class Attempt:
    """One finished rollout as a rewarder sees it."""

    rollout_id: str
    index: int
    output: str
    """Final text of the rollout."""
    tokens: int | None
    """Completion tokens, None when unknown; the cheaper of equal attempts ranks first."""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RewardContext:
    """Input of a rewarder for one group (requirement 34)."""

    fixture_path: str
    """Dataset file and item id of the reference, as ``path#id``."""
    item_id: str
    prompt: str
    answer: str
    """Reference answer of the item; empty when the item has none."""
    outputs: tuple[Attempt, ...]
    """Attempts of one group with an output, in index order."""
    alternatives: tuple[str, ...] = ()
    """Further accepted answers."""
    experiences: tuple[ExperienceRecord, ...] = ()
    """Records in this group's prompt."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Metadata of the item."""
    prior_scores: Mapping[str, float] = field(default_factory=dict)
    """Weighted totals so far by rollout id, which ``relative`` ranks."""
    judge: JudgeModel | None = field(default=None, compare=False, repr=False)
    """Language model of rewarders that call one; None without any."""
    time_limit_s: float | None = None
    """Seconds for the group. None: no limit."""


@dataclass(frozen=True, slots=True)
class Abstained:
    """The rewarder has no score; the rollout becomes ``ungraded``."""

    rewarder_id: str
    reason: str
    broke: bool = False
    """The rewarder failed, and the total depends on it. Set by the caller."""

    @property
    def message(self) -> str:
        """The reason with the name of the rewarder."""
        name = f"{self.rewarder_id}: "
        return self.reason if self.reason.startswith(name) else name + self.reason


Verdict: TypeAlias = RewardScore | Abstained


Range: TypeAlias = tuple[float, float]
"""Lowest and highest score of a rewarder."""
UNIT: Final[Range] = (0.0, 1.0)
DECIMALS: Final = 12
"""Of a total, so that mathematically equal weighted sums tie."""
ACCEPTED_RANGE: Final = "two finite numbers, the lower one first"


def declared_range(rewarder: object, override: Range | None = None) -> Range:
    """Return ``override``, else the rewarder's ``score_range``, else 0 to 1. Raises ``ValueError`` for an invalid one."""
    ends = getattr(rewarder, "score_range", UNIT) if override is None else override
    numbers = isinstance(ends, Sequence) and len(ends) == 2 and all(is_number(end, allow_nan=False) for end in ends)
    if not numbers or not ends[0] < ends[1]:
        raise OptionError(f"score_range is {ends!r}", ACCEPTED_RANGE)
    return float(ends[0]), float(ends[1])


class Rewarder(Protocol):
    """Scores the attempts of one group: one verdict per attempt, in order.

    Optional attributes: ``score_range``, the lowest and the highest score, 0 to 1 by default; the gate computes its interval
    within it. ``quick``: cheap enough for the event loop. ``ranks``: runs after the others and reads their totals from
    ``context.prior_scores``. ``compares``: cannot score a single attempt. ``asks_model``: its time is that of calls to a
    model; it respects ``context.time_limit_s`` itself, and has a longer default. ``combine(context, ask)``: it is made of
    others, its ``members``, which its caller runs through ``ask``, each in a thread or on the event loop, and each within
    the time limit.
    """

    @property
    def rewarder_id(self) -> str:
        """Name of the scores in records."""
        ...

    def score(self, context: RewardContext) -> Sequence[Verdict] | Awaitable[Sequence[Verdict]]:
        """Score every attempt. A plain method runs in a thread; ``async def`` runs on the event loop and must not block."""
        ...


def declares(rewarder: object, attribute: Literal["quick", "ranks", "compares", "asks_model", "limits_itself"]) -> bool:
    """Return whether a rewarder has an optional attribute, and it is true."""
    return bool(getattr(rewarder, attribute, False))


def members_of(rewarder: object) -> Sequence[Rewarder]:
    """Return the rewarders that a composite runs; none of any other rewarder."""
    members: Sequence[Rewarder] = getattr(rewarder, "members", ()) if hasattr(rewarder, "combine") else ()
    return members


def abstain_on_all(rewarder: Rewarder, context: RewardContext, reason: str) -> list[Verdict]:
    """Return an abstention for every attempt of the group."""
    return [Abstained(rewarder.rewarder_id, reason) for _ in context.outputs]


def weighted_mean(weighted: Sequence[tuple[float, float]]) -> float:
    """Return ``sum(weight * score) / sum(weight)`` of (weight above 0, score) pairs, even where a sum may overflow."""
    peak = max(weight for weight, _ in weighted)
    whole = math.fsum(weight / peak for weight, _ in weighted)
    return math.fsum(weight / peak / whole * score for weight, score in weighted)


def pop_rewarder_id(options: Mapping[str, Any], default: str, where: str) -> tuple[dict[str, Any], str]:
    """Return the options without ``rewarder_id``, and that name. Raises ``PipelineError`` unless it is a name."""
    rest = dict(options)
    name = rest.pop("rewarder_id", default)
    if not isinstance(name, str) or not name.strip():
        raise PipelineError.one(f"{where}: options.rewarder_id", repr(name), "a name")
    return rest, name


Ask: TypeAlias = Callable[[Rewarder, RewardContext], Awaitable[tuple[Verdict, ...]]]
"""Checked verdicts of another rewarder; raises ``RewardError`` when it failed, ``RewarderTimeout`` when it was late."""
