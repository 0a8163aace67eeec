"""Means, standard errors, bootstrap intervals and k-attempt metrics. An empty input is an error, never a zero."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

_COUNTS_AT_ONCE: Final = 50_000
"""Counts of draws that a bootstrap keeps in memory."""
_TIE: Final = 1e-7
"""Tolerance of log probabilities: tables as likely as the observed one, up to rounding, count."""
Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval, in the units of the values."""

    estimate: float
    low: float
    high: float
    n: int
    """Number of values or pairs."""
    confidence: float


@dataclass(frozen=True, slots=True)
class MeanEstimate:
    """A mean with its standard error; ``se`` is None for a single value or cluster."""

    mean: float
    se: float | None
    n: int


def mean_and_error(values: Sequence[float], clusters: Sequence[Hashable] | None = None) -> MeanEstimate:
    """Return the mean and its standard error ``s / sqrt(n)``, with the sample standard deviation.

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


def bootstrap_interval(
    groups: Sequence[Sequence[float]], *, seed: int, confidence: float = 0.95, resamples: int = 2000
) -> Interval:
    """Return the percentile bootstrap interval of the mean of the items' means (Efron & Tibshirani 1993, chapter 13).

    Whole items are drawn with replacement, so that attempts at one item stay together. ``groups``: the scored rewards of
    each item. Raises ``ValueError`` for no item, and for one without a score.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; accepted: between 0 and 1")
    means = np.asarray([_mean(group) for group in groups])
    if not means.size or resamples < 1:
        raise ValueError("a bootstrap needs at least one item and one resample")
    generator = np.random.default_rng(seed)
    chances = np.full(means.size, 1 / means.size)
    # In chunks: all counts of all resamples would take megabytes. The generator's numbers are the same.
    rows = max(1, _COUNTS_AT_ONCE // means.size)
    chunks = (min(rows, resamples - done) for done in range(0, resamples, rows))
    resampled = np.concatenate([generator.multinomial(means.size, chances, size=size) @ means for size in chunks])
    tail = (1 - confidence) / 2
    low, high = np.quantile(resampled / means.size, [tail, 1 - tail])
    return Interval(float(means.mean()), float(low), float(high), int(means.size), confidence)


def pass_at_k(attempts: int, passed: int, k: int) -> float:
    """Return the probability that at least one of k attempts passes: ``1 - C(n - c, k) / C(n, k)``.

    The unbiased estimator of Chen et al. (2021, arXiv:2107.03374). Raises ``ValueError`` unless ``1 <= k <= attempts``
    and ``0 <= passed <= attempts``.
    """
    _check_counts(attempts, passed, k)
    return 1.0 - math.comb(attempts - passed, k) / math.comb(attempts, k)


def pass_hat_k(attempts: int, passed: int, k: int) -> float:
    """Return the probability that all of k attempts pass: ``C(c, k) / C(n, k)`` (Yao et al. 2024, arXiv:2406.12045).

    Raises ``ValueError`` like ``pass_at_k``.
    """
    _check_counts(attempts, passed, k)
    return math.comb(passed, k) / math.comb(attempts, k)


def fisher_test(lost_one: int, made_one: int, lost_other: int, made_other: int) -> float:
    """Return the two-sided p-value of Fisher's exact test (1935) that two sides lose attempts equally often.

    Sum of the hypergeometric probabilities of all tables with these margins that are no likelier than the observed one;
    1.0 if no attempt or every attempt was lost.
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
    """Return the mean over items of the mean of each item's first k rewards.

    Raises ``ValueError`` for no item, and for one with fewer than k rewards.
    """
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
