"""Means, errors, intervals and k-attempt metrics; evidence that is valid at every look. No input is an error, never zero."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

_RESAMPLES: Final = 2_000
_COUNTS_AT_ONCE: Final = 50_000
# Tolerance of log probabilities: tables as likely as the observed one, up to rounding, count.
_TIE: Final = 1e-7
FloatArray: TypeAlias = npt.NDArray[np.float64]
_GAMBLERS: Final = 32
_STAKES: Final[FloatArray] = (np.arange(_GAMBLERS) + 0.5) / _GAMBLERS


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval, in the units of the values."""

    estimate: float
    low: float
    high: float
    n: int
    confidence: float


class MeanEstimate(NamedTuple):
    """A mean with its standard error ``s / sqrt(n)``; None for the error of a single value or cluster."""

    mean: float
    se: float | None
    n: int


def mean_and_error(values: Sequence[float], clusters: Sequence[Hashable] | None = None) -> MeanEstimate:
    """Return the mean and its standard error.

    ``clusters`` names the cluster of each value where values of one cluster (attempts at one item) correlate; then it is
    ``sqrt(C / (C - 1) * sum over clusters of (sum of residuals)^2) / n`` with C clusters: the cluster-robust error of
    Liang & Zeger (1986), recommended for evaluations by Miller (2024, arXiv:2411.00640). With clusters of one value it
    is the plain standard error. Raises ``ValueError`` for no value, for one that is not finite, or if the lengths differ.
    """
    mean = _mean(values)
    names = range(len(values)) if clusters is None else clusters
    if len(names) != len(values):
        raise ValueError(f"{len(values)} values but {len(names)} cluster names")
    residuals: dict[Hashable, list[float]] = {}
    for value, cluster in zip(values, names, strict=True):
        residuals.setdefault(cluster, []).append(value - mean)
    count = len(residuals)
    if count == 1:
        return MeanEstimate(mean, None, len(values))
    squares = math.fsum(math.fsum(group) ** 2 for group in residuals.values())
    return MeanEstimate(mean, math.sqrt(squares * count / (count - 1)) / len(values), len(values))


def bootstrap_interval(groups: Sequence[Sequence[float]], *, seed: int) -> Interval:
    """Return the percentile bootstrap interval (95 %) of the mean of the items' means (Efron & Tibshirani 1993, chapter 13).

    Whole items are drawn with replacement, so that attempts at one item stay together. ``groups``: the scored rewards of
    each item. Raises ``ValueError`` for no item, and for one without a score.
    """
    means = np.asarray([_mean(group) for group in groups])
    if not means.size:
        raise ValueError("a bootstrap needs at least one item")
    generator = np.random.default_rng(seed)
    chances = np.full(means.size, 1 / means.size)
    # In chunks: all counts of all resamples would take megabytes. The generator's numbers are the same.
    rows = max(1, _COUNTS_AT_ONCE // means.size)
    chunks = (min(rows, _RESAMPLES - done) for done in range(0, _RESAMPLES, rows))
    resampled = np.concatenate([generator.multinomial(means.size, chances, size=size) @ means for size in chunks])
    low, high = np.quantile(resampled / means.size, [0.025, 0.975])
    return Interval(float(means.mean()), float(low), float(high), int(means.size), 0.95)


def pass_at_k(attempts: int, passed: int, k: int) -> float:
    """Return the chance that one of k attempts passes, ``1 - C(n - c, k) / C(n, k)`` (Chen et al. 2021, arXiv:2107.03374)."""
    _check_counts(attempts, passed, k)
    return 1.0 - math.comb(attempts - passed, k) / math.comb(attempts, k)


def pass_hat_k(attempts: int, passed: int, k: int) -> float:
    """Return the chance that all of k attempts pass: ``C(c, k) / C(n, k)`` (Yao et al. 2024, arXiv:2406.12045)."""
    _check_counts(attempts, passed, k)
    return math.comb(passed, k) / math.comb(attempts, k)


def fisher_test(lost_one: int, made_one: int, lost_other: int, made_other: int) -> float:
    """Return the two-sided p-value of Fisher's exact test (1935) that two sides lose attempts equally often.

    Sum of the hypergeometric probabilities of all tables with these margins that are no likelier than the observed one.
    """
    lost, made = lost_one + lost_other, made_one + made_other
    whole = _log_comb(made, lost)
    tables = range(max(0, lost - made_other), min(lost, made_one) + 1)
    logs = [_log_comb(made_one, count) + _log_comb(made_other, lost - count) - whole for count in tables]
    seen = logs[lost_one - tables.start] + _TIE
    return min(1.0, math.fsum(math.exp(log) for log in logs if log <= seen))


def _log_comb(n: int, k: int) -> float:
    # With logarithms, because binomials of a large sweep overflow a float.
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def mean_at_k(groups: Sequence[Sequence[float]], k: int) -> float:
    """Return the mean over items of each one's first k rewards. Raises ``ValueError`` for no item and for fewer rewards."""
    if k < 1 or any(len(group) < k for group in groups):
        raise ValueError(f"mean@{k} needs k of at least 1 and at least k rewards for each item")
    return _mean([_mean(group[:k]) for group in groups])


def _check_counts(attempts: int, passed: int, k: int) -> None:
    if not (1 <= k <= attempts and 0 <= passed <= attempts):
        raise ValueError(f"attempts={attempts}, passed={passed}, k={k}: needs 1 <= k <= n and 0 <= passed <= n")


def _mean(values: Sequence[float]) -> float:
    if not len(values):
        raise ValueError("nothing was scored")
    if not all(map(math.isfinite, values)):
        raise ValueError("only finite values have a mean")
    return fmean(values)


@dataclass(frozen=True, slots=True)
class Capital:
    """Evidence that the libraries of a task are better than no lessons: betting at constant stakes on that side.

    Each gambler starts with 1 and multiplies it by ``1 + stake * d`` with every paired difference d; the value is
    the mean over the gamblers, an e-value: 1 is no evidence, 20 is evidence at 5 %. It is never started anew.

    Assumption: each library depends on the past only, and was not learned from the pairs it is measured with. Under "on
    these items no library is better than no lessons on average", a sweep of n of all N items multiplies a gambler's capital
    by e_n / C(N, n) on average, with e_n the elementary symmetric polynomial of the factors ``1 + stake * mu_i``. By
    Maclaurin's inequality that is at most 1, so by Ville's the expected capital ever reaches 1/alpha with probability at
    most alpha, however unequal the items. What is proven is about the libraries of all nights and these items.
    """

    logs: tuple[float, ...] = (0.0,) * _GAMBLERS

    def after(self, differences: Sequence[float]) -> Capital:
        """Return the capital after these differences, in any order. They lie in ``[-1, 1]``, else ``ValueError``."""
        # Sorted: the sum of the logarithms, and so a resumed run, does not depend on the order.
        data = np.sort(np.asarray(differences, dtype=np.float64))
        if not bool(np.all(np.abs(data) <= 1)):
            raise ValueError("every difference must lie between -1 and 1")
        growth = np.log1p(_STAKES[:, None] * data).sum(axis=1)
        return Capital(tuple((np.asarray(self.logs) + growth).tolist()))

    @property
    def log_value(self) -> float:
        """Natural logarithm of the mean capital."""
        # Relative to the richest gambler, whose capital may be too large for a float.
        logs = np.asarray(self.logs)
        return float(logs.max() + np.log(np.exp(logs - logs.max()).mean()))

    def reaches(self, confidence: float) -> bool:
        """Return whether the value is at least ``1 / (1 - confidence)``."""
        return self.log_value >= -math.log1p(-confidence)
