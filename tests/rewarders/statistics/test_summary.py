"""Means, errors, intervals and k-attempt metrics against known answers."""

import itertools
import math
import statistics

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


def test_the_standard_error_of_known_values_and_clusters_and_one_of_either_has_none_rather_than_zero():
    estimate = mean_and_error([2, 4, 4, 4, 5, 5, 7, 9])
    assert (estimate.mean, estimate.n, estimate.se) == (5.0, 8, pytest.approx(math.sqrt(32 / 7 / 8)))
    # Residuals 0.5, 0.5 | -0.5, -0.5: cluster sums 1 and -1, so sqrt(2 / (2 - 1) * 2) / 4 = 0.5.
    assert mean_and_error([1, 1, 0, 0], ["a", "a", "b", "b"]).se == pytest.approx(0.5)
    assert mean_and_error([1, 0, 1, 0], ["a", "a", "b", "b"]).se == pytest.approx(0.0)
    assert mean_and_error([3.0]).se is None
    assert mean_and_error([1.0, 2.0], ["q", "q"]).se is None


def test_an_empty_input_and_one_of_another_length_are_errors_and_never_a_zero():
    for call in (
        lambda: mean_and_error([]),
        lambda: mean_and_error([], []),
        lambda: bootstrap_interval([], seed=1),
        lambda: bootstrap_interval([[1.0], []], seed=1),
        lambda: mean_at_k([], 1),
        lambda: mean_and_error([math.nan]),
        lambda: mean_and_error([1.0], []),
    ):
        with pytest.raises(ValueError, match=r"scored|at least one|finite|cluster names"):
            call()


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
    # It draws in chunks, with the numbers of one draw.
    whole = np.random.default_rng(7).multinomial(200, np.full(200, 1 / 200), size=2_000) @ np.array(means) / 200
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


def test_impossible_counts_are_refused():
    for counts in ((4, 2, 5), (4, 5, 1), (4, -1, 1), (4, 2, 0)):
        for metric in (pass_at_k, pass_hat_k):
            with pytest.raises(ValueError, match="needs 1 <= k"):
                metric(*counts)


def test_unequal_losses_have_the_known_probability_of_fishers_exact_test():
    for table, p in (
        ((3, 4, 1, 4), 34 / 70),  # Fisher's lady tasting tea, both sides of it: (1 + 16 + 16 + 1) / 70
        ((4, 4, 0, 4), 2 / 70),
        ((1, 10, 11, 14), 0.0027594561852200836),  # R: fisher.test(matrix(c(1, 9, 11, 3), nrow = 2))
        ((0, 10, 0, 12), 1.0),
        ((10, 10, 12, 12), 1.0),
        ((0, 0, 3, 9), 1.0),
        ((0, 2_000, 60, 2_000), pytest.approx(0.0, abs=1e-15)),
    ):
        assert (fisher_test(*table), fisher_test(*table[2:], *table[:2])) == (pytest.approx(p), pytest.approx(p))


def test_mean_at_k_weighs_items_equally_and_refuses_short_groups():
    assert mean_at_k([[1.0, 0.0, 0.0], [1.0, 1.0]], 2) == pytest.approx(0.75)
    assert mean_at_k([[1.0, 0.0, 0.0], [1.0, 1.0]], 1) == 1.0
    for k in (0, 3):
        with pytest.raises(ValueError, match="mean@"):
            mean_at_k([[1.0, 0.0, 0.0], [1.0, 1.0]], k)
