"""The confidence sequence and the evidence of all sweeps: coverage at every look, power at nightly sizes, and invariants."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfgrpo.rewarders.statistics.summary import Capital, _log_returns, _unit_scale, log_average, paired_confidence_sequence

differences = st.lists(st.floats(-1, 1), min_size=1, max_size=40)


def capital_path(data, mean=0.0):
    """Return the capital of the interval's gamblers against ``mean`` after each difference: 20 is evidence at 5 %."""
    growth = np.cumsum(_log_returns(_unit_scale(data), (mean + 1) / 2), axis=1)
    return np.exp(log_average(growth))


def draws(generator: np.random.Generator, mean: float, sd: float, shape: tuple[int, int]) -> np.ndarray:
    """Differences of -1, 0 or 1 with the given mean and standard deviation: the widest tails there are."""
    second = sd**2 + mean**2
    chances = [(second - mean) / 2, 1 - second, (second + mean) / 2]
    return generator.choice([-1.0, 0.0, 1.0], size=shape, p=chances)


@pytest.mark.parametrize(("mean", "sd"), [(0.0, 0.45), (-0.6, 0.5)])
def test_the_true_mean_is_rejected_at_any_look_in_at_most_five_percent_of_runs(mean, sd):
    runs = draws(np.random.default_rng(1), mean, sd, (400, 300))
    ever_rejected = [capital_path(run, mean).max() >= 20 for run in runs]
    assert np.mean(ever_rejected) <= 0.05


def test_the_ends_are_where_the_capital_reaches_one_over_alpha():
    data = [0.5, -0.25, 1.0, 0.0, 0.75, 0.5, 0.5, 1.0, -1.0, 0.25] * 6
    interval = paired_confidence_sequence(data, 0.9)
    for end in (interval.low, interval.high):
        assert capital_path(data, end)[-1] == pytest.approx(10.0, rel=1e-6)


@settings(max_examples=40)
@given(differences, st.randoms(use_true_random=False))
def test_the_interval_contains_the_mean_and_does_not_depend_on_the_order(data, random):
    interval = paired_confidence_sequence(data)
    assert -1 <= interval.low <= interval.estimate <= interval.high <= 1
    shuffled = list(data)
    random.shuffle(shuffled)
    again = paired_confidence_sequence(shuffled)
    assert (again.low, again.high) == pytest.approx((interval.low, interval.high), abs=1e-9)


def test_impossible_input_is_refused():
    for call in (
        lambda: paired_confidence_sequence([]),
        lambda: paired_confidence_sequence([1.5]),
        lambda: paired_confidence_sequence([float("nan")]),
        lambda: paired_confidence_sequence([0.0], 1.0),
    ):
        with pytest.raises(ValueError, match=r"no pairs|must lie|accepted"):
            call()


def test_the_capital_of_one_and_two_differences_is_known():
    # The stakes are (k + 1/2) / 32, so their mean is one half and that of their squares a little more than one third.
    assert Capital().log_value == 0.0
    assert math.exp(Capital().after([1.0]).log_value) == pytest.approx(1.5)
    assert math.exp(Capital().after([-1.0]).log_value) == pytest.approx(0.5)
    squares = sum(((k + 0.5) / 32) ** 2 for k in range(32)) / 32
    assert math.exp(Capital().after([1.0, -1.0]).log_value) == pytest.approx(1 - squares)


@given(differences)
def test_the_capital_is_that_of_the_gamblers_who_bet_on_a_gain(data):
    gain = Capital().after(data).log_value
    loss = Capital().after([-value for value in data]).log_value
    both = (math.exp(gain) + math.exp(loss)) / 2
    assert both == pytest.approx(capital_path(data)[-1], rel=1e-9)


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
