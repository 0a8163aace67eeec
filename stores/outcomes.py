"""Outcome types of a rollout, of which only ``Scored`` has a reward, and the key and labels of its group.

There is deliberately no common ``reward`` attribute: a mixed list cannot be averaged by accident.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, TypeAlias

from tfgrpo.stores.errors import BudgetRefused, ModelCallError, ModelTimeout, error_kind
from tfgrpo.stores.json_values import FrozenDict

OutcomeName: TypeAlias = Literal["scored", "ungraded", "failed", "refused"]
Phase: TypeAlias = Literal["train", "eval", "measure"]
"""``measure``: groups at the training temperature that teach nothing."""
Arm: TypeAlias = Literal["group", "one", "other", "library", "none", "control"]
"""Whose lessons are in the prompt. ``group``: a learning or measuring group, whose attempts are on side ``one`` or ``other`` if
it has two; ``library`` and ``none``: the sweep, with what would be in force and without lessons; ``control``: the other side
of a comparison on demand."""
RolloutStatus: TypeAlias = Literal["ok", "parse_error", "transport_error", "timeout", "filtered", "refused", "error"]
"""``parse_error``: it ended with an empty or unreadable answer. ``transport_error``: the call had no usable reply.
``filtered``: cut by a content filter. ``refused``: by the budget. ``error``: the actor or one of its tools failed."""
Signal: TypeAlias = Literal["mixed", "all_pass", "all_fail", "flat", "lost"]
"""What the rewards of a group are like. ``lost``: fewer than two scored rollouts, so no comparison is possible."""

EMPTY_ANSWER: Final = "empty"
"""``error_type`` of a rollout that ended without any output."""
REWARDER_BROKE: Final = "rewarder_broke"
"""``error_type`` of a rollout whose reward is missing because of a fault; a grader that abstains is no fault."""
REWARDER_LATE: Final = "rewarder_late"
"""``error_type`` of a rollout whose reward is missing because a rewarder ran past its limit."""

MAX_SCORE: Final = 1e100
"""Greatest score either way: sums of squares of greater ones overflow, which would cost the run its manifest."""

_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Which group of a run this is."""

    epoch: int
    phase: Phase
    arm: Arm
    batch: int
    item: str
    draw: int = 0
    """How often the item was drawn before in this epoch, as mixes do; in a selection, how often its answer was sent back."""
    run: str = ""

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self:
        """Return the key of a line of ``groups.jsonl``, without the run; raise ``KeyError`` if a field is missing."""
        return cls(row["epoch"], row["phase"], row["arm"], row["batch"], row["item_id"], row["draw"])

    @property
    def draw_id(self) -> str:
        """Name of this draw of the item, for journal keys and seeds: each draw has its own replies."""
        return self.item if self.draw == 0 else f"{self.item}~{self.draw}"


@dataclass(frozen=True, slots=True)
class RewardScore:
    """Score of one rewarder for one rollout (requirement 35)."""

    rewarder_id: str
    score: float
    """Finite. Higher is better."""
    evidence: str
    """One line a person can check: what was compared with what."""
    details: FrozenDict | None = None
    """Components of the score as JSON: votes and raw replies of a judge, comparisons, members of a composite."""


@dataclass(frozen=True, slots=True)
class Scored:
    """The rollout ended and every rewarder scored it. ``reward`` is the weighted total."""

    reward: float
    scores: tuple[RewardScore, ...]
    name: Literal["scored"] = "scored"


@dataclass(frozen=True, slots=True)
class Ungraded:
    """The rollout ended without a reward (rewarder failed, truncated answer, no reference answer)."""

    error_type: str
    reason: str
    name: Literal["ungraded"] = "ungraded"


@dataclass(frozen=True, slots=True)
class Failed:
    """A model, a tool or the actor failed, of a rollout or of another call of the run.

    ``call_key`` names the journal entry to record, if a call failed.
    """

    error_type: str
    reason: str
    call_key: str | None = None
    name: Literal["failed"] = "failed"

    @property
    def sentence(self) -> str:
        """Kind and reason."""
        return f"{self.error_type}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Refused:
    """The ledger refused a call of this rollout; it may run again under a larger budget."""

    reason: str
    name: Literal["refused"] = "refused"


Outcome: TypeAlias = Scored | Ungraded | Failed | Refused


def scored_rewards(outcomes: Iterable[Outcome]) -> tuple[float, ...]:
    """Return the rewards of the scored outcomes in order. The caller reports how many are missing."""
    return tuple(outcome.reward for outcome in outcomes if isinstance(outcome, Scored))


def is_highest(reward: float, score_range: tuple[float, float]) -> bool:
    """Return whether a reward is the upper end of its declared range, up to rounding."""
    low, high = score_range
    return reward >= high - _ROUNDING * (high - low)


def is_lowest(reward: float, score_range: tuple[float, float]) -> bool:
    """Return whether a reward is the lower end of its declared range, up to rounding."""
    low, high = score_range
    return reward <= low + _ROUNDING * (high - low)


def classify(
    rewards: Sequence[float], spread: float, min_spread: float, score_range: tuple[float, float] = (0.0, 1.0)
) -> Signal:
    """Return the signal of a group. Equal rewards are never ``mixed``, however small ``min_spread`` is."""
    if len(rewards) < 2:
        return "lost"
    if spread > 0.0 and spread >= min_spread:
        return "mixed"
    if is_highest(min(rewards), score_range):
        return "all_pass"
    return "all_fail" if is_lowest(max(rewards), score_range) else "flat"


def status_of(error: type[BaseException]) -> RolloutStatus:
    """Return the status of a rollout whose call raised an error of this class."""
    if issubclass(error, BudgetRefused):
        return "refused"
    if issubclass(error, ModelTimeout | TimeoutError):
        return "timeout"
    return "transport_error" if issubclass(error, ModelCallError | OSError) else "error"


def status_of_outcome(name: OutcomeName, error_type: str, finish_reason: str | None) -> RolloutStatus:
    """Return the status of a rollout with this outcome; ungraded for any other reason, it has an answer."""
    if name == "failed":
        return status_of(error_kind(error_type))
    if name == "ungraded" and finish_reason == "content_filter":
        return "filtered"
    if name == "ungraded" and error_type == EMPTY_ANSWER:
        return "parse_error"
    return "refused" if name == "refused" else "ok"
