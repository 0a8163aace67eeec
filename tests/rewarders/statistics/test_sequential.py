"""The confidence sequence and the carried capital: coverage at every look, power at nightly sizes, and invariants."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfgrpo.rewarders.statistics.sequential import (
    Capital,
    _log_returns,
    _unit_scale,
    log_average,
    paired_confidence_sequence,
)

differences = st.lists(st.floats(-1, 1), min_size=1, max_size=40)


def capital_path(data, mean=0.0, *, bound=1.0):
    """Return the capital of the interval's gamblers against ``mean`` after each difference: 20 is evidence at 5 %."""
    unit = _unit_scale(data, bound)
    growth = np.cumsum(_log_returns(unit, (mean / bound + 1) / 2), axis=1)
    return np.exp(log_average(growth))


def draws(generator: np.random.Generator, mean: float, sd: float, shape: tuple[int, int]) -> np.ndarray:
    """Differences of -1, 0 or 1 with the given mean and standard deviation: the widest tails there are."""
    second = sd**2 + mean**2
    chances = [(second - mean) / 2, 1 - second, (second + mean) / 2]
    return generator.choice([-1.0, 0.0, 1.0], size=shape, p=chances)


@pytest.mark.parametrize(("mean", "sd"), [(0.0, 0.45), (0.0, 0.1), (0.3, 0.6), (-0.6, 0.5)])
def test_the_true_mean_is_rejected_at_any_look_in_at_most_five_percent_of_runs(mean, sd):
    runs = draws(np.random.default_rng(1), mean, sd, (400, 300))
    ever_rejected = [capital_path(run, mean).max() >= 20 for run in runs]
    assert np.mean(ever_rejected) <= 0.05


def test_an_improvement_of_a_third_is_seen_with_seventy_pairs():
    runs = draws(np.random.default_rng(2), 0.35, 0.45 + 0.05, (200, 70))
    intervals = [paired_confidence_sequence(run) for run in runs]
    assert np.mean([interval.low > 0 for interval in intervals]) >= 0.98
    assert np.mean([interval.high - interval.low for interval in intervals]) < 0.5


def test_smooth_differences_of_that_size_are_seen_too():
    generator = np.random.default_rng(3)
    runs = np.clip(generator.normal(0.35, 0.45, (200, 70)), -1, 1)
    assert np.mean([paired_confidence_sequence(run).low > 0 for run in runs]) >= 0.98


def test_no_difference_at_all_leaves_zero_inside_and_narrows():
    widths = []
    for count in (1, 10, 100, 1000):
        interval = paired_confidence_sequence([0.0] * count)
        assert interval.low < 0 < interval.high
        assert interval.estimate == 0.0
        assert interval.n == count
        widths.append(interval.high - interval.low)
    assert widths == sorted(widths, reverse=True)


def test_the_ends_are_where_the_capital_reaches_one_over_alpha():
    data = [0.5, -0.25, 1.0, 0.0, 0.75, 0.5, 0.5, 1.0, -1.0, 0.25] * 6
    interval = paired_confidence_sequence(data, 0.9)
    for end in (interval.low, interval.high):
        assert capital_path(data, end)[-1] == pytest.approx(10.0, rel=1e-6)


def test_capital_of_one_bet_is_known():
    # Stakes average one half on each side, so one difference of 1 (0.5 above a mean of 0.5) returns 1 on average.
    assert capital_path([1.0])[0] == pytest.approx(1.0)
    assert capital_path([1.0, 1.0])[1] == pytest.approx(1 + np.mean(((np.arange(32) + 0.5) / 32) ** 2))


@settings(max_examples=40)
@given(differences, st.randoms(use_true_random=False))
def test_the_interval_contains_the_mean_and_does_not_depend_on_the_order(data, random):
    interval = paired_confidence_sequence(data)
    assert -1 <= interval.low <= interval.estimate <= interval.high <= 1
    shuffled = list(data)
    random.shuffle(shuffled)
    again = paired_confidence_sequence(shuffled)
    assert (again.low, again.high) == pytest.approx((interval.low, interval.high), abs=1e-9)


@settings(max_examples=40)
@given(differences)
def test_swapping_the_arms_mirrors_the_interval(data):
    interval = paired_confidence_sequence(data)
    mirrored = paired_confidence_sequence([-value for value in data])
    assert (mirrored.low, mirrored.high) == pytest.approx((-interval.high, -interval.low), abs=1e-9)


@settings(max_examples=40)
@given(differences, st.sampled_from([0.5, 2.0, 10.0]))
def test_the_bound_only_sets_the_unit(data, bound):
    interval = paired_confidence_sequence(data)
    scaled = paired_confidence_sequence([value * bound for value in data], bound=bound)
    assert (scaled.low, scaled.high) == pytest.approx((interval.low * bound, interval.high * bound), abs=1e-8)


@given(differences)
def test_more_confidence_is_a_wider_interval(data):
    narrow, wide = paired_confidence_sequence(data, 0.8), paired_confidence_sequence(data, 0.99)
    assert wide.low <= narrow.low
    assert narrow.high <= wide.high


