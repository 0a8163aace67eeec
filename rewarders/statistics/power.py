"""Gain over no lessons that planned nights put into force with a given power."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tfgrpo.rewarders.statistics.credit import POINTS, RULES, Rules, row_weight

SETTLED: Final = 0.07
"""Variance of one attempt at an item, as a share of the squared range, where most items are always right or always wrong:
p (1 - p) on average for success probabilities p of a Beta(0.2, 0.2) distribution."""
MIXED: Final = 0.2
"""The same where most items are right at times: Beta(2, 2). The most there is is 0.25."""
LESSONS: Final = 8
"""Lessons that share the gain evenly."""
SUPPORT: Final = 1.0
"""Of each of them: that of ten contrasts in its favour, which it has after a night or two."""
_TASKS: Final = 4_000


@dataclass(frozen=True, slots=True)
class PlannedNight:
    """What is measured in one night."""

    groups: int
    """Learning groups."""
    halves: tuple[int, int]
    """Attempts of such a group on each side."""
    swept: int
    """Held-out items."""
    attempts: int
    """Attempts of each side at one of them."""


def gains_in_force(
    planned: PlannedNight, variance: float, nights: Sequence[int], *, power: float = 0.8, rules: Rules = RULES
) -> tuple[float | None, ...]:
    """Return the true total gain, in points, that has come into force within so many nights, for each number of nights.

    ``variance`` is that of one attempt at an item, as a share of the squared range. None: no gain of at most 100 points.

    Approximation: the lessons are on trial from the start, alone, of equal effect and support, and all of them are swept.
    Both statistics of ``comes_into_force`` are then sums of normal noise and a multiple of the gain, so each of 4,000 tasks
    has a smallest gain with which it has entered by a night, and the answer is a quantile of these. A sweep of weight w
    informs the total by w. Rows of random halves inform it only through the single lessons, since each is one half minus
    the other: by w over their number. Left out: lost attempts, gains that differ by item, the choice of the lessons by the
    same rows, and that few divisions leave the lessons entangled. Within a tenth of simulations with the posterior itself
    (``tests``): what decides is the condition on held-out items, which these do not touch.

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
