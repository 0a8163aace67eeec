"""Means, errors, intervals and k-attempt metrics against known answers."""

import itertools
import math
import statistics
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.rewarders.statistics.summary import (
    bootstrap_interval,
    fisher_test,
    mean_and_error,
    mean_at_k,
    pass_at_k,
    pass_hat_k,
)


def test_the_standard_error_of_known_values():
    estimate = mean_and_error([2, 4, 4, 4, 5, 5, 7, 9])
    assert (estimate.mean, estimate.n) == (5.0, 8)
    assert estimate.se == pytest.approx(math.sqrt(32 / 7 / 8))


def test_one_value_or_one_cluster_has_no_error_rather_than_zero():
    assert mean_and_error([3.0]).se is None
    assert mean_and_error([1.0, 2.0], ["q", "q"]).se is None


def test_the_clustered_error_of_known_values():
    # Residuals 0.5, 0.5 | -0.5, -0.5: cluster sums 1 and -1, so sqrt(2 / (2 - 1) * 2) / 4 = 0.5.
    assert mean_and_error([1, 1, 0, 0], ["a", "a", "b", "b"]).se == pytest.approx(0.5)
    assert mean_and_error([1, 0, 1, 0], ["a", "a", "b", "b"]).se == pytest.approx(0.0)


def test_an_empty_input_is_an_error_and_never_a_zero():
    for call in (
        lambda: mean_and_error([]),
        lambda: mean_and_error([], []),
        lambda: bootstrap_interval([], seed=1),
        lambda: bootstrap_interval([[1.0], []], seed=1),
        lambda: mean_at_k([], 1),
        lambda: mean_and_error([math.nan]),
    ):
        with pytest.raises(ValueError, match=r"scored|at least one|finite"):
            call()


def test_mismatched_lengths_are_refused():
    with pytest.raises(ValueError, match="cluster names"):
        mean_and_error([1.0], [])


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
    groups = [[index % 7 / 7] for index in range(1_000)]
    tracemalloc.start()
    interval = bootstrap_interval(groups, seed=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_000_000
    generator, means = np.random.default_rng(3), np.array([value for (value,) in groups])
    whole = generator.multinomial(1_000, np.full(1_000, 1 / 1_000), size=2_000) @ means / 1_000
    assert (interval.low, interval.high) == pytest.approx(tuple(np.quantile(whole, [0.025, 0.975])), rel=1e-12)


def test_pass_at_k_and_pass_hat_k_of_known_values():
    assert pass_at_k(5, 2, 1) == pytest.approx(0.4)
    assert pass_at_k(5, 2, 3) == pytest.approx(0.9)
    assert pass_hat_k(5, 2, 1) == pytest.approx(0.4)
    assert pass_hat_k(5, 3, 2) == pytest.approx(0.3)
    assert (pass_at_k(4, 0, 2), pass_at_k(4, 4, 2), pass_hat_k(4, 1, 2), pass_hat_k(4, 4, 4)) == (0, 1, 0, 1)


@given(st.integers(1, 7), st.integers(0, 7), st.integers(1, 7))
def test_both_equal_the_average_over_every_choice_of_k_attempts(attempts, passed, k):
    passed, k = min(passed, attempts), min(k, attempts)
    outcomes = [True] * passed + [False] * (attempts - passed)
    choices = list(itertools.combinations(outcomes, k))
    assert pass_at_k(attempts, passed, k) == pytest.approx(sum(map(any, choices)) / len(choices))
    assert pass_hat_k(attempts, passed, k) == pytest.approx(sum(map(all, choices)) / len(choices))


@pytest.mark.parametrize(("attempts", "passed", "k"), [(4, 2, 5), (4, 5, 1), (4, -1, 1), (4, 2, 0)])
def test_impossible_counts_are_refused(attempts, passed, k):
    for metric in (pass_at_k, pass_hat_k):
        with pytest.raises(ValueError, match="needs 1 <= k"):
            metric(attempts, passed, k)


@pytest.mark.parametrize(
    ("table", "p"),
    [
        ((3, 4, 1, 4), 34 / 70),  # Fisher's lady tasting tea, both sides of it: (1 + 16 + 16 + 1) / 70
        ((4, 4, 0, 4), 2 / 70),
        ((1, 10, 11, 14), 0.0027594561852200836),  # R: fisher.test(matrix(c(1, 9, 11, 3), nrow = 2))
        ((0, 10, 0, 12), 1.0),
        ((10, 10, 12, 12), 1.0),
        ((0, 0, 3, 9), 1.0),
        ((0, 2_000, 60, 2_000), pytest.approx(0.0, abs=1e-15)),
    ],
)
def test_unequal_losses_have_the_known_probability_of_fishers_exact_test(table, p):
    assert fisher_test(*table) == pytest.approx(p)
    assert fisher_test(*table[2:], *table[:2]) == pytest.approx(p)


def test_mean_at_k_weighs_items_equally_and_refuses_short_groups():
    assert mean_at_k([[1.0, 0.0, 0.0], [1.0, 1.0]], 2) == pytest.approx(0.75)
    assert mean_at_k([[1.0, 0.0, 0.0], [1.0, 1.0]], 1) == 1.0
    for k in (0, 3):
        with pytest.raises(ValueError, match="mean@"):
            mean_at_k([[1.0, 0.0, 0.0], [1.0, 1.0]], k)
