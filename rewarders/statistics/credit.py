"""One posterior of what each lesson is worth, from differences between the random halves of groups.

A *row* is the difference of two mean rewards at one item: ``one`` side carried some lessons that the ``other`` did not, and
the other way round: ``difference = sum(effect[one]) - sum(effect[other]) + noise``, with ``effect = word * support + own``.
``support`` is what reflections say of a lesson, ``word`` is what their saying so is worth with this model and these tasks,
and ``own`` is what is special about the lesson. Both have normal priors, so this is one ridge regression (Hoerl & Kennard
1970), or Bayesian linear regression with a shared slope (Lindley & Smith 1972).

Rewards are shares of their declared range, from 0 to 1. Effects are in *points*, hundredths of it.

Example:
    >>> import numpy as np
    >>> half = np.array([[1, 1, -1]])  # the first side carried lessons 0 and 1, the second carried lesson 2
    >>> rows = evidence(np.repeat(half, 200, axis=0), np.full(200, 0.06), np.full(200, row_weight(2, 2)))
    >>> effects = posterior(rows, support(np.array([8.0, 3.0, 1.0])))
    >>> effects.total([0, 1]).likely > effects.total([2]).likely
    True
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import Final, NamedTuple

import numpy as np

from tfgrpo.rewarders.statistics.summary import FloatArray, Interval

POINTS: Final = 100.0
SETTLED: Final = 0.07
"""Variance of one attempt at an item, as a share of the squared range, where success probabilities are Beta(0.2, 0.2)."""
MIXED: Final = 0.2
"""The same where most items are right at times: Beta(2, 2). The most there is is 0.25."""
LESSONS: Final = 8
"""Lessons that share the gain evenly."""
SUPPORT: Final = 1.0
"""Support of each of them: that of ten contrasts in its favour, which it has after a night or two."""
_TASKS: Final = 4_000
# Degrees of freedom that the first variance counts for
_PRIOR_FREEDOM: Final = 4.0
# Decimals of a mean in points: what differs by the order of a sum is equal, and nothing is above zero by rounding alone
_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class Rules:
    """Every constant of learning. Points unless said otherwise; none of them is a setting."""

    designs: int = 3
    """Divisions of the lessons into two halves in one batch: few, so that prompts keep a common beginning."""
    contrasts: int = 2
    across: float = 0.5
    """Support of a judgement on two attempts of different halves."""

    net_scale: float = 10.0
    """Net contrasts in favour of a lesson that are one unit of support."""
    most_support: float = 1.5
    most_net: float = 20.0
    """Net contrasts that are carried over to the next night, in either direction."""
    net_memory: float = 0.8
    """Share of the net contrasts that is left one night later."""

    word_mean: float = 1.5
    word_sd: float = 2.0
    own_mean: float = -0.3
    """The price of carrying any lesson."""
    own_sd: float = 0.75
    row_memory: float = 0.9
    first_variance: float = 0.12
    """Variance of one attempt, in squared shares of the range, before any night."""
    least_variance: float = 0.02

    held_sd: float = 3.0
    """Standard deviation of the gain on held-out items, before any sweep."""
    held_drift: float = 0.5
    """Standard deviation of the change of that gain in one night."""
    held_break: float = 3.0
    """Standard deviations below their promise at which the nights before count no more: the model or library is another."""

    slots: int = 12
    """Lessons on trial, the best ones, whether or not they are worth more than nothing: else they would never get a row."""
    sure: float = 0.5
    """Standard deviations above zero of a lesson that needs no slot: a probability of 7 in 10."""
    most_on_trial: int = 40
    enter: float = 1.65
    """Standard deviations above zero of the total of a library in force: a probability of 19 to 1."""
    enter_held: float = 0.5
    """The same of the gain on held-out items: 7 to 3."""


RULES: Final = Rules()


class Effect(NamedTuple):
    """A normal distribution of an effect, in points."""

    mean: float
    sd: float

    @property
    def z(self) -> float:
        """Mean over standard deviation; 0 where nothing is in question."""
        return self.mean / self.sd if self.sd else 0.0

    @property
    def likely(self) -> float:
        """Probability that the effect is above zero."""
        return NormalDist().cdf(self.z)

    def interval(self, attempts: int, confidence: float = 0.95) -> Interval:
        """Return the central interval of that probability; ``attempts`` is how many were compared."""
        half = self.sd * NormalDist().inv_cdf(0.5 + confidence / 2)
        return Interval(self.mean, self.mean - half, self.mean + half, attempts, confidence)


class Evidence(NamedTuple):
    """Sums over rows, by lesson: all that a posterior needs of them."""

    gram: FloatArray
    moment: FloatArray


def row_weight(one: int, other: int) -> float:
    """Return the inverse variance, in attempts, of a difference of means. Raises ``ValueError`` for a side without any."""
    if one < 1 or other < 1:
        raise ValueError(f"{one} and {other} scored attempts: a row needs at least one on each side")
    return 1.0 / (1.0 / one + 1.0 / other)


def evidence(membership: FloatArray, differences: FloatArray, weights: FloatArray) -> Evidence:
    """Return the evidence of rows, in any order. ``differences``: first side minus second; ``weights``: of ``row_weight``.

    ``membership``, of shape ``(rows, lessons)``: 1 where only the first side carried the lesson, -1 where only the second.
    """
    weighted = membership.T * weights
    return Evidence(np.asarray(weighted @ membership, dtype=np.float64), np.asarray(weighted @ differences))


def support(net: FloatArray, rules: Rules = RULES) -> FloatArray:
    """Return the support of lessons with so many net contrasts in their favour."""
    return np.clip(net / rules.net_scale, -rules.most_support, rules.most_support)


def aged_net(net: FloatArray, rules: Rules = RULES) -> FloatArray:
    """Return the net contrasts that are left one night later."""
    return rules.net_memory * np.clip(net, -rules.most_net, rules.most_net)


class Differences(NamedTuple):
    """Sums over rows with equal lessons, which are all that is kept of them (Chan, Golub & LeVeque 1983)."""

    rows: int = 0
    weight: float = 0.0
    mean: float = 0.0
    """Weighted mean of the differences, first side minus second, as a share of the range."""
    squares: float = 0.0
    """Weighted squares of the deviations from the mean."""

    def after(self, one: Sequence[float], other: Sequence[float]) -> Differences:
        """Return the sums with another row: the scored rewards of each side, which may be none."""
        if not one or not other:
            return self
        weight = row_weight(len(one), len(other))
        apart, share = fmean(one) - fmean(other) - self.mean, weight / (self.weight + weight)
        squares = self.squares + self.weight * share * apart**2
        return Differences(self.rows + 1, self.weight + weight, self.mean + share * apart, squares)


def differences_of(rows: Iterable[tuple[Hashable, Sequence[float], Sequence[float]]]) -> dict[Hashable, Differences]:
    """Return the sums by what rows have in common, given with the scored rewards of each side."""
    sums: dict[Hashable, Differences] = defaultdict(Differences)
    for lessons, one, other in rows:
        sums[lessons] = sums[lessons].after(one, other)
    return sums


def attempt_variance(every: Iterable[Differences], rules: Rules = RULES) -> float:
    """Return the variance of one attempt: what the differences of rows with equal lessons scatter by, pooled."""
    # Attempts at one item with one prompt would say too little: where an endpoint caches, they are all alike.
    squares, freedom = _PRIOR_FREEDOM * rules.first_variance, _PRIOR_FREEDOM
    for alike in every:
        squares += alike.squares
        freedom += max(0, alike.rows - 1)
    return max(rules.least_variance, squares / freedom)


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """The effects of all lessons, jointly normal, in points."""

    mean: FloatArray
    covariance: FloatArray
    word: Effect
    """Effect of one unit of support: near zero where reflections are noise."""

    def total(self, lessons: Sequence[int]) -> Effect:
        """Return the sum of the effects of these lessons: what a library of them is worth over no lessons."""
        chosen = list(lessons)
        variance = float(self.covariance[np.ix_(chosen, chosen)].sum())
        return Effect(float(self.mean[chosen].sum()), math.sqrt(max(0.0, variance)))

    def of(self, lessons: Sequence[int]) -> Posterior:
        """Return the effects of these lessons alone, in this order."""
        return Posterior(self.mean[list(lessons)], self.covariance[np.ix_(lessons, lessons)], self.word)

    def effects(self) -> list[Effect]:
        """Return the effect of each lesson."""
        deviations = np.sqrt(np.diag(self.covariance))
        return [Effect(*one) for one in zip(self.mean.tolist(), deviations.tolist(), strict=True)]


def posterior(rows: Evidence, supported: FloatArray, variance: float | None = None, rules: Rules = RULES) -> Posterior:
    """Return the posterior of the effects after these rows; ``variance`` is that of one attempt, None before any."""
    noise = POINTS**2 * (rules.first_variance if variance is None else variance)
    lessons = len(supported)
    # From (word, own effects) to effects: a column of support beside the identity.
    to_effects = np.hstack([supported[:, None], np.eye(lessons)])
    precision = np.full(lessons + 1, rules.own_sd**-2.0)
    precision[0] = rules.word_sd**-2.0
    prior_mean = np.full(lessons + 1, rules.own_mean)
    prior_mean[0] = rules.word_mean
    information = to_effects.T @ (rows.gram / noise) @ to_effects + np.diag(precision)
    covariance = np.linalg.inv(information)
    mean = covariance @ (to_effects.T @ (POINTS * rows.moment / noise) + precision * prior_mean)
    word = Effect(float(mean[0]), math.sqrt(float(covariance[0, 0])))
    return Posterior(np.round(to_effects @ mean, _DIGITS), to_effects @ covariance @ to_effects.T, word)


def on_trial(effects: Posterior, net: FloatArray, subjects: Sequence[int], rules: Rules = RULES) -> list[int]:
    """Return the positions of the lessons on trial, the best first.

    These are the best lessons with support or a mean above zero, up to the slots, and beyond them each one that is surely
    worth more than nothing. Lessons of equal ``subjects`` are opposites, of which the better is on trial.
    """
    deviations = np.sqrt(np.diag(effects.covariance))
    better: dict[int, int] = {}
    for at in np.argsort(-effects.mean, kind="stable").tolist():
        # Where a reflection's word is worth less than nothing, what it speaks against is no better for that.
        if net[at] > 0.0 or (effects.mean[at] > 0.0 and effects.word.mean > 0.0):
            better.setdefault(subjects[at], at)
    best = list(better.values())
    beyond = [at for at in best[rules.slots :] if effects.mean[at] > rules.sure * deviations[at]]
    return [*best[: rules.slots], *beyond][: rules.most_on_trial]


def mean_difference(differences: Sequence[float], rules: Rules = RULES) -> Effect:
    """Return the mean of differences by item, shares of the range, in points, with its standard error."""
    # Few items may all be equal by chance, which does not make their mean exact.
    variance = max(rules.least_variance, float(np.var(differences)))
    return Effect(POINTS * fmean(differences), POINTS * math.sqrt(variance / len(differences)))


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The gain over no lessons on held-out items: a normal distribution that follows the sweeps, in points."""

    mean: float
    variance: float
    broke: bool = False
    """Whether the last sweep was too far below what the nights before promised for these to count."""

    @classmethod
    def before(cls, rules: Rules = RULES) -> HeldOut:
        """Return it before any sweep."""
        return cls(0.0, rules.held_sd**2)

    @property
    def gain(self) -> Effect:
        """Return it as an effect."""
        return Effect(self.mean, math.sqrt(self.variance))

    def after(self, differences: Sequence[float], rules: Rules = RULES) -> HeldOut:
        """Return it one night later, after a sweep with these differences by item, shares of the range; none for no sweep."""
        variance = self.variance + rules.held_drift**2
        if not len(differences):
            return HeldOut(self.mean, variance)
        swept, deviation = mean_difference(differences, rules)
        error = deviation**2
        mean, limit = self.mean, self.mean - rules.held_break * math.sqrt(variance + error)
        broke = mean > 0.0 and swept < limit  # what promises nothing cannot be broken
        if broke:
            mean, variance = 0.0, rules.held_sd**2
        share = variance / (variance + error)
        return HeldOut(mean + share * (swept - mean), (1.0 - share) * variance, broke)


