"""How did a rollout end? Four types, of which only one carries a reward.

There is deliberately no common ``reward`` attribute: a mixed list cannot be averaged by accident.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tfgrpo.stores.frozen_json import FrozenDict

OutcomeName: TypeAlias = Literal["scored", "ungraded", "failed", "refused"]

_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class RewardScore:
    """What one rewarder said of one rollout (requirement 35)."""

    rewarder_id: str
    score: float
    """Finite. Higher is better."""
    evidence: str
    """One line a person can check: what was compared with what."""
    details: FrozenDict | None = None
    """What the score was made of, as JSON: votes and raw replies of a judge, comparisons, parts of a composite."""


@dataclass(frozen=True, slots=True)
class Scored:
    """The rollout ended and every rewarder scored it. ``reward`` is the weighted total."""

    reward: float
    scores: tuple[RewardScore, ...]
    name: Literal["scored"] = "scored"


EMPTY_ANSWER: Final = "empty"
"""``error_type`` of a rollout that ended without any output."""
REWARDER_BROKE: Final = "rewarder_broke"
"""``error_type`` of a rollout whose reward is missing because of a fault, and not because nobody could tell."""


@dataclass(frozen=True, slots=True)
class Ungraded:
    """The rollout ended, but no reward could be given (rewarder failed, truncated answer, no answer to compare)."""

    error_type: str
    reason: str
    name: Literal["ungraded"] = "ungraded"


@dataclass(frozen=True, slots=True)
class Failed:
    """The rollout broke: the model, a tool or the actor. ``call_key`` names the journal entry to record, if a call broke."""

    error_type: str
    reason: str
    call_key: str | None = None
    name: Literal["failed"] = "failed"


@dataclass(frozen=True, slots=True)
class Refused:
    """The ledger refused a call of this rollout; it may be attempted again with a larger budget."""

    reason: str
    name: Literal["refused"] = "refused"


Outcome: TypeAlias = Scored | Ungraded | Failed | Refused


def scored_rewards(outcomes: Iterable[Outcome]) -> tuple[float, ...]:
    """Rewards of the scored outcomes only, in order. The caller reports how many were left out."""
    return tuple(outcome.reward for outcome in outcomes if isinstance(outcome, Scored))


def is_full(reward: float) -> bool:
    """Whether it is the full reward, 1, but for rounding."""
    return reward >= 1.0 - _ROUNDING


def is_nothing(reward: float) -> bool:
    """Whether it is no more than 0, but for rounding."""
    return reward <= _ROUNDING
