"""The evidence of all sweeps: errors at any look, power at nightly sizes, and known values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.rewarders.statistics.summary import Capital

differences = st.lists(st.floats(-1, 1), min_size=1, max_size=40)


def test_impossible_input_is_refused():
    for data in ([1.5], [float("nan")]):
        with pytest.raises(ValueError, match="must lie"):
            Capital().after(data)


def test_the_capital_of_one_and_two_differences_is_known():
    # The stakes are (k + 1/2) / 32, so their mean is one half and that of their squares a little more than one third.
    assert Capital().log_value == 0.0
    assert math.exp(Capital().after([1.0]).log_value) == pytest.approx(1.5)
    assert math.exp(Capital().after([-1.0]).log_value) == pytest.approx(0.5)
    squares = sum(((k + 0.5) / 32) ** 2 for k in range(32)) / 32
    assert math.exp(Capital().after([1.0, -1.0]).log_value) == pytest.approx(1 - squares)


@given(differences)
def test_the_capital_is_the_mean_of_the_products_of_constant_stakes_in_any_order(data):
    stakes = [(k + 0.5) / 32 for k in range(32)]
    wanted = math.fsum(math.prod(1 + stake * value for value in data) for stake in stakes) / 32
    assert math.exp(Capital().after(data[::-1]).log_value) == pytest.approx(wanted, rel=1e-9)
    assert Capital().after(data) == Capital().after(data[::-1])
    assert Capital().after([]) == Capital()


def _share_of_tasks_proven(generator, gains, *, nights):
    """How many of 400 tasks with unequal items ever reach 20, by a sweep of a random half of the items each night."""
    reached = 0
    for _ in range(400):
        capital = Capital()
        for _ in range(nights):
            swept = generator.permutation(len(gains))[: len(gains) // 2]
            wins = generator.random(len(swept)) < 0.5 + gains[swept] / 2
            capital = capital.after(np.where(wins, 1.0, -1.0) * (generator.random(len(swept)) < 0.6))
            if capital.reaches(0.95):
                reached += 1
                break
    return reached / 400


@pytest.mark.untraced
@pytest.mark.parametrize("spread", [0.0, 0.8])
def test_without_a_gain_on_average_at_most_one_task_of_twenty_is_ever_proven(spread):
    assert _share_of_tasks_proven(np.random.default_rng(7), np.linspace(-spread, spread, 100), nights=20) <= 0.05


@pytest.mark.untraced
def test_a_small_gain_is_proven_within_some_nights_that_no_single_night_shows():
    generator, gains = np.random.default_rng(8), np.full(100, 0.2)
    assert _share_of_tasks_proven(generator, gains, nights=1) < 0.4
    assert _share_of_tasks_proven(generator, gains, nights=30) > 0.8
