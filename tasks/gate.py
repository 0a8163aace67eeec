"""The promotion gate: decide from paired evidence whether the candidate library is better than the champion.

The interval is valid however often the evidence is inspected (``rewarders.statistics``). The gate abstains if too
much evidence is lost, if rewards are outside their declared range, or if both arms are the same library.

From learning rules 4 on, a promotion needs two things: a capital of 1 / (1 - confidence) over all evidence of the stream
(earlier nights, learning batches, and the sweep where it compares the same), and a mean of this sweep that is not below
zero. An interval below zero still rejects. Under older rules the interval of the sweep alone decides.

From rules 6 on, the stream is proven against no lessons, and the proof is carried on over promotions: what it says is that
lessons of this stream are better than none. A library that follows on one in force is compared with it by the sweep, which
can hold it back, and does not prove it better.

A candidate that loses its wrong attempts looks better than it is. So if Fisher's exact test finds different shares of lost
attempts in the arms, the interval extends from the worst case (a lost attempt of the candidate is worth the lower end of
the range, one of the champion the upper end) to the best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Self, TypeAlias

from tfgrpo.pipelines.settings.learning import GateSettings
from tfgrpo.rewarders.scorer import UNIT, Range
from tfgrpo.rewarders.statistics.sequential import Capital, paired_confidence_sequence
from tfgrpo.rewarders.statistics.summary import Interval
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.evaluation import Attempts, PairedEvidence

_NARROW = 0.1
_ROUNDING = 1e-9
_TIE = 1e-7
"""Tolerance of log probabilities: tables as likely as the observed one, up to rounding, count."""

GateVerdict: TypeAlias = Literal["promote", "reject", "undecided"]


@dataclass(frozen=True, slots=True)
class GateDecision:
    """The decision on the candidate and its evidence."""

    evidence: PairedEvidence
    decision: GateVerdict
    reasons: tuple[str, ...]
    interval: Interval | None
    """Of the mean paired difference; None without valid pairs."""
    loss_chance: float
    """p-value of Fisher's exact test for equal shares of lost attempts."""
    regressions: tuple[str, ...]
    """Items that flipped from always right to always wrong."""
    recoveries: tuple[str, ...]
    """Items that flipped from always wrong to always right."""
    capital: Capital | None = None
    """Evidence of the stream after this sweep; None under learning rules before 4."""
    nights: int = 0
    """Nights with evidence behind the capital, with this one."""
    learned: int = 0
    """Items of the learning batches that are part of it."""
    given_up: bool = False
    """Whether the evidence starts anew, undecided after so many nights."""
    gain: Interval | None = None
    """Of the candidates over what the stream is proven against, in this night's learning batches; None without usable pairs."""


@dataclass(frozen=True, slots=True)
class Carried:
    """Evidence that a night begins with."""

    capital: Capital = field(default_factory=Capital)
    nights: int = 0

    @classmethod
    def after(cls, decision: str, capital: Capital | None, nights: int | None, confidence: float) -> Self:
        """Return the evidence after a decision: carried on, or anew without ``nights`` or if no proof outlives a rejection."""
        if capital is None:
            return cls()
        ends = decision == "reject" and not capital.reaches(confidence)
        return cls(capital, nights) if nights and not ends else cls(capital.anew())


def decide_gate(
    evidence: PairedEvidence,
    settings: GateSettings,
    score_range: Range = UNIT,
    *,
    carried: Carried | None = None,
    learned: PairedEvidence | None = None,
    follows: bool = False,
) -> GateDecision:
    """Decide by the settings; ``score_range`` is that of the rewards. Never raises.

    ``carried``: the evidence of earlier nights; None: the sweep alone decides. ``learned``: that of the learning batches.
    ``follows``: the champion has lessons, and the stream is proven against none: the sweep then adds nothing to the proof.
    """
    chance = fisher_test(evidence.champion_attempts, evidence.candidate_attempts)
    unequal = chance <= 1.0 - settings.confidence
    interval = _interval(evidence, settings.confidence, score_range, unequal=unequal)
    swept: tuple[float, ...] = ()
    if interval is not None and not _abstention(evidence, settings):
        swept = _differences(evidence, score_range, (score_range[1], score_range[0]) if unequal else None)
    stream = None if carried is None else _Stream.of(carried, learned, swept, settings, score_range, follows=follows)
    decision, reasons = _decide(evidence, interval, settings, score_range, stream)
    if unequal and interval is not None:
        reasons = (*reasons, _unequal_losses(evidence, chance))
    given_up = stream is not None and decision == "undecided" and stream.ends(settings)
    if stream is not None:
        given = (f"given up after {pluralize(stream.nights, 'night')}: the evidence starts anew",) if given_up else ()
        reasons = (*reasons, *stream.notes, *given)
    return GateDecision(
        evidence=evidence,
        decision=decision,
        reasons=reasons,
        interval=interval,
        loss_chance=chance,
        regressions=_flipped(evidence, "regressed", score_range),
        recoveries=_flipped(evidence, "recovered", score_range),
        capital=stream.capital if stream else None,
        nights=stream.nights if stream else 0,
        learned=stream.learned if stream else 0,
        given_up=given_up,
        gain=stream.gain if stream else None,
    )


