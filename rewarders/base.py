"""What is a rewarder? The shapes it sees and returns, and the two protocols it may follow.

A rewarder never returns a number for "could not tell": it raises ``RewardError``, or abstains for one rollout with
``Abstained``. The caller turns both into typed outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from tfgrpo.rewarders.judge.seam import JudgeModel
from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.stores.outcomes import RewardScore


@dataclass(frozen=True, slots=True)
class Attempt:
    """One finished rollout as a rewarder sees it."""

    rollout_id: str
    index: int
    output: str
    """Final text of the rollout."""
    tokens: int | None
    """Completion tokens spent, None when unknown; breaks ties among equals in favour of the cheaper."""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RewardContext:
    """What a rewarder may look at for one group (requirement 34)."""

    fixture_path: str
    """Dataset file and item id the reference comes from, as ``path#id``."""
    item_id: str
    prompt: str
    answer: str
    """Reference answer of the item; empty when the item has none."""
    outputs: tuple[Attempt, ...]
    """Attempts of one group, in index order; only those that ended with an output."""
    experiences: tuple[ExperienceRecord, ...] = ()
    """Records that were injected into this group's prompt."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Metadata of the item."""
    prior_scores: Mapping[str, float] = field(default_factory=dict)
    """Weighted total so far by rollout id; what ``relative`` ranks."""
    judge: JudgeModel | None = field(default=None, compare=False, repr=False)
    """The way to a language model, for rewarders that ask one; None where there is none."""
    time_limit_s: float | None = None
    """Seconds this rewarder has for the group. None: as long as it takes."""


@dataclass(frozen=True, slots=True)
class Abstained:
    """The rewarder looked and could not tell; the rollout becomes ``ungraded``."""

    rewarder_id: str
    reason: str
    broke: bool = False
    """Whether it could not tell because it broke, and the total hangs on it. Set by whoever asks it."""

    @property
    def told(self) -> str:
        """The reason, beginning with whose it is."""
        name = f"{self.rewarder_id}: "
        return self.reason if self.reason.startswith(name) else name + self.reason


Verdict: TypeAlias = RewardScore | Abstained


Range: TypeAlias = tuple[float, float]
"""Lowest and highest score that a rewarder can give."""
UNIT: Final[Range] = (0.0, 1.0)
ACCEPTED_RANGE: Final = "two finite numbers, the lower one first"


def declared_range(rewarder: object, given: Range | None = None) -> Range:
    """Return ``given``, else the rewarder's ``score_range``, else 0 to 1. Raises ``ValueError`` for what is no range."""
    found = getattr(rewarder, "score_range", UNIT) if given is None else given
    numbers = isinstance(found, Sequence) and len(found) == 2 and all(_is_number(end) for end in found)
    if not numbers or not found[0] < found[1]:
        raise ValueError(f"score_range is {found!r}; accepted: {ACCEPTED_RANGE}")
    return float(found[0]), float(found[1])


def _is_number(end: object) -> bool:
    return isinstance(end, int | float) and not isinstance(end, bool) and math.isfinite(end)


class Rewarder(Protocol):
    """Scores the attempts of one group. One verdict per attempt, in the order given.

    ``score_range`` as an attribute is the lowest and the highest score it can give, 0 to 1 when absent; the gate computes its
    interval within it. It may say more of itself in class attributes, each False when absent: ``quick`` (cheap enough for
    the event loop), ``ranks`` (runs after the others and finds their totals in ``context.prior_scores``), ``compares`` (has
    nothing to say of a single attempt), and ``asks_model`` (what takes time are calls to a model; it keeps
    ``context.time_limit_s`` by itself, and has longer by default).
    """

    @property
    def rewarder_id(self) -> str:
        """Name under which scores are recorded."""
        ...

    def score(self, context: RewardContext) -> Sequence[Verdict] | Awaitable[Sequence[Verdict]]:
        """Score every attempt. A plain method runs off the event loop and may block up to its time limit.

        ``async def score`` runs on the event loop, and must not block it.
        """
        ...


def abstain_on_all(rewarder: Rewarder, context: RewardContext, reason: str) -> list[Verdict]:
    """The verdicts of a rewarder that can tell of no attempt of the group."""
    return [Abstained(rewarder.rewarder_id, reason) for _ in context.outputs]


Ask: TypeAlias = Callable[[Rewarder, RewardContext], Awaitable[tuple[Verdict, ...]]]
"""Verdicts of another rewarder, checked; raises ``RewardError`` when it broke, ``RewarderTimeout`` when it was late."""


@runtime_checkable
class CompoundRewarder(Protocol):
    """A rewarder made of others, which it asks by way of its caller: each in its own thread or on the event loop."""

    @property
    def rewarder_id(self) -> str:
        """Name under which scores are recorded."""
        ...

    async def combine(self, context: RewardContext, ask: Ask) -> Sequence[Verdict]:
        """Score every attempt out of what ``ask`` brings. The time limit holds for each of the others."""
        ...
