"""Effects of single lessons, all estimated at once from groups that ran under random halves of them.

A measuring group attempts one item under a random half of the lessons and under the other half (fold-over), so that the
item cancels in the difference of the two means. That difference is regressed on membership, +1 or -1 per lesson: ridge
regression, or a normal prior on every effect (Hoerl & Kennard 1970), with the weight of older nights discounted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import Final

import numpy as np

from tfgrpo.rewarders.statistics.summary import Floats, Interval

PRIOR_SD: Final = 0.04
"""Standard deviation of the effects before any measurement, as a share of the range of the reward."""
DISCOUNT: Final = 0.9
"""Weight of a night's measurements one night later."""
HARMFUL: Final = 0.9
"""Probability of harm above which a lesson is retired."""
ONCE_PROVEN: Final = 1 / 3
"""Part of the measuring groups that a night has once the candidates are proven better than no lessons."""
_PRIOR_COUNT: Final = 4.0
"""Attempts that the noise is judged by before any, of the greatest variance that a reward in its range can have; and groups
that the fit is judged by before any."""


@dataclass(frozen=True, slots=True)
class MeasuredGroup:
    """The attempts of one item under a half of the lessons and under the other half."""

    drawn: frozenset[str]
    complement: frozenset[str]
    with_drawn: tuple[float, ...]
    """Rewards of the scored attempts under the drawn half."""
    with_complement: tuple[float, ...]
    night: int

    @property
    def counts(self) -> bool:
        """Whether both halves have a scored attempt."""
        return bool(self.with_drawn and self.with_complement)

    @property
    def difference(self) -> float:
        """Mean under the drawn half minus mean under the other."""
        return fmean(self.with_drawn) - fmean(self.with_complement)

    @property
    def attempts(self) -> float:
        """Attempts of two equal halves whose difference would have the same error: twice the harmonic mean."""
        return 4.0 / (1.0 / len(self.with_drawn) + 1.0 / len(self.with_complement))


@dataclass(frozen=True, slots=True)
class Effect:
    """What one lesson in the prompt does to the reward, in units of the reward."""

    mean: float
    sd: float
    """Of the normal distribution that prior and measurements leave."""
    rollouts: int
    """Scored attempts with and without the lesson."""

    @property
    def harm(self) -> float:
        """Probability that the effect is below zero."""
        return NormalDist(self.mean, self.sd).cdf(0.0)

    def interval(self, confidence: float = 0.95) -> Interval:
        """Return the central interval of that probability."""
        half = self.sd * NormalDist().inv_cdf(0.5 + confidence / 2)
        return Interval(self.mean, self.mean - half, self.mean + half, self.rollouts, confidence)


def lesson_effects(groups: Sequence[MeasuredGroup], night: int, *, spread: float = 1.0) -> dict[str, Effect]:
    """Return the effect of every lesson in these groups by id, as of a night; ``spread`` is the range of the reward.

    Groups without a scored attempt in one of the halves count for nothing. The noise is the variance within halves,
    pooled over all groups, and larger where the regression fits worse than that (quasi-likelihood, Wedderburn 1974):
    lessons that help on some items only are less certain.

    >>> groups = [MeasuredGroup(frozenset({"a"}), frozenset({"b"}), (1.0, 1.0, 0.0), (0.0, 1.0, 0.0), 0)] * 50
    >>> effects = lesson_effects(groups, 0)
    >>> effects["a"].mean > 0 > effects["b"].mean
    True
    """
    counted = [group for group in groups if group.counts]
    names = sorted({name for group in counted for name in group.drawn | group.complement})
    if not names:
        return {}
    membership = np.array([[(name in one.drawn) - float(name in one.complement) for name in names] for one in counted])
    differences = np.array([group.difference for group in counted])
    # The variance of a difference of halves of n and m attempts is s^2 (1 / n + 1 / m), which is 4 s^2 / attempts.
    precisions = np.array([group.attempts / 4.0 for group in counted])
    weights = precisions * [DISCOUNT ** max(0, night - group.night) for group in counted]
    noise = _noise(counted, spread)
    covariance = _covariance(membership, weights, noise, spread)
    means = covariance @ (membership.T @ (weights * differences)) / noise
    residuals = differences - membership @ means
    freedom = len(counted) - float(np.sum(covariance * (membership.T @ (weights[:, None] * membership)).T)) / noise
    misfit = float(np.sum(residuals**2 * precisions)) / noise
    worse = (misfit + _PRIOR_COUNT) / (max(freedom, 0.0) + _PRIOR_COUNT)
    if worse > 1.0:
        noise *= worse
        covariance = _covariance(membership, weights, noise, spread)
        means = covariance @ (membership.T @ (weights * differences)) / noise
    errors = np.sqrt(np.diag(covariance))
    made = (membership != 0).T @ np.array([len(one.with_drawn) + len(one.with_complement) for one in counted])
    return {
        name: Effect(float(mean), float(error), int(rollouts))
        for name, mean, error, rollouts in zip(names, means, errors, made, strict=True)
    }


def _covariance(membership: Floats, weights: Floats, noise: float, spread: float) -> Floats:
    information = membership.T @ (weights[:, None] * membership) / noise
    prior = np.eye(membership.shape[1]) / (PRIOR_SD * spread) ** 2
    return np.asarray(np.linalg.inv(information + prior), dtype=np.float64)


def _noise(groups: Sequence[MeasuredGroup], spread: float) -> float:
    """Return the variance of one attempt around the mean of its half."""
    halves = [half for group in groups for half in (group.with_drawn, group.with_complement)]
    squares = math.fsum((reward - fmean(half)) ** 2 for half in halves for reward in half)
    freedom = sum(len(half) - 1 for half in halves)
    return (squares + _PRIOR_COUNT * spread**2 / 4.0) / (freedom + _PRIOR_COUNT)
