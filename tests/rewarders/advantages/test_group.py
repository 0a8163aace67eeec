"""Group advantages, ranks and order against sample cases and invariants."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cpu_time import cpu_seconds
from tests.support.rewards.estimators import OF_ONE_GROUP
from tests.support.vectors import read_vectors
from tfgrpo.rewarders.advantages.estimators import estimator_of
from tfgrpo.rewarders.advantages.group import best_first, group_advantage, relative_ranks

GROUP_CASES = read_vectors("group_advantage")
FINITE_CASES = [case for case in GROUP_CASES if all(abs(float(reward)) <= 1e100 for reward in case["rewards"])]
REFUSED_CASES = [case for case in GROUP_CASES if case not in FINITE_CASES]
ESTIMATOR_CASES = read_vectors("advantage_estimators")

rewards = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12)
any_score = st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=12)


def name(case: dict) -> str:
    return case["name"]


@pytest.mark.parametrize("case", FINITE_CASES, ids=name)
def test_the_house_estimator_gives_the_known_values(case):
    group = group_advantage(case["rewards"])
    assert group.mean == pytest.approx(case["mean"], rel=1e-9, abs=1e-9)
    assert group.std == pytest.approx(case["std"], rel=1e-9, abs=1e-9)
    assert group.advantages == pytest.approx(case["advantages"], rel=1e-9, abs=1e-9)
    assert group.best_index == case["best_index"]


@pytest.mark.parametrize("case", REFUSED_CASES, ids=name)
def test_rewards_that_no_scorer_gives_are_refused(case):
    for function in (group_advantage, relative_ranks, best_first):
        with pytest.raises(ValueError, match=r"reward 0 is .*; accepted: finite numbers from -1e\+100 to 1e\+100"):
            function([float(reward) for reward in case["rewards"]])


def test_an_empty_group_and_an_unknown_estimator_are_refused():
    with pytest.raises(ValueError, match="at least one reward"):
        group_advantage([])
    with pytest.raises(ValueError, match="unknown estimator 'ppo'; known: grpo"):
        group_advantage([1.0], "ppo")


@pytest.mark.parametrize("reward", [None, "0.5", [0.5]])
def test_a_reward_that_is_no_number_is_refused_with_its_index(reward):
    for function in (group_advantage, relative_ranks, best_first):
        with pytest.raises(ValueError, match="reward 1 is"):
            function([0.5, reward])


@given(any_score)
def test_a_list_and_any_other_sequence_have_the_same_advantages(group):
    # A list under the default estimator takes a shorter path.
    assert group_advantage(group) == group_advantage(tuple(group)) == group_advantage(np.array(group))
    assert group_advantage(group) == group_advantage(group, estimator_of("grpo"))


@pytest.mark.untraced
@pytest.mark.parametrize("estimator", OF_ONE_GROUP)
def test_a_named_estimator_of_one_group_takes_about_as_long_as_the_default(estimator):
    group, lengths = [0.1, 0.9, 0.4, 0.4, 0.8, 0.0, 1.0, 0.3], [3, 1, 4, 1, 5, 9, 2, 6]
    more = {"token_lengths": lengths, "greedy": 0.5}

    def seconds(name):
        return cpu_seconds(lambda: [group_advantage(group, name, **more) for _ in range(2_000)], rounds=5)

    assert seconds(estimator) < 8 * seconds("grpo")  # arrays took 40 to 110 times as long


def test_one_group_loads_no_arrays():
    code = """if True:
        import sys
        from tfgrpo.rewarders.advantages.group import group_advantage
        group_advantage([0.0, 1.0], "trl")
        sys.exit("numpy" in sys.modules)
    """
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_advantages_are_floats_for_every_number_type():
    for kind in (np.float32, np.float64, Fraction, int, bool):
        group = [kind(0), kind(1), kind(1), 0.1 if kind is np.float32 else kind(0)]
        result = group_advantage(group)
        assert {type(value) for value in (*result.advantages, result.mean, result.std)} == {float}
        assert result.advantages == pytest.approx(group_advantage([float(value) for value in group]).advantages)


def test_negative_zero_is_zero():
    assert group_advantage([-0.0, 0.0]).advantages == (0.0, 0.0)
    assert relative_ranks([-0.0, 0.0]) == (0.5, 0.5)


def test_a_difference_below_float_precision_counts_as_a_flat_group():
    group = group_advantage([1e99, math.nextafter(1e99, 2e99)])
    assert all(map(math.isfinite, group.advantages))


@pytest.mark.parametrize("case", ESTIMATOR_CASES, ids=name)
def test_the_estimator_and_the_ranks_agree_with_the_field(case):
    for group, advantages, ranks in zip(
        case["rewards"], case["grpo_population_eps1e-8"], case["centered_rank"], strict=True
    ):
        assert group_advantage(group).advantages == pytest.approx(advantages, abs=1e-9)
        if len(group) > 1:
            assert [rank - 0.5 for rank in relative_ranks(group)] == pytest.approx(ranks, abs=1e-9)


def test_ranks_run_from_one_for_the_best_to_zero_and_ties_share_the_mean():
    assert relative_ranks([0.2, 0.9, 0.5]) == (0.0, 1.0, 0.5)
    assert relative_ranks([1.0, 1.0, 0.0]) == (0.75, 0.75, 0.0)
    assert relative_ranks([0.3] * 4) == (0.5,) * 4
    assert relative_ranks([7.0]) == (0.5,)


def test_the_order_from_best_to_worst_prefers_fewer_tokens_then_the_earlier_attempt():
    assert best_first([0.0, 1.0, 1.0, 1.0], [1, 9, 5, 5]) == (2, 3, 1, 0)
    assert best_first([1.0, 1.0]) == (0, 1)
    with pytest.raises(ValueError, match="token counts"):
        best_first([1.0, 0.0], [1])


@given(any_score)
def test_any_group_of_scores_has_finite_advantages_that_keep_its_order(group):
    result = group_advantage(group)
    assert all(map(math.isfinite, (result.mean, result.std, *result.advantages)))
    pairs = sorted(zip(group, result.advantages, strict=True))
    assert all(left[1] <= right[1] for left, right in itertools.pairwise(pairs))
    assert group[result.best_index] == max(group)


@given(rewards)
def test_advantages_sum_to_zero_and_equal_rewards_get_equal_ones(group):
    result = group_advantage(group)
    assert math.fsum(result.advantages) == pytest.approx(0.0, abs=1e-4)
    by_reward: dict[float, set[float]] = {}
    for reward, advantage in zip(group, result.advantages, strict=True):
        by_reward.setdefault(reward, set()).add(advantage)
    assert all(len(values) == 1 for values in by_reward.values())


@given(rewards, st.randoms(use_true_random=False))
def test_ranks_and_advantages_do_not_depend_on_the_order_of_attempts(group, random):
    order = list(range(len(group)))
    random.shuffle(order)
    shuffled = [group[index] for index in order]
    ranks, advantages = relative_ranks(group), group_advantage(group).advantages
    assert relative_ranks(shuffled) == tuple(ranks[index] for index in order)
    assert group_advantage(shuffled).advantages == tuple(advantages[index] for index in order)


@given(rewards)
def test_ranks_average_to_one_half(group):
    assert math.fsum(relative_ranks(group)) / len(group) == pytest.approx(0.5)
