"""The smallest gain that planned evidence shows: known answers, monotony, and the power that simulations have."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from tfgrpo.rewarders.statistics.power import MIXED, SETTLED, PlannedPairs, smallest_gain
from tfgrpo.rewarders.statistics.sequential import Capital
from tfgrpo.rewarders.statistics.summary import Floats


def test_without_noise_the_gain_is_where_the_capital_itself_reaches_its_threshold() -> None:
    gain = smallest_gain([PlannedPairs(100, 1000, 1000)], 0.0)
    assert gain is not None
    assert Capital().after([gain] * 100).log_value == pytest.approx(-math.log(0.05), rel=0.02)


def test_a_handful_of_pairs_shows_no_gain_at_all() -> None:
    assert smallest_gain([PlannedPairs(3, 5, 5)], SETTLED) is None
    assert smallest_gain([], SETTLED) is None


def test_more_items_more_attempts_and_less_noise_show_smaller_gains() -> None:
    gains = [
        smallest_gain([PlannedPairs(100, 2, 2)], MIXED),
        smallest_gain([PlannedPairs(100, 5, 5)], MIXED),
        smallest_gain([PlannedPairs(100, 5, 5)], SETTLED),
        smallest_gain([PlannedPairs(100, 5, 5), PlannedPairs(200, 2, 2)], SETTLED),
        smallest_gain([PlannedPairs(500, 5, 5)], SETTLED),
    ]
    assert all(one and other and one > other for one, other in pairwise(gains))
    stricter = smallest_gain([PlannedPairs(100, 2, 2)], MIXED, confidence=0.99)
    assert stricter is not None
    assert stricter > (gains[0] or 1.0)


@pytest.mark.parametrize(
    ("shape", "attempts", "items", "points"),
    # By 2,400 simulated nights each; the Beta(0.2, 0.2) distribution and Beta(2, 2).
    [(0.2, 1, 100, 13.5), (0.2, 5, 100, 7.1), (0.2, 5, 500, 2.7), (2.0, 2, 100, 16.3), (2.0, 5, 500, 4.6)],
)
def test_at_this_gain_simulated_sweeps_reach_the_threshold_four_times_in_five(
    shape: float, attempts: int, items: int, points: float
) -> None:
    gain = smallest_gain([PlannedPairs(items, attempts, attempts)], SETTLED if shape < 1 else MIXED)
    assert gain is not None
    assert 100 * gain == pytest.approx(points, abs=0.2)
    rng = np.random.default_rng(items)
    reached = []
    for _ in range(250):
        before = np.clip(rng.beta(shape, shape, items), 1e-9, 1 - 1e-9)
        after = _raised(before, gain)
        tries = [rng.binomial(attempts, chances) / attempts for chances in (before, after)]
        reached.append(Capital().after((tries[1] - tries[0]).tolist()).reaches(0.95))
    assert 0.7 < np.mean(reached) < 0.9


def _raised(chances: Floats, gain: float) -> Floats:
    """Return success probabilities with odds multiplied by one factor, such that their mean is higher by ``gain``."""
    low, high = 0.0, 30.0
    for _ in range(40):
        middle = (low + high) / 2
        after = 1 / (1 + (1 / chances - 1) * math.exp(-middle))
        low, high = (low, middle) if float((after - chances).mean()) > gain else (middle, high)
    return after