def test_extreme_data_reach_the_ends_of_the_range():
    assert paired_confidence_sequence([1.0] * 200).high == 1.0
    assert paired_confidence_sequence([1.0] * 200).low > 0.9
    assert paired_confidence_sequence([-1.0] * 5).low == -1.0


def test_impossible_input_is_refused():
    for call in (
        lambda: paired_confidence_sequence([]),
        lambda: paired_confidence_sequence([1.5]),
        lambda: paired_confidence_sequence([float("nan")]),
        lambda: paired_confidence_sequence([0.0], 1.0),
        lambda: paired_confidence_sequence([0.0], bound=0.0),
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
    assert math.exp(Capital().after([5.0], bound=10.0).log_value) == pytest.approx(1.25)


@given(differences, differences, st.randoms(use_true_random=False))
def test_the_capital_depends_neither_on_the_order_nor_on_the_nights_that_the_differences_came_in(one, other, random):
    carried = Capital().after(one).after(other)
    together = [*one, *other]
    random.shuffle(together)
    assert Capital().after(together).logs == pytest.approx(carried.logs, abs=1e-9)


@given(differences)
def test_the_capital_is_that_of_the_gamblers_who_bet_on_a_gain(data):
    gain = Capital().after(data).log_value
    loss = Capital().after([-value for value in data]).log_value
    both = (math.exp(gain) + math.exp(loss)) / 2
    assert both == pytest.approx(capital_path(data)[-1], rel=1e-9)


def test_certain_evidence_of_any_length_is_a_finite_number():
    assert Capital().after([1.0] * 5_000).log_value > 1_000
    assert Capital().after([]) == Capital()
    with pytest.raises(ValueError, match="must lie"):
        Capital().after([1.5])


def _ever_promoted(generator, items, gains, *, nights):
    """Whether streams over unequal items reach 20: two random halves as batches, then a sweep of all, night after night."""
    reached = 0
    for _ in range(400):
        capital = Capital()
        for _ in range(nights):
            order = generator.permutation(items)
            for part in (order[: items // 2], order[items // 2 :], order):
                chances = 0.5 + gains[part] / 2
                wins = generator.random(len(part)) < chances
                capital = capital.after(np.where(wins, 1.0, -1.0) * (generator.random(len(part)) < 0.6))
                if capital.reaches(0.95):
                    break
            if capital.reaches(0.95):
                break
        reached += capital.reaches(0.95)
    return reached / 400


@pytest.mark.untraced
@pytest.mark.parametrize("spread", [0.0, 0.4, 0.8])
def test_without_a_gain_on_average_streams_promote_at_most_as_often_as_promised(spread):
    items = 50
    gains = np.linspace(-spread, spread, items)
    assert _ever_promoted(np.random.default_rng(7), items, gains, nights=10) <= 0.05


@pytest.mark.untraced
def test_a_small_gain_is_seen_within_some_nights_that_no_single_night_shows():
    items = 50
    gains = np.full(items, 0.2)
    generator = np.random.default_rng(8)
    assert _ever_promoted(generator, items, gains, nights=1) < 0.4
    assert _ever_promoted(generator, items, gains, nights=15) > 0.8


def _promoting_night(generator, gain, nights):
    """The first night whose evidence and sweep promote: 150 items to learn on, 50 held out, two attempts of each library."""
    chances = generator.beta(0.8, 0.6, 280)
    capital = Capital()
    for night in range(1, nights + 1):
        learned = generator.choice(np.arange(50, 280), 150, replace=False)
        before = chances[np.concatenate([learned, np.arange(50)])]
        after = np.clip(before + gain, 0, 1)
        difference = (generator.binomial(2, after) - generator.binomial(2, before)) / 2
        capital = capital.after(difference)
        if capital.reaches(0.95) and difference[-50:].mean() >= 0:
            return night
    return None


@pytest.mark.untraced
def test_the_figures_of_the_page_on_learning_are_those_of_such_nights():
    generator = np.random.default_rng(9)
    found = [_promoting_night(generator, 0.05, 5) for _ in range(200)]
    assert 0.05 < np.mean([night == 1 for night in found]) < 0.2
    assert 0.7 < np.mean([night is not None for night in found]) < 0.95
    assert np.mean([_promoting_night(generator, 0.0, 10) is not None for _ in range(300)]) < 0.03


@pytest.mark.parametrize(
    ("differences", "value"),
    [([], 1.0), ([0.5] * 50, 1.0), ([-0.9] * 200, 0.1), ([-0.1], math.exp(Capital().after([-0.1]).log_value))],
)
def test_a_new_stream_begins_with_what_is_left_between_a_tenth_and_one_evenly_over_the_stakes(differences, value):
    capital = Capital().after(differences).anew()
    assert len(set(capital.logs)) == 1
    assert math.exp(capital.log_value) == pytest.approx(value)
