"""Invariants of every estimator: shifts, scales, orders, equal rewards, sums."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cpu_time import cpu_seconds
from tests.support.rewards.estimators import NAMES, arrays, batches, lengths_of, present_values, sane
from tfgrpo.rewarders.advantages.batch import batch_advantages
from tfgrpo.rewarders.advantages.estimators import ESTIMATORS
from tfgrpo.rewarders.advantages.group import group_advantage

SHIFT_INVARIANT = sorted(set(NAMES) - {"gpg", "remax"})
"""GPG counts rewards that are zero, and ReMax compares with a reward from outside the group."""
SCALE_EQUIVARIANT = {"mean_only", "rloo", "rloo_keep_single", "opo_length_weighted", "pass_at_k_top1_minus_top2", "gpg"}
SCALE_FREE = {"centered_rank", "normal_score"}
SUM_TO_ZERO = {
    name for name in NAMES if ESTIMATORS[name].kind in {"group_std", "mean_only", "batch_std", "leave_one_out", "gpg"}
} | {"centered_rank"}


@given(batches, st.sampled_from([-3.0, 0.5, 40.0]))
def test_a_shift_of_all_rewards_changes_no_advantage(rewards, shift):
    moved = [[reward + shift for reward in group] for group in rewards]
    for name in SHIFT_INVARIANT:
        lengths = lengths_of(rewards)
        before = batch_advantages(rewards, estimator=name, token_lengths=lengths)
        after = batch_advantages(moved, estimator=name, token_lengths=lengths)
        np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-6, err_msg=name)


@given(batches, st.sampled_from([0.5, 2.0, 1024.0]))
def test_a_change_of_scale_scales_unnormalised_advantages_and_leaves_ranks_alone(rewards, factor):
    scaled = [[reward * factor for reward in group] for group in rewards]
    for name in SCALE_EQUIVARIANT | SCALE_FREE:
        wanted = arrays(rewards, name) * (1.0 if name in SCALE_FREE else factor)
        np.testing.assert_allclose(arrays(scaled, name), wanted, rtol=1e-9, atol=1e-9, err_msg=name)


@given(batches)
def test_a_normalised_advantage_hardly_notices_a_change_of_scale(rewards):
    spread = [[reward + index for index, reward in enumerate(sorted(group))] for group in rewards]
    scaled = [[reward * 1024 for reward in group] for group in spread]
    for name in ("grpo", "openrlhf"):
        np.testing.assert_allclose(arrays(scaled, name), arrays(spread, name), rtol=1e-6)


@given(batches, st.randoms(use_true_random=False))
def test_the_order_within_a_group_does_not_matter(rewards, random):
    order = [random.sample(range(len(group)), len(group)) for group in rewards]
    lengths = lengths_of(rewards)
    shuffled = [[group[index] for index in places] for group, places in zip(rewards, order, strict=True)]
    moved = [[group[index] for index in places] for group, places in zip(lengths, order, strict=True)]
    for name in sorted(set(NAMES) - {"remax"}):
        before = present_values(batch_advantages(rewards, estimator=name, token_lengths=lengths))
        after = present_values(batch_advantages(shuffled, estimator=name, token_lengths=moved))
        wanted = [[row[index] for index in places] for row, places in zip(before, order, strict=True)]
        assert after == [pytest.approx(row, rel=1e-9, abs=1e-9) for row in wanted], name


@given(batches)
def test_the_order_of_groups_does_not_matter(rewards):
    for name in sorted(set(NAMES) - {"remax"}):
        forwards = present_values(
            batch_advantages(rewards, estimator=name, token_lengths=[[2] * len(group) for group in rewards])
        )
        backwards = present_values(
            batch_advantages(rewards[::-1], estimator=name, token_lengths=[[2] * len(group) for group in rewards[::-1]])
        )
        assert backwards == [pytest.approx(row, rel=1e-9, abs=1e-9) for row in forwards[::-1]], name


@given(batches)
def test_a_batch_twice_over_gives_the_population_form_of_every_group_twice(rewards):
    for name in ("grpo", "mean_only", "batch_whiten", "gpg"):
        once = present_values(batch_advantages(rewards, estimator=name))
        assert present_values(batch_advantages(rewards * 2, estimator=name)) == [
            pytest.approx(row, rel=1e-9, abs=1e-9) for row in once * 2
        ]


@given(batches)
def test_equal_rewards_get_equal_advantages_and_greater_ones_no_smaller(rewards):
    for name in sorted(set(NAMES) - {"remax", "pass_at_k_top1_minus_top2", "pass_at_k_normalised"}):
        for group, values in zip(rewards, present_values(arrays(rewards, name)), strict=True):
            pairs = sorted(zip(group, values, strict=True))
            assert all(a[1] == b[1] if a[0] == b[0] else a[1] <= b[1] for a, b in itertools.pairwise(pairs)), name


@given(st.lists(st.integers(2, 6), min_size=1, max_size=4), sane)
def test_groups_of_equal_rewards_have_advantages_of_zero_everywhere(sizes, reward):
    rewards = [[reward] * size for size in sizes]
    for name in sorted(set(NAMES) - {"remax"}):
        values = arrays(rewards, name)
        assert all(value == 0.0 for row in present_values(values) for value in row), name


@given(batches)
def test_advantages_against_the_mean_of_the_group_sum_to_zero(rewards):
    for name in SUM_TO_ZERO:
        for values in present_values(arrays(rewards, name)):
            assert math.fsum(values) == pytest.approx(0.0, abs=1e-6), name


@given(batches)
def test_the_best_of_a_group_alone_has_an_advantage_under_pass_at_k(rewards):
    for group, values in zip(rewards, present_values(arrays(rewards, "pass_at_k")), strict=True):
        second, best = sorted(group)[-2:]
        assert max(values) == best - second
        assert sum(value != 0.0 for value in values) == (best != second)
        assert values[group.index(best)] == best - second


@pytest.mark.parametrize("size", [120, 300])
def test_ranks_of_large_groups_are_those_of_one_group_at_a_time(size):
    rng = np.random.default_rng(0)
    large = np.round(rng.random((3, size)), 2)
    mask = rng.random((3, size)) > 0.3
    for name in ("rank", "normal_score"):
        values = batch_advantages(large, mask, name)
        for group, there, row in zip(large, mask, values, strict=True):
            np.testing.assert_allclose(row[there], group_advantage(group[there].tolist(), name).advantages, atol=1e-12)
            assert np.isnan(row[~there]).all()


@pytest.mark.untraced
def test_the_time_for_ranks_grows_with_the_rewards_and_not_with_their_pairs():
    many, large = (np.random.default_rng(0).random(shape) for shape in ((1_024, 64), (16, 4_096)))
    assert cpu_seconds(lambda: batch_advantages(large, estimator="rank")) < 20 * cpu_seconds(
        lambda: batch_advantages(many, estimator="rank")
    )