class _Stream(NamedTuple):
    """All evidence of a stream of candidates."""

    capital: Capital
    nights: int
    mean: float
    """Mean difference of this sweep, at its worst if the arms lost unequal shares of their attempts."""
    learned: int
    gain: Interval | None
    notes: tuple[str, ...]
    follows: bool

    @classmethod
    def of(
        cls,
        carried: Carried,
        learned: PairedEvidence | None,
        swept: Sequence[float],
        settings: GateSettings,
        score_range: Range,
        *,
        follows: bool,
    ) -> Self:
        """Add the differences of the learning batches and of the sweep; none where they count for nothing."""
        left_out = "" if learned is None else _unusable(learned, settings, score_range)
        tested = () if learned is None or left_out else _differences(learned, score_range)
        bound, proving = score_range[1] - score_range[0], tested if follows else (*tested, *swept)
        after = carried.capital.after(proving, bound=bound)
        nights = carried.nights + bool(proving)
        mean = math.fsum(swept) / len(swept) if swept else 0.0
        notes = (f"the evidence of the learning batches is left out: {left_out}",) if left_out else ()
        gain = paired_confidence_sequence(tested, settings.confidence, bound=bound) if tested else None
        return cls(after, nights, mean, len(tested), gain, notes, follows)

    def ends(self, settings: GateSettings) -> bool:
        """Return whether there was patience enough. What follows on a proven library has no proof to lose."""
        proven = self.follows and self.capital.reaches(settings.confidence)
        return self.nights >= settings.patience_nights and not proven

    def verdict(self, interval: Interval, confidence: float) -> tuple[GateVerdict, tuple[str, ...]]:
        """Promote with enough evidence and a sweep that does not speak against it."""
        over = f", over {pluralize(self.nights, 'night')}"
        evidence = f"evidence {evidence_text(self.capital)} of the {1 / (1 - confidence):.3g} needed{over}"
        # Half of each group ran without lessons: that is what the evidence compares with, and the sweep does not.
        evidence = f"against no lessons, {evidence}" if self.follows else evidence
        swept = f"the sweep's difference is {_interval_text(interval)}"
        if not self.capital.reaches(confidence):
            return "undecided", (evidence, swept)
        if self.mean < 0.0:
            return "undecided", (f"{evidence}, but this sweep alone speaks against it: {self.mean:+.3f}", swept)
        if self.follows and self.gain is not None and self.gain.high < 0.0:
            return "undecided", (f"{evidence}, but this night's learning batches speak against it", swept)
        return "promote", (evidence, swept)


def _unusable(learned: PairedEvidence, settings: GateSettings, score_range: Range) -> str:
    """Return the reason why pairs of learning batches prove nothing; empty if they do."""
    if off_scale(_all_rewards(learned), score_range):
        return f"rewards outside {_range_text(score_range)}, their declared range"
    chance = fisher_test(learned.champion_attempts, learned.candidate_attempts)
    return _lost_unequally(learned, chance) if chance <= 1.0 - settings.confidence else ""


def evidence_text(capital: Capital) -> str:
    """Return the capital for people: 1 is no evidence."""
    log = capital.log_value
    return "over 1,000" if log > math.log(1_000) else f"{math.exp(log):.3g}"


def off_scale(rewards: Sequence[float], score_range: Range) -> bool:
    """Return whether any reward is outside the range, up to rounding."""
    low, high = score_range
    slack = _ROUNDING * max(high - low, abs(low), abs(high))
    return bool(rewards) and not low - slack <= min(rewards) <= max(rewards) <= high + slack


def narrow_scale(evidence: PairedEvidence, score_range: Range) -> str:
    """Return a warning if the rewards of the sweep differ, but use less than a tenth of their range; else empty."""
    rewards = _all_rewards(evidence)
    spread = max(rewards) - min(rewards) if rewards else 0.0
    if not 0.0 < spread < _NARROW * (score_range[1] - score_range[0]):
        return ""
    return (
        f"the rewards of the sweep lie between {min(rewards):.4g} and {max(rewards):.4g}, in less than a tenth of their "
        f"declared range {_range_text(score_range)}, in which the gate sees small differences badly; a rewarder's own "
        "range is declared by score_range"
    )


def fisher_test(first: Attempts, second: Attempts) -> float:
    """Return the two-sided p-value of Fisher's exact test (1935) that two arms lose attempts equally often.

    Sum of the hypergeometric probabilities of all tables with these margins that are no likelier than the observed one;
    1.0 if no attempt or every attempt was lost.
    """
    lost, made = first.lost + second.lost, first.made + second.made
    whole = _log_comb(made, lost)
    tables = range(max(0, lost - second.made), min(lost, first.made) + 1)
    logs = [_log_comb(first.made, count) + _log_comb(second.made, lost - count) - whole for count in tables]
    seen = logs[first.lost - tables.start] + _TIE
    return min(1.0, math.fsum(math.exp(log) for log in logs if log <= seen))


