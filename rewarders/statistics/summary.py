"""Means, standard errors and bootstrap intervals. An empty input is an error, never a zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

_COUNTS_AT_ONCE: Final = 50_000
"""Counts of draws that a bootstrap keeps in memory."""
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
    """A mean with its standard error; ``se`` is None for a single value."""

    mean: float
    se: float | None
    n: int


def mean_and_error(values: Sequence[float]) -> MeanEstimate:
    """Return the mean and its standard error ``s / sqrt(n)``, with the sample standard deviation.

    Raises ``ValueError`` for no value, and for one that is not finite.
    """
    mean, count = _mean(values), len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return MeanEstimate(mean, None if count == 1 else math.sqrt(squares / (count - 1) / count), count)


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


def _mean(values: Sequence[float]) -> float:
    if not len(values):
        raise ValueError("nothing was scored")
    if not all(map(math.isfinite, values)):
        raise ValueError("only finite values have a mean")
    return fmean(values)
