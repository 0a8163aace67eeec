"""Means, errors and intervals against known answers."""

from __future__ import annotations

import math
import statistics
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.rewarders.statistics.summary import bootstrap_interval, mean_and_error

values = st.lists(st.floats(-100, 100), min_size=2, max_size=30)


def test_the_standard_error_of_known_values():
    estimate = mean_and_error([2, 4, 4, 4, 5, 5, 7, 9])
    assert (estimate.mean, estimate.n) == (5.0, 8)
    assert estimate.se == pytest.approx(math.sqrt(32 / 7 / 8))


def test_one_value_has_no_error_rather_than_zero():
    assert mean_and_error([3.0]).se is None


@given(values)
def test_the_error_is_that_of_the_sample_deviation(data):
    assert mean_and_error(data).se == pytest.approx(statistics.stdev(data) / math.sqrt(len(data)), rel=1e-9, abs=1e-9)


def test_an_empty_input_is_an_error_and_never_a_zero():
    for call in (
        lambda: mean_and_error([]),
        lambda: bootstrap_interval([], seed=1),
        lambda: bootstrap_interval([[1.0], []], seed=1),
        lambda: mean_and_error([math.nan]),
    ):
        with pytest.raises(ValueError, match=r"scored|at least one|finite"):
            call()


def test_impossible_settings_are_refused():
    with pytest.raises(ValueError, match="confidence"):
        bootstrap_interval([[1.0]], seed=1, confidence=1.0)
    with pytest.raises(ValueError, match="resample"):
        bootstrap_interval([[1.0]], seed=1, resamples=0)


def test_the_bootstrap_is_seeded_and_close_to_the_normal_interval():
    groups = [[index % 10 / 10, index % 10 / 10 + 0.1] for index in range(200)]
    interval = bootstrap_interval(groups, seed=7)
    assert interval == bootstrap_interval(groups, seed=7)
    assert interval != bootstrap_interval(groups, seed=8)
    means = [statistics.fmean(group) for group in groups]
    half = 1.96 * statistics.stdev(means) / math.sqrt(len(means))
    assert interval.estimate == pytest.approx(0.5)
    assert (interval.low, interval.high) == pytest.approx((0.5 - half, 0.5 + half), abs=0.006)
    assert interval.n == 200


@pytest.mark.untraced
def test_the_bootstrap_draws_in_chunks():
    groups = [[index % 7 / 7] for index in range(5_000)]
    tracemalloc.start()
    interval = bootstrap_interval(groups, seed=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_000_000
    generator, means = np.random.default_rng(3), np.array([value for (value,) in groups])
    whole = generator.multinomial(5_000, np.full(5_000, 1 / 5_000), size=2_000) @ means / 5_000
    assert (interval.low, interval.high) == pytest.approx(tuple(np.quantile(whole, [0.025, 0.975])), rel=1e-12)


def test_more_confidence_is_a_wider_bootstrap_interval():
    groups = [[0.0], [1.0], [0.5], [0.2], [0.9]]
    narrow, wide = (bootstrap_interval(groups, seed=1, confidence=level) for level in (0.5, 0.99))
    assert wide.low <= narrow.low <= narrow.high <= wide.high
    assert bootstrap_interval([[0.3], [0.3]], seed=1).low == pytest.approx(0.3)
