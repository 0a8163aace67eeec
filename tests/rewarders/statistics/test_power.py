"""The gain that planned nights put into force: known answers, monotony, and the power that simulations have."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from tfgrpo.rewarders.statistics.credit import (
    LESSONS,
    MIXED,
    POINTS,
    RULES,
    SETTLED,
    SUPPORT,
    Evidence,
    HeldOut,
    PlannedNight,
    evidence,
    gains_in_force,
    posterior,
    row_weight,
)

NIGHT = PlannedNight(groups=200, halves=(2, 2), swept=43, attempts=2)


def test_without_noise_the_gain_is_what_the_held_out_prior_asks_for_and_without_a_sweep_there_is_none():
    assert gains_in_force(PlannedNight(500, (2, 2), 0, 2), SETTLED, (1, 5)) == (None, None)
    assert gains_in_force(PlannedNight(500, (2, 2), 1, 1), MIXED, (1,)) == (None,)
    much = PlannedNight(groups=10**9, halves=(2, 2), swept=10**9, attempts=2)
    (gain,) = gains_in_force(much, MIXED, (1,))
    assert gain is not None
    assert gain < 0.01
    # One attempt at one item: the posterior mean of the gain has to be half of its standard deviation.
    one = PlannedNight(groups=1, halves=(1, 1), swept=1, attempts=1)
    (gain,) = gains_in_force(one, 0.02, (1,), power=0.5)
    prior, noise = RULES.held_sd**2 + RULES.held_drift**2, POINTS**2 * 0.04
    share = prior / (prior + noise)
    assert gain == pytest.approx(RULES.enter_held * ((1 - share) * prior) ** 0.5 / share, rel=0.05)


def test_more_items_more_attempts_more_nights_and_less_noise_need_smaller_gains():
    gains = [
        *gains_in_force(NIGHT, MIXED, (1, 2, 5, 10)),
        *gains_in_force(PlannedNight(200, (2, 2), 43, 5), SETTLED, (10,)),
        *gains_in_force(PlannedNight(800, (4, 4), 200, 5), SETTLED, (10,)),
    ]
    assert all(one and other and one > other for one, other in pairwise(gains))
    (four_of_five,), (nine_of_ten,) = (gains_in_force(NIGHT, MIXED, (1,), power=power) for power in (0.8, 0.9))
    assert four_of_five
    assert nine_of_ten
    assert nine_of_ten > four_of_five


@pytest.mark.parametrize(
    ("night", "variance"), [(NIGHT, SETTLED), pytest.param(PlannedNight(60, (1, 1), 12, 5), 0.12, marks=pytest.mark.slow)]
)
def test_simulated_tasks_with_the_posterior_itself_need_the_same_gains_within_a_tenth(night, variance):
    assert gains_in_force(night, variance, (1, 5)) == pytest.approx(_simulated(night, variance, (1, 5)), rel=0.1)


def _simulated(planned: PlannedNight, variance: float, nights: Sequence[int], tasks: int = 400) -> list[float]:
    """Return the gains with which four of five simulated tasks have a library in force within the nights.

    Batches of 25 groups, three divisions of the lessons in each. Posterior means are linear in the gain, and deviations do
    not depend on it: each task is computed at two gains, with the same noise.
    """
    rng = np.random.default_rng(7)
    weight, sweep = row_weight(*planned.halves), row_weight(planned.attempts, planned.attempts)
    divisions = max(1, planned.groups // 25) * RULES.designs
    weights = np.full(divisions, weight * planned.groups / divisions)
    smallest = np.full((tasks, max(nights)), np.inf)
    for task in range(tasks):
        rows, held_out = [Evidence(np.zeros((LESSONS, LESSONS)), np.zeros(LESSONS))] * 2, [HeldOut.before()] * 2
        for night in range(max(nights)):
            sides = np.where(rng.random((divisions, LESSONS)) < 0.5, 1.0, -1.0)
            noise = rng.standard_normal(divisions) * np.sqrt(variance / weights)
            noise_of_sweep = rng.standard_normal(planned.swept) * np.sqrt(variance / sweep)
            effects = []
            for at, gain in enumerate((0.0, 1.0)):
                difference = sides.sum(axis=1) * gain / LESSONS / POINTS + noise
                swept = gain / POINTS + noise_of_sweep
                learned = evidence(sides, difference, weights)
                of_sweep = evidence(np.ones((1, LESSONS)), np.array([swept.mean()]), np.array([planned.swept * sweep]))
                sums = zip(rows[at], learned, of_sweep, strict=True)
                rows[at] = Evidence(*(RULES.row_memory * old + new + more for old, new, more in sums))
                held_out[at] = held_out[at].after(swept.tolist())
                total = posterior(rows[at], np.full(LESSONS, SUPPORT), variance).total(range(LESSONS))
                effects.append((total, held_out[at].gain))
            limits = zip(*effects, (RULES.enter, RULES.enter_held), strict=True)
            entering = max((limit * at_0.sd - at_0.mean) / (at_1.mean - at_0.mean) for at_0, at_1, limit in limits)
            smallest[task, night:] = np.minimum(smallest[task, night:], entering)
    return [float(np.quantile(smallest[:, night - 1], 0.8)) for night in nights]
