"""Figures of a run for people: money, time, losses, counts of the current epoch, and the time left."""

from __future__ import annotations

from collections import Counter, defaultdict
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
    """Return an amount in dollars, as ``$0.1445``."""
    return f"${nano_usd / 1e9:.4f}"


def plus_unknown(known: str, totals: Totals) -> str:
    """Return a sum, marked as partial if agents make calls that are not measured."""
    return f"{known} + unknown" if totals.unmeasured_attempts else known


def price_unknown(totals: Totals) -> bool:
    """Return whether no call has a known price."""
    return bool(totals.unknown_price_calls) and not totals.nano_usd


def money(totals: Totals) -> str:
    """Return the cost of the calls; unknown prices are named, not counted as free."""
    if price_unknown(totals):
        reported = pluralize(totals.tokens, "token") if totals.tokens else "no usage reported"
        return f"price unknown ({plus_unknown(reported, totals)}); set model.prices"
    known = plus_unknown(usd(totals.nano_usd), totals)
    unpriced = totals.unknown_price_calls
    return f"{known} + {pluralize(unpriced, 'call')} of unknown price" if unpriced else known


def spending(totals: Totals) -> str:
    """Return the cost of a run, and the most that calls without an answer may add."""
    at_risk = f", and up to {usd(totals.at_risk_nano)} of lost calls" if totals.at_risk_nano else ""
    own = pluralize(totals.unmeasured_attempts, "attempt")
    unmeasured = f" ({own} by an agent that calls models without `chat`)" if totals.unmeasured_attempts else ""
    return f"{money(totals)}{unmeasured}{at_risk}"


def duration(seconds: float) -> str:
    """Return a time span as ``1h02m``, ``3m05s`` or ``12s``."""
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def held_out(plan: Plan) -> str:
    """Return the number of held-out items, and how many of them the sweep measures."""
    measured, every = len(plan.eval_items), len(plan.data.split.held_out)
    return f"{every:,} held out" if measured == every else f"{measured:,} of {every:,} held out are measured"


@dataclass(slots=True)
class Losses:
    """Requests, losses and their reasons."""

    asked: int = 0
    lost: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Losses by reason; at most the first 100 reasons."""

    @property
    def mostly(self) -> str:
        """Most frequent reason, with its count; empty without losses."""
        return "".join(f"{count} × {reason}" for reason, count in self.reasons.most_common(1))

    def add(self, reason: str | None) -> None:
        """Count one request; ``reason`` of its loss, None if it was answered."""
        self.asked += 1
        if reason is None:
            return
        self.lost += 1
        short = " ".join(reason.split())[:_REASON_CHARS]
        if short in self.reasons or len(self.reasons) < _REASONS:
            self.reasons[short] += 1


@dataclass(slots=True)
class EpochCounts:
    """Counts of one epoch, with rewards by arm: no library has their common mean."""

    start: EpochStart
    began: float
    """Seconds on the clock that ``left`` gets."""
    groups: int = 0
    lost: int = 0
    stored: int = 0
    rejected: int = 0
    scored: Counter[Arm] = field(default_factory=Counter)
    """Rollouts with a reward."""
    _rewards: defaultdict[Arm, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def reward(self) -> str:
        """Mean reward, by arm when there are two."""
        means = (
            f"{name} {self._rewards[arm] / count:.3f}" for arm, name in _ARMS.items() if (count := self.scored[arm])
        )
        return ", ".join(means) or "no reward yet"

    def add(self, result: GroupResult) -> None:
        """Count a group."""
        rewards = scored_rewards(rollout.outcome for rollout in result.rollouts)
        self.groups += 1
        self.lost += len(result.rollouts) - len(rewards)
        self.scored[result.key.arm] += len(rewards)
        self._rewards[result.key.arm] += sum(rewards)


@dataclass(slots=True)
class RunCounts:
    """Counts of the groups of a run, for the time left."""

    groups: int = 0
    """Groups of all epochs, with both arms in the sweep."""
    done: int = 0
    """Those of finished epochs; a sweep of one arm has fewer than expected."""

    @classmethod
    def of(cls, plan: Plan) -> RunCounts:
        """Return the counts at the start of a plan."""
        learning = plan.settings.tfgrpo
        size = len(plan.cohort(1).items)
        return cls(size * (learning.epochs - 1) + 2 * len(plan.eval_items) if plan.learns else size)

    def left(self, epoch: EpochCounts, now: float) -> str:
        """Return the time left in the run at the pace of this epoch."""
        if not epoch.groups:
            return "time left unknown"
        pace = (now - epoch.began) / epoch.groups
        ahead = epoch.start.groups - epoch.groups
        if epoch.start.epoch < epoch.start.epochs:
            ahead = max(ahead, self.groups - self.done - epoch.groups)
        return f"about {duration(pace * ahead)} left"
