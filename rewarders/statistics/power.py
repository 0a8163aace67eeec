"""Smallest gain that planned evidence shows with a given power."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from tfgrpo.rewarders.statistics.sequential import STAKES, log_average

SETTLED: Final = 0.07
"""Variance of one attempt at an item, as a share of the squared range, where most items are always right or always wrong:
p (1 - p) on average for success probabilities p of a Beta(0.2, 0.2) distribution."""
MIXED: Final = 0.2
"""The same where most items are right at times: Beta(2, 2). The most there is is 0.25."""
_STEPS: Final = 40
"""Bisection steps."""


@dataclass(frozen=True, slots=True)
class PlannedPairs:
    """Items that both libraries attempt."""

    items: int
    champion: int
    """Attempts of each at one item."""
    candidate: int


def smallest_gain(
    planned: Sequence[PlannedPairs], variance: float, *, confidence: float = 0.95, power: float = 0.8
) -> float | None:
    """Return the true gain, as a share of the range, at which a ``Capital`` reaches its threshold with this power.

    ``variance`` is that of one attempt at an item, as a share of the squared range. None if these pairs show no gain.

    Approximation: the sum of the differences is at its lower ``1 - power`` quantile, as of a normal distribution; then a
    gambler's log capital is the one of differences of zero and of plus or minus one over the root of the attempts.
    Within a tenth of simulations (``tests``).

    >>> round(smallest_gain([PlannedPairs(100, 5, 5)], MIXED), 2)
    0.1
    """
    pairs = [each for each in planned if each.items]
    low, high = 0.0, 1.0
    if not _seen(pairs, high, 0.0, confidence, power):
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if _seen(pairs, middle, variance, confidence, power) else (middle, high)
    return high


def _seen(pairs: Sequence[PlannedPairs], gain: float, variance: float, confidence: float, power: float) -> bool:
    noise = [variance * (1 / each.champion + 1 / each.candidate) for each in pairs]
    total = math.sqrt(sum(each.items * of_item for each, of_item in zip(pairs, noise, strict=True)))
    quantile = NormalDist().inv_cdf(power)
    logs = np.zeros_like(STAKES)
    for each, of_item in zip(pairs, noise, strict=True):
        mean = gain - (quantile * of_item / total if total else 0.0)
        jump = math.sqrt((1 / each.champion + 1 / each.candidate) / 2)
        bets = STAKES * jump
        squares = (of_item + mean * mean) / jump**2
        logs += each.items * (squares / 2 * np.log1p(-bets * bets) + mean / jump * np.arctanh(bets))
    return float(log_average(logs)) >= -math.log1p(-confidence)
