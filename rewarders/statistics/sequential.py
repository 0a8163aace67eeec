"""A confidence sequence of a mean difference, and the evidence of all sweeps, which grows over nights.

The confidence sequence is the interval of the mean of bounded paired differences, valid at every look.
The method is the hedged capital process with constant bets on a grid of Waudby-Smith & Ramdas (2024), "Estimating means
of bounded random variables by betting", JRSS-B 86(1), arXiv:2010.09686. For a candidate mean m, gamblers with different
fixed stakes bet that the data lie above m, and as many that they lie below. The interval contains every m against which
their average capital is below 1/alpha. Because stakes are constant, the capital does not depend on the order of the
data; and the sample mean is always inside.

Assumption: the differences are bounded and come from whole sweeps of one fixed set of items, drawn independently given
the item. No distribution is assumed, items may be as unequal as they like, and no difference needs to have the same mean
as the others. Over a sweep a gambler's capital is multiplied by the product of 1 + lambda * d_i, whose expectation is the
product of 1 + lambda * mu_i. By the inequality of arithmetic and geometric means that is at most (1 + lambda * mu)^n, with
mu the mean of the mu_i over these items, hence at most 1 where mu is at most 0. So the average capital starts at 1, has an
expectation of at most 1 after every sweep, and by Ville's inequality ever reaches 1/alpha with probability at most alpha.
This binds the stakes to be constant and the looks to fall at the ends of sweeps; and the guarantee is for these items, not
for others like them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tfgrpo.rewarders.statistics.summary import Floats, Interval

_GAMBLERS: Final = 32
"""On each side, with evenly spaced stakes between 0 and 1."""
STAKES: Final[Floats] = (np.arange(_GAMBLERS) + 0.5) / _GAMBLERS
_HALVINGS: Final = 45
"""Bisection steps: ends are exact to about 1e-13 of the range, rounded outward."""
_EDGE: Final = 1e-12


def paired_confidence_sequence(
    differences: Sequence[float], confidence: float = 0.95, *, bound: float = 1.0
) -> Interval:
    """Return the interval of the mean difference, valid simultaneously at the end of every sweep.

    ``differences`` lie in ``[-bound, bound]``, in any order. Raises ``ValueError`` for none, for one outside, and for a
    ``confidence`` that is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; accepted: between 0 and 1")
    unit = _unit_scale(differences, bound)
    values, counts = np.unique(unit, return_counts=True)
    centre = min(1 - _EDGE, max(_EDGE, float(unit.mean())))
    threshold = -math.log1p(-confidence)
    low = _end(values, counts, centre, 0.0, threshold)
    high = _end(values, counts, centre, 1.0, threshold)
    estimate = math.fsum(differences) / len(differences)
    return Interval(
        estimate,
        min(estimate, (2 * low - 1) * bound),
        max(estimate, (2 * high - 1) * bound),
        len(differences),
        confidence,
    )


@dataclass(frozen=True, slots=True)
class Capital:
    """Evidence that the libraries of a task are better than no lessons: betting at constant stakes on that side.

    Each gambler starts with 1 and multiplies it by ``1 + stake * d / bound`` with every paired difference d; the value is
    the mean over the gamblers, an e-value: 1 is no evidence, 20 is evidence at 5 %. It is never started anew.

    Assumption: each library depends on the past only, and was not learned from the pairs it is measured with. Under "on
    these items no library is better than no lessons on average", one sweep of n items, drawn at random without replacement
    from all N, multiplies a gambler's capital by e_n / C(N, n) on average, with e_n the elementary symmetric polynomial of
    the factors ``1 + stake * mu_i``. By Maclaurin's inequality that is at most their mean to the power n, hence at most 1. So
    the expected capital never exceeds 1, and by Ville's inequality it ever reaches 1/alpha with probability at most alpha,
    however unequal the items. What is proven is about the libraries of all nights and these items, not the last library
    alone or other items.
    """

    logs: tuple[float, ...] = (0.0,) * _GAMBLERS
    """Log capital of each gambler, in the order of the stakes."""

    def after(self, differences: Sequence[float], *, bound: float = 1.0) -> Capital:
        """Return the capital after these differences, in any order. They lie in ``[-bound, bound]``, else ``ValueError``."""
        if not len(differences):
            return self
        unit = 2 * np.sort(_unit_scale(differences, bound)) - 1
        growth = np.log1p(STAKES[:, None] * unit).sum(axis=1)
        return Capital(tuple((np.asarray(self.logs) + growth).tolist()))

    @property
    def log_value(self) -> float:
        """Natural logarithm of the mean capital."""
        return float(log_average(np.asarray(self.logs)))

    def reaches(self, confidence: float) -> bool:
        """Return whether the value is at least ``1 / (1 - confidence)``."""
        return self.log_value >= -math.log1p(-confidence)


def _unit_scale(differences: Sequence[float], bound: float) -> Floats:
    if not (math.isfinite(bound) and bound > 0):
        raise ValueError(f"bound is {bound}; accepted: a finite number above 0")
    if not len(differences):
        raise ValueError("no pairs to compare")
    data = np.asarray(differences, dtype=np.float64)
    if not bool(np.all(np.abs(data) <= bound)):
        raise ValueError(f"every difference must lie between {-bound} and {bound}")
    return (data / bound + 1) / 2


def _log_returns(values: Floats, mean: float) -> Floats:
    """Return the log return of every gambler on every value, shape ``(2 * gamblers, n)``: those on *above* first."""
    stakes = STAKES[:, None]
    above = np.log1p(stakes * (values / mean - 1))
    below = np.log1p(stakes * ((1 - values) / (1 - mean) - 1))
    return np.concatenate([above, below])


def log_average(log_capitals: Floats) -> Floats:
    """Return the log of the average over gamblers (first axis), without overflow."""
    peak = log_capitals.max(axis=0)
    return np.asarray(peak + np.log(np.exp(log_capitals - peak).mean(axis=0)), dtype=np.float64)


def _end(values: Floats, counts: npt.NDArray[np.int64], centre: float, edge: float, threshold: float) -> float:
    """Return the m towards ``edge`` at which the capital, convex and at most 1 at the sample mean, reaches the threshold."""

    def rejected(mean: float) -> bool:
        return float(log_average(_log_returns(values, mean) @ counts)) >= threshold

    outside = abs(edge - _EDGE)
    if not rejected(outside):
        return edge
    inside = centre
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if rejected(middle) else (middle, outside)
    return outside
