"""Group advantages, ranks and order against sample cases and invariants."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.vectors import read_vectors, rows_of
from tfgrpo.rewarders.advantages.group import best_first, group_advantage, relative_ranks

any_score = st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=12)


def test_the_house_estimator_gives_the_known_values():
    for case in read_vectors("group_advantage"):
        rewards = [float(reward) for reward in case["rewards"]]
        if not all(abs(reward) <= 1e100 for reward in rewards):  # which no scorer gives
            for function in (group_advantage, relative_ranks, best_first):
                with pytest.raises(ValueError, match=r"reward 0 is .*; accepted: finite numbers from -1e\+100 to 1e\+100"):
                    function(rewards)
            continue
        group = group_advantage(case["rewards"])
        assert (group.mean, group.std) == pytest.approx((case["mean"], case["std"]), rel=1e-9, abs=1e-9), case
        assert group.advantages == pytest.approx(case["advantages"], rel=1e-9, abs=1e-9), case
        assert group.best_index == case["best_index"], case


def test_what_is_no_group_of_rewards_is_refused_with_its_index():
    rows = rows_of("group", "what_is_no_group_of_rewards_is_refused_with_its_index")
    for rewards, message in (*rows, ([0.5, math.nan], "reward 1 is nan"), ([-math.inf, 1.0], "reward 0 is -inf")):
        for function in (group_advantage, relative_ranks, best_first):
            with pytest.raises(ValueError, match=message):
                function(rewards)


def test_ranks_run_from_one_for_the_best_to_zero_and_ties_share_the_mean():
    assert relative_ranks([0.2, 0.9, 0.5]) == (0.0, 1.0, 0.5)
    assert relative_ranks([1.0, 1.0, 0.0]) == (0.75, 0.75, 0.0)
    assert relative_ranks([-0.0, 0.0]) == (0.5, 0.5)
    assert relative_ranks([7.0]) == (0.5,)


def test_the_order_from_best_to_worst_prefers_fewer_tokens_then_the_earlier_attempt():
    assert best_first([0.0, 1.0, 1.0, 1.0], [1, 9, 5, 5]) == (2, 3, 1, 0)
    assert best_first([1.0, 1.0, 0.0], [None, 9, 1]) == (1, 0, 2)
    assert best_first([1.0, 1.0]) == (0, 1)
    with pytest.raises(ValueError, match="token counts"):
        best_first([1.0, 0.0], [1])


@given(any_score, st.randoms(use_true_random=False))
def test_advantages_of_any_scores_are_finite_in_their_order_whatever_the_order_of_attempts(group, random):
    result = group_advantage(group)
    assert all(map(math.isfinite, (result.mean, result.std, *result.advantages)))
    pairs = sorted(zip(group, result.advantages, relative_ranks(group), strict=True))
    for one, other in itertools.pairwise(pairs):
        assert (one[1:] == other[1:]) if one[0] == other[0] else (one[1] <= other[1] and one[2] < other[2])
    assert group.index(max(group)) == result.best_index == best_first(group)[0]
    order = random.sample(range(len(group)), len(group))
    assert group_advantage([group[at] for at in order]).advantages == tuple(result.advantages[at] for at in order)