def comes_into_force(total: Effect, held_out: Effect, *, by_person: bool = False, rules: Rules = RULES) -> bool:
    """Return whether a library is in force tomorrow; ``by_person``: what a person chose stays while both are above zero."""
    all_rows, held = (0.0, 0.0) if by_person else (rules.enter, rules.enter_held)
    return total.z > all_rows and held_out.z > held


@dataclass(frozen=True, slots=True)
class PlannedNight:
    """What is measured in one night."""

    groups: int
    halves: tuple[int, int]
    swept: int
    attempts: int


def gains_in_force(
    planned: PlannedNight, variance: float, nights: Sequence[int], *, power: float = 0.8, rules: Rules = RULES
) -> tuple[float | None, ...]:
    """Return the true total gain, in points, that has come into force within so many nights, for each number of nights.

    ``variance`` is that of one attempt at an item, as a share of the squared range. None: no gain of at most 100 points.

    Approximation, within a tenth of simulations with the posterior itself (``tests``): the lessons are on trial from the
    start, alone, of equal effect and support, and all of them are swept. Both statistics of ``comes_into_force`` are then
    sums of normal noise and a multiple of the gain, so each of 4,000 tasks has a smallest gain with which it has entered by
    a night, and the answer is a quantile of these. A sweep of weight w informs the total by w, and rows of random halves,
    through the single lessons alone, by w over their number.

    >>> night = PlannedNight(groups=200, halves=(2, 2), swept=43, attempts=2)
    >>> [round(gain) for gain in gains_in_force(night, 0.12, (1, 5, 10))]
    [10, 3, 2]
    """
    if not planned.swept:
        return (None,) * len(nights)
    noise = POINTS**2 * max(variance, rules.least_variance)
    halves = planned.groups * row_weight(*planned.halves) / noise / LESSONS
    sweep = planned.swept * row_weight(planned.attempts, planned.attempts) / noise
    spread = max(POINTS**2 * rules.least_variance / planned.swept, 1 / sweep)
    prior_variance = (LESSONS * SUPPORT * rules.word_sd) ** 2 + LESSONS * rules.own_sd**2
    prior = LESSONS * (SUPPORT * rules.word_mean + rules.own_mean) / prior_variance
    information, moment_noise = 0.0, np.zeros(_TASKS)
    held_mean, held_gain, held_variance = np.zeros(_TASKS), 0.0, rules.held_sd**2
    smallest, by_night = np.full(_TASKS, math.inf), list[float]()
    generator = np.random.default_rng(0)
    for _ in range(max(nights)):
        luck, luck_of_sweep = generator.standard_normal((2, _TASKS))
        information = rules.row_memory * information + halves + sweep
        moment_noise = rules.row_memory * moment_noise + math.sqrt(halves) * luck + math.sqrt(sweep) * luck_of_sweep
        needed = rules.enter * math.sqrt(1 / prior_variance + information) - prior
        held_variance += rules.held_drift**2
        share = held_variance / (held_variance + spread)
        held_mean = held_mean + share * (luck_of_sweep / math.sqrt(sweep) - held_mean)
        held_gain, held_variance = held_gain + share * (1 - held_gain), (1 - share) * held_variance
        needed_held = rules.enter_held * math.sqrt(held_variance)
        entering = np.maximum((needed - moment_noise) / information, (needed_held - held_mean) / held_gain)
        smallest = np.minimum(smallest, entering)
        by_night.append(float(np.quantile(smallest, power)))
    return tuple(max(0.0, gain) if (gain := by_night[night - 1]) <= POINTS else None for night in nights)