def sign_test(worse: int, better: int) -> float:
    """Return the p-value of at least ``worse`` of ``worse + better`` flips if both directions were equally likely.

    One-sided binomial tail at 1/2 (Dixon and Mood 1946); 1.0 without flips. Computed with logarithms, because binomials
    of a large sweep overflow a float.
    """
    flips = worse + better
    return min(
        1.0, math.fsum(math.exp(_log_comb(flips, count) - flips * math.log(2)) for count in range(worse, flips + 1))
    )


def _log_comb(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _decide(
    evidence: PairedEvidence,
    interval: Interval | None,
    settings: GateSettings,
    score_range: Range,
    stream: _Stream | None,
) -> tuple[GateVerdict, tuple[str, ...]]:
    abstention = _abstention(evidence, settings)
    if interval is None or abstention:
        return "undecided", (
            abstention
            or f"rewards outside {_range_text(score_range)}, their declared range: the interval does not hold",
        )
    if interval.high < 0.0:
        return "reject", (f"the difference lies below zero: {_interval_text(interval)}",)
    worse, better = (len(_flipped(evidence, how, score_range)) for how in ("regressed", "recovered"))
    if worse / len(evidence.pairs) > settings.max_regressions:
        flips = f"{worse} of {len(evidence.pairs)} items went from always right to always wrong"
        if sign_test(worse, better) <= 1.0 - settings.confidence:
            return "reject", (f"{flips}, {better} the other way",)
        return "undecided", (f"{flips} (at most {settings.max_regressions:.0%})",)
    return _by_interval(interval) if stream is None else stream.verdict(interval, settings.confidence)


def _by_interval(interval: Interval) -> tuple[GateVerdict, tuple[str, ...]]:
    if interval.low > 0.0:
        return "promote", (f"the difference lies above zero: {_interval_text(interval)}",)
    return "undecided", (f"the interval of the difference holds zero: {_interval_text(interval)}",)


def _abstention(evidence: PairedEvidence, settings: GateSettings) -> str:
    """Return the reason to abstain; empty if there is none."""
    if evidence.identical:
        swept = "" if evidence.pairs else ", and no sweep was run"
        return f"candidate and champion are the same library: nothing to compare{swept}"
    if not evidence.pairs:
        return "no item was scored under both libraries"
    if evidence.lost_share > settings.max_lost_share:
        lost = f"{len(evidence.lost)} of {len(evidence.lost) + len(evidence.pairs)} items lost their evidence"
        return f"{lost} ({evidence.lost_share:.0%}; at most {settings.max_lost_share:.0%})"
    return ""


def _interval(evidence: PairedEvidence, confidence: float, score_range: Range, *, unequal: bool) -> Interval | None:
    """Return the interval of the mean difference; None without pairs, or with rewards outside the range.

    ``unequal``: from the lower end of the worst case to the upper end of the best, including lost items.
    """
    low, high = score_range
    if not evidence.pairs or off_scale(_all_rewards(evidence), score_range):
        return None

    def sequence(differences: Sequence[float]) -> Interval:
        return paired_confidence_sequence(differences, confidence, bound=high - low)

    seen = sequence(_differences(evidence, score_range))
    if not unequal:
        return seen
    worst, best = (sequence(_differences(evidence, score_range, lost)) for lost in ((high, low), (low, high)))
    return replace(seen, low=min(seen.low, worst.low), high=max(seen.high, best.high))


def _differences(
    evidence: PairedEvidence, score_range: Range, lost: tuple[float, float] | None = None
) -> tuple[float, ...]:
    """Return candidate minus champion by item, clipped to the bound, with ``lost`` attempts given these rewards."""
    bound = score_range[1] - score_range[0]
    every = (*evidence.pairs, *evidence.lost_pairs)
    found = evidence.differences if lost is None else tuple(pair.filled(*lost) for pair in every)
    return tuple(min(max(each, -bound), bound) for each in found)


def _all_rewards(evidence: PairedEvidence) -> list[float]:
    return [reward for pair in (*evidence.pairs, *evidence.lost_pairs) for reward in (*pair.champion, *pair.candidate)]


def _unequal_losses(evidence: PairedEvidence, chance: float) -> str:
    return f"{_lost_unequally(evidence, chance)}, so each end of the interval counts the lost ones at their worst"


def _lost_unequally(evidence: PairedEvidence, chance: float) -> str:
    before, after = evidence.champion_attempts, evidence.candidate_attempts
    return (
        f"the arms lost unequal shares of their attempts (champion {before.lost} of {before.made}, candidate {after.lost} of "
        f"{after.made}, Fisher's exact test p = {chance:.2g})"
    )


def _range_text(score_range: Range) -> str:
    return f"{score_range[0]:g} … {score_range[1]:g}"


def _flipped(evidence: PairedEvidence, how: str, score_range: Range) -> tuple[str, ...]:
    return tuple(sorted(pair.item_id for pair in evidence.pairs if pair.flipped(score_range) == how))


def _interval_text(interval: Interval) -> str:
    return f"{interval.estimate:+.3f}, {interval.confidence:.0%} interval {interval.low:+.3f} … {interval.high:+.3f}"
