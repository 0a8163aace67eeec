"""Is the candidate library better than the champion? Promote, reject, or undecided, with the reasons in words.

The interval stays valid however often the evidence is looked at (``rewarders.sequential``). The gate abstains rather
than guess: when too much evidence is lost, when the interval does not hold for the scale of the rewards, or when both
arms ran the same library.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pipelines.settings_learning import GateSettings
from rewarders.sequential import paired_confidence_sequence
from rewarders.statistics import Interval
from tasks.evaluation import PairedEvidence, noise_floor

GateVerdict: TypeAlias = Literal["promote", "reject", "undecided"]


@dataclass(frozen=True, slots=True)
class GateDecision:
    """The decision on the candidate, and everything it rests on."""

    decision: GateVerdict
    reasons: tuple[str, ...]
    interval: Interval | None
    """Of the mean paired difference; None when there is nothing to compute it from."""
    pairs: int
    lost: tuple[str, ...]
    lost_share: float
    regressions: tuple[str, ...]
    """Items that flipped from always right to always wrong."""
    recoveries: tuple[str, ...]
    """Items that flipped from always wrong to always right."""
    noise_floor: float | None
    """Standard error of the difference between two identical arms; None when it cannot be told."""


def decide_gate(evidence: PairedEvidence, settings: GateSettings) -> GateDecision:
    """Hold the evidence against the settings. Never raises."""
    pairs = evidence.pairs
    interval = _interval(evidence, settings.confidence)
    decision, reasons = _decide(evidence, interval, settings)
    return GateDecision(
        decision=decision,
        reasons=reasons,
        interval=interval,
        pairs=len(pairs),
        lost=evidence.lost,
        lost_share=evidence.lost_share,
        regressions=_flipped(evidence, "regressed"),
        recoveries=_flipped(evidence, "recovered"),
        noise_floor=noise_floor(pairs),
    )


def sign_test(worse: int, better: int) -> float:
    """Chance of at least ``worse`` of ``worse + better`` flips for the worse if both were equally likely.

    One-sided binomial tail at 1/2 (Dixon and Mood 1946); 1.0 when nothing flipped. By logarithms, since the counts of a
    large sweep have more digits than a float has range.
    """
    flips = worse + better
    return min(
        1.0, math.fsum(math.exp(_log_comb(flips, count) - flips * math.log(2)) for count in range(worse, flips + 1))
    )


def _log_comb(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _decide(
    evidence: PairedEvidence, interval: Interval | None, settings: GateSettings
) -> tuple[GateVerdict, tuple[str, ...]]:
    abstention = _abstention(evidence, settings)
    if interval is None or abstention:
        return "undecided", (abstention or "rewards outside 0 … 1: the interval does not hold for them",)
    if interval.high < 0.0:
        return "reject", (f"the difference lies below zero: {_interval_text(interval)}",)
    flips = _too_many_flips(evidence, settings)
    if flips is not None:
        return flips
    if interval.low > 0.0:
        return "promote", (f"the difference lies above zero: {_interval_text(interval)}",)
    return "undecided", (f"the interval of the difference holds zero: {_interval_text(interval)}",)


def _abstention(evidence: PairedEvidence, settings: GateSettings) -> str:
    """Why the evidence cannot speak at all; empty when it can."""
    if evidence.identical:
        return "both arms ran the same library: nothing to compare"
    if not evidence.pairs:
        return "no item was scored under both libraries"
    if evidence.lost_share > settings.max_lost_share:
        lost = f"{len(evidence.lost)} of {len(evidence.lost) + len(evidence.pairs)} items lost their evidence"
        return f"{lost} ({evidence.lost_share:.0%}; at most {settings.max_lost_share:.0%})"
    return ""


def _too_many_flips(evidence: PairedEvidence, settings: GateSettings) -> tuple[GateVerdict, tuple[str, ...]] | None:
    """Regressions beyond the limit stop a promotion; they reject when luck alone would hardly make so many."""
    worse, better = len(_flipped(evidence, "regressed")), len(_flipped(evidence, "recovered"))
    if worse / len(evidence.pairs) <= settings.max_regressions:
        return None
    flips = f"{worse} of {len(evidence.pairs)} items went from always right to always wrong"
    if sign_test(worse, better) <= 1.0 - settings.confidence:
        return "reject", (f"{flips}, {better} the other way",)
    return "undecided", (f"{flips} (at most {settings.max_regressions:.0%})",)


def _interval(evidence: PairedEvidence, confidence: float) -> Interval | None:
    """Of differences in [-1, 1], which rewards in [0, 1] guarantee; None for other scales and without pairs."""
    rewards = [reward for pair in evidence.pairs for reward in (*pair.champion, *pair.candidate)]
    if not rewards or min(rewards) < 0.0 or max(rewards) > 1.0:
        return None
    return paired_confidence_sequence(evidence.differences, confidence)


def _flipped(evidence: PairedEvidence, how: Literal["regressed", "recovered"]) -> tuple[str, ...]:
    regressed = how == "regressed"
    return tuple(sorted(pair.item_id for pair in evidence.pairs if (pair.regressed if regressed else pair.recovered)))


def _interval_text(interval: Interval) -> str:
    return f"{interval.estimate:+.3f}, {interval.confidence:.0%} interval {interval.low:+.3f} … {interval.high:+.3f}"
