"""Figures of a run for people: money, time, losses, sums over the groups of an epoch, and the time left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tfgrpo.flows.console.observer import EpochEnd, EpochStart
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.rewarders.scorer import UNIT, Range
from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.stores.ledger.state import NANO, Totals
from tfgrpo.stores.outcomes import Scored, is_highest
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.shapes import GroupResult

ARMS: Final[Mapping[str, str]] = {
    "group": "in groups",
    "library": "with lessons",
    "none": "no lessons",
    "control": "control",
}
"""What people call the arms, in the order in which they are shown."""
_REASONS = 100
_REASON_CHARS = 200


def shown_arm(arm: str) -> str:
    """Return the arm as people see it: both sides of a group are its arm, for each has a random half of the lessons."""
    return "group" if arm in {"one", "other"} else arm


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


def used_shares(totals: Totals, caps: Mapping[str, float | None]) -> dict[str, float]:
    """Return the share of each cap of a run that is used, what lost calls may have used included, by the name of the cap."""
    used = {
        "max_calls": totals.calls,
        "max_tokens": totals.tokens + totals.at_risk_tokens,
        "max_usd": (totals.nano_usd + totals.at_risk_nano) / NANO,
    }
    return {name: used[name] / cap for name in used if (cap := caps.get(name))}


def price_line(row: Mapping[str, Any]) -> str:
    """Return a model's price and its source."""
    if row["source"] is None:
        return f"{row['model']}: unknown; set model.prices"
    cached = "" if row["cached_input"] is None else f" (cached ${row['cached_input']:g})"
    paid = f"${row['input']:g}{cached} in, ${row['output']:g} out per million tokens"
    return f"{row['model']}: {paid}, by {row['source']}"


def spending(totals: Totals) -> str:
    """Return the cost of a run, and the most that calls without an answer may add."""
    at_risk = f", and up to {usd(totals.at_risk_nano)} of lost calls" if totals.at_risk_nano else ""
    own = pluralize(totals.unmeasured_attempts, "attempt")
    unmeasured = f" ({own} by an agent whose calls are not seen)" if totals.unmeasured_attempts else ""
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
class _ArmSum:
    """Scored rollouts of one arm."""

    total: float = 0.0
    scored: int = 0
    solved: int = 0


@dataclass(slots=True)
class EpochSums:
    """Sums over the groups of an epoch.

    Rewards are summed by arm, because a mean with and without lessons means little: the epoch reports those with lessons.
    The two sides of a group, each with a random half of the lessons, are one arm.
    """

    start: EpochStart
    score_range: Range = UNIT
    """Of the reward, as its rewarders declare it."""
    groups: int = 0
    informative: int = 0
    arms: dict[str, _ArmSum] = field(default_factory=dict)
    rollouts: Losses = field(default_factory=Losses)
    learning: Losses = field(default_factory=Losses)
    """Reflections and curations."""

    @property
    def scored(self) -> int:
        """Scored rollouts of all arms."""
        return sum(arm.scored for arm in self.arms.values())

    @property
    def mean_reward(self) -> float | None:
        """Mean over the scored rollouts of the reported arm; None without any."""
        return self._reported.total / self._reported.scored if self._reported.scored else None

    @property
    def solve_rate(self) -> float | None:
        """Share of the reported arm's scored rollouts with the full reward; None without any."""
        return self._reported.solved / self._reported.scored if self._reported.scored else None

    @property
    def reward(self) -> str:
        """Mean reward for people, by arm when there are two."""
        named = {**ARMS, "group": "reward"}
        sums = ((name, self.arms[arm]) for arm, name in named.items() if arm in self.arms)
        means = (f"{name} {arm.total / arm.scored:.3f}" for name, arm in sums if arm.scored)
        return ", ".join(means) or "no reward yet"

    @property
    def _reported(self) -> _ArmSum:
        return next((self.arms[arm] for arm in ARMS if arm in self.arms), _ArmSum())

    def add(self, results: Sequence[GroupResult]) -> None:
        """Add groups."""
        self.groups += len(results)
        for result in results:
            self.informative += result.signal == "mixed"
            for rollout in result.rollouts:
                outcome = rollout.outcome
                arm = self.arms.setdefault(shown_arm(rollout.key.arm), _ArmSum())
                if isinstance(outcome, Scored):
                    arm.total += outcome.reward
                    arm.scored += 1
                    arm.solved += is_highest(outcome.reward, self.score_range)
                self.rollouts.add(None if isinstance(outcome, Scored) else f"{outcome.name}: {outcome.reason}")
            if result.reflected:
                failure = result.reflection_failure
                self.learning.add(failure.sentence if failure is not None else None)

    def end(self, on_trial: Sequence[ExperienceRecord]) -> EpochEnd:
        """Return the summary of the epoch, after which these lessons are on trial."""
        return EpochEnd(
            self.start.epoch,
            self.start.phase,
            self.mean_reward,
            self.scored,
            self.rollouts.lost,
            self.informative,
            lessons=len(on_trial),
            lost_mostly=self.rollouts.mostly,
            learning_asked=self.learning.asked,
            learning_lost=self.learning.lost,
            learning_lost_mostly=self.learning.mostly,
        )


def groups_of(plan: Plan) -> int:
    """Return the number of groups in all epochs, with both sides of the sweep; one in which nothing would follow has none."""
    if plan.measured_groups or plan.opens_sealed:
        return plan.measured_groups or 2 * len(plan.eval_items)
    size = len(plan.cohort(1).items)
    return size * (plan.settings.tfgrpo.epochs - 1) + 2 * len(plan.eval_items) if plan.learns else size


def time_left(epoch: EpochSums, groups: int, elapsed: float) -> str:
    """Return the time left at the pace of this epoch, which has taken ``elapsed`` s; it and later ones have ``groups``."""
    if not epoch.groups:
        return "time left unknown"
    ahead = epoch.start.groups
    if epoch.start.epoch < epoch.start.epochs:
        ahead = max(ahead, groups)
    return f"about {duration(elapsed / epoch.groups * (ahead - epoch.groups))} left"
