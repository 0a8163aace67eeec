"""How far has a run come, as figures for people? Counts of the epoch under way, and the time left at its pace."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tfgrpo.flows.console.observer import EpochStart
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.stores.ledger.state import Totals
from tfgrpo.stores.outcomes import Arm, scored_rewards
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.shapes import GroupResult

_ARMS: dict[Arm, str] = {"train": "reward", "champion": "before", "candidate": "after"}
_REASONS = 100
_REASON_CHARS = 200


def usd(nano_usd: int) -> str:
    """Money as people write it."""
    return f"${nano_usd / 1e9:.4f}"


def plus_unknown(known: str, totals: Totals) -> str:
    """A sum, marked where agents that call models by themselves add an unknown part to it."""
    return f"{known} + unknown" if totals.unmeasured_attempts else known


def price_unknown(totals: Totals) -> bool:
    """Whether no call has a known price."""
    return bool(totals.unknown_price_calls) and not totals.nano_usd


def money(totals: Totals) -> str:
    """What the calls cost; what is unknown is named, not counted as free."""
    if price_unknown(totals):
        reported = pluralize(totals.tokens, "token") if totals.tokens else "no usage reported"
        return f"price unknown ({plus_unknown(reported, totals)}); set model.prices"
    known = plus_unknown(usd(totals.nano_usd), totals)
    unpriced = totals.unknown_price_calls
    return f"{known} + {pluralize(unpriced, 'call')} of unknown price" if unpriced else known


def spending(totals: Totals) -> str:
    """What a run has cost, and at most more for calls that were sent and not answered, which may be paid for too."""
    at_risk = f", and up to {usd(totals.at_risk_nano)} of lost calls" if totals.at_risk_nano else ""
    own = pluralize(totals.unmeasured_attempts, "attempt")
    unmeasured = f" ({own} by an agent that calls models without `chat`)" if totals.unmeasured_attempts else ""
    return f"{money(totals)}{unmeasured}{at_risk}"


def duration(seconds: float) -> str:
    """A span of time as ``1h02m``, ``3m05s`` or ``12s``."""
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def held_out(plan: Plan) -> str:
    """How many items are held out, and how many of them the sweep measures on."""
    measured, every = len(plan.eval_items), len(plan.data.split.held_out)
    return f"{every:,} held out" if measured == every else f"{measured:,} of {every:,} held out are measured"


@dataclass(slots=True)
class Losses:
    """What was asked for, how much of it was lost, and why."""

    asked: int = 0
    lost: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Losses by reason; the first of very many reasons."""

    @property
    def mostly(self) -> str:
        """The most frequent reason, with its number; empty without losses."""
        return "".join(f"{count} × {reason}" for reason, count in self.reasons.most_common(1))

    def add(self, reason: str | None) -> None:
        """Count one; ``reason`` is why it was lost, None when it was not."""
        self.asked += 1
        if reason is None:
            return
        self.lost += 1
        short = " ".join(reason.split())[:_REASON_CHARS]
        if short in self.reasons or len(self.reasons) < _REASONS:
            self.reasons[short] += 1


@dataclass(slots=True)
class EpochCounts:
    """Counts within one epoch. Rewards are kept apart by arm: a mean over both would be nobody's."""

    start: EpochStart
    began: float
    """In seconds of the clock that is read for ``left``."""
    groups: int = 0
    lost: int = 0
    stored: int = 0
    rejected: int = 0
    _rewards: dict[Arm, tuple[float, int]] = field(default_factory=dict)

    @property
    def scored(self) -> int:
        """Rollouts with a reward."""
        return sum(count for _, count in self._rewards.values())

    @property
    def reward(self) -> str:
        """Mean reward, by arm when there are two."""
        means = [
            f"{_ARMS[arm]} {total / count:.3f}"
            for arm in _ARMS
            for total, count in [self._rewards.get(arm, (0.0, 0))]
            if count
        ]
        return ", ".join(means) or "no reward yet"

    def add(self, result: GroupResult) -> None:
        """Count a group."""
        rewards = scored_rewards(rollout.outcome for rollout in result.rollouts)
        self.groups += 1
        self.lost += len(result.rollouts) - len(rewards)
        total, count = self._rewards.get(result.key.arm, (0.0, 0))
        self._rewards[result.key.arm] = total + sum(rewards), count + len(rewards)


@dataclass(slots=True)
class RunCounts:
    """Groups of the whole run: those that ended, and those that are still to come."""

    groups: int
    """Groups of all epochs, with both arms in the sweep."""
    done: int = 0

    @classmethod
    def of(cls, plan: Plan) -> RunCounts:
        """The groups that a plan has ahead."""
        learning = plan.settings.tfgrpo
        size = len(plan.cohort(1).items)
        return cls(size * (learning.epochs - 1) + 2 * len(plan.eval_items) if plan.learns else size)

    def ended(self, epoch: EpochCounts) -> None:
        """An epoch is over. A sweep of one arm has fewer groups than were expected."""
        self.done += epoch.start.groups

    def left(self, epoch: EpochCounts, now: float) -> str:
        """The time left in the run if it goes on at the pace of this epoch."""
        if not epoch.groups:
            return "time left unknown"
        pace = (now - epoch.began) / epoch.groups
        ahead = epoch.start.groups - epoch.groups
        if epoch.start.epoch < epoch.start.epochs:
            ahead = max(ahead, self.groups - self.done - epoch.groups)
        return f"about {duration(pace * ahead)} left"
