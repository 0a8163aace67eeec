"""Every estimator gives the known values, names what it needs, and refuses what it cannot compare."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from tests.support.rewards.estimators import (
    NAMES,
    OF_ONE_GROUP,
    arrays,
    batches,
    greedy_of,
    lengths_of,
    present_values,
)
from tests.support.vectors import read_vectors
from tfgrpo.rewarders.advantages.batch import batch_advantages
from tfgrpo.rewarders.advantages.estimators import ALIASES, ESTIMATORS, Estimator, estimator_of
from tfgrpo.rewarders.advantages.group import group_advantage

CASES = read_vectors("advantage_estimators")
NOT_ESTIMATORS = {"name", "rewards", "token_lengths"}
KNOWN = [(case, name) for case in CASES for name in case if name not in NOT_ESTIMATORS]
OUT_OF_RANGE = "accepted: finite numbers from"


@pytest.mark.parametrize(("case", "name"), KNOWN, ids=lambda value: value if isinstance(value, str) else value["name"])
def test_the_estimator_gives_the_known_values_one_by_one_and_as_arrays(case, name):
    lengths = case["token_lengths"]
    whole = batch_advantages(np.array(case["rewards"]), estimator=name, token_lengths=lengths)
    np.testing.assert_allclose(whole, case[name], rtol=1e-9, atol=1e-12)
    if name in OF_ONE_GROUP:
        for group, tokens, expected in zip(case["rewards"], lengths, case[name], strict=True):
            values = group_advantage(group, name, token_lengths=tokens).advantages
            assert values == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("case", read_vectors("group_advantage"), ids=lambda case: case["name"])
def test_arrays_give_the_known_values_of_hard_groups_and_refuse_those_beyond_the_range_of_scores(case):
    rewards = [float(reward) for reward in case["rewards"]]
    if all(abs(reward) <= 1e100 for reward in rewards):
        values = batch_advantages([rewards, [0.0, 1.0]])[0, : len(rewards)]
        np.testing.assert_allclose(values, case["advantages"], rtol=1e-9, atol=1e-9)
    else:
        with pytest.raises(ValueError, match=f"reward 0 of group 1 is .*{OUT_OF_RANGE}"):
            batch_advantages([[0.0, 1.0], rewards])


@pytest.mark.parametrize("name", NAMES)
def test_the_greatest_rewards_have_finite_advantages_and_greater_ones_are_refused_by_group_and_index(name):
    more = {"token_lengths": [[1, 2, 3], [9, 9, 9]], "greedy": [0.0, -1e100]}
    assert np.isfinite(batch_advantages([[0.0, 1.0, 2.0], [1e100, -1e100, 1e100]], estimator=name, **more)).all()
    for reward in (1.0001e100, -1.7e308, math.inf, math.nan):
        with pytest.raises(ValueError, match=rf"reward 1 of group 1 is .*{OUT_OF_RANGE} -1e\+100 to 1e\+100"):
            batch_advantages([[0.0, 1.0, 2.0], [0.0, reward, 2.0]], estimator=name, **more)
        if name in OF_ONE_GROUP:
            with pytest.raises(ValueError, match=rf"reward 1 is .*{OUT_OF_RANGE} -1e\+100 to 1e\+100"):
                group_advantage([0.0, reward, 2.0], name, token_lengths=[1, 2, 3], greedy=0.0)


@given(batches)
def test_a_group_has_alone_the_advantages_that_it_has_in_a_ragged_batch(rewards):
    lengths, greedy = lengths_of(rewards), greedy_of(rewards)
    for name in OF_ONE_GROUP:
        rows = present_values(arrays(rewards, name))
        for row, group, tokens, other in zip(rows, rewards, lengths, greedy, strict=True):
            alone = group_advantage(group, name, token_lengths=tokens, greedy=other).advantages
            assert row == pytest.approx(list(alone), rel=1e-9, abs=1e-9), name


# --- names


def test_every_alias_is_a_name_of_its_estimator():
    assert {name for _, name in KNOWN} <= set(ESTIMATORS)
    assert not set(ALIASES) & set(ESTIMATORS)
    for alias, name in ALIASES.items():
        assert estimator_of(alias) is ESTIMATORS[name]
        assert estimator_of(alias).alias == alias


def test_every_estimator_has_its_formula():
    assert all(estimator.formula for estimator in ESTIMATORS.values())


def test_an_unknown_name_is_an_error_that_lists_those_there_are():
    for ask in (lambda: group_advantage([1.0, 0.0], "ppo"), lambda: batch_advantages([[1.0, 0.0]], estimator="ppo")):
        with pytest.raises(ValueError, match=r"unknown estimator 'ppo'; known: grpo, trl, .*centered_rank"):
            ask()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "mean"),
        ("ddof", 2),
        ("epsilon", -1.0),
        ("epsilon", math.nan),
        ("variance_floor", -1.0),
        ("singleton", "keep"),
    ],
)
def test_an_estimator_with_constants_that_make_no_sense_cannot_be_made(field, value):
    with pytest.raises(ValueError, match=rf"1 validation error for Estimator\n{field}\n"):
        replace(ESTIMATORS["mean_only"], **{field: value})


def test_constants_are_parameters():
    ours = replace(estimator_of("grpo"), name="ours", ddof=1, epsilon=0.5)
    assert group_advantage([0.0, 1.0], ours).advantages == pytest.approx(
        [-0.5 / (math.sqrt(0.5) + 0.5), 0.5 / (math.sqrt(0.5) + 0.5)]
    )
    np.testing.assert_allclose(
        batch_advantages([[0.0, 1.0]], estimator=ours), [group_advantage([0.0, 1.0], ours).advantages]
    )


def test_a_flat_group_without_epsilon_has_zero_advantages():
    bare = replace(estimator_of("grpo"), epsilon=0.0)
    assert group_advantage([1.0, 1.0], bare).advantages == (0.0, 0.0)
    np.testing.assert_array_equal(batch_advantages([[1.0, 1.0], [0.0, 1.0]], estimator=bare), [[0, 0], [-1, 1]])
    for name in ("trl_batch", "batch_whiten", "reinforce++", "pass_at_k_normalised"):
        bare = replace(estimator_of(name), epsilon=0.0)
        np.testing.assert_array_equal(batch_advantages([[1.0, 1.0]], estimator=bare, token_lengths=[[1, 1]]), [[0, 0]])


# --- what an estimator needs


@pytest.mark.parametrize(
    ("name", "missing"),
    [("opo", "token_lengths"), ("remax", "greedy"), ("gpg", "batch"), ("trl_batch", "batch"), ("reinforce++", "batch")],
)
def test_a_missing_input_of_an_estimator_is_named(name, missing):
    with pytest.raises(ValueError, match=f"needs {missing}"):
        group_advantage([0.0, 1.0], name)


@pytest.mark.parametrize("name", ["opo", "reinforce++", "reinforce++_baseline"])
def test_arrays_that_weigh_tokens_need_their_lengths(name):
    with pytest.raises(ValueError, match="needs token_lengths"):
        batch_advantages([[0.0, 1.0]], estimator=name)


def test_arrays_for_remax_need_the_greedy_rewards_one_for_each_group():
    with pytest.raises(ValueError, match="needs greedy"):
        batch_advantages([[0.0, 1.0]], estimator="remax")
    with pytest.raises(ValueError, match=r"greedy: expected shape \(1, 1\), received \(2, 1\)"):
        batch_advantages([[0.0, 1.0]], estimator="remax", greedy=[0.0, 1.0])
    with pytest.raises(ValueError, match=f"greedy reward 0 of group 0 is nan; {OUT_OF_RANGE}"):
        batch_advantages([[0.0, 1.0]], estimator="remax", greedy=[math.nan])
    with pytest.raises(ValueError, match=f"greedy reward 0 is inf; {OUT_OF_RANGE}"):
        group_advantage([0.0, 1.0], "remax", greedy=math.inf)


@pytest.mark.parametrize(
    "lengths", [[[1.0]], [[1.0, -1.0]], [[1.0, math.nan]], [[1.0, None]], [[1.0, "x"]], [1.0, 2.0]]
)
def test_token_lengths_that_do_not_fit_are_refused(lengths):
    with pytest.raises(ValueError, match=r"token.length(s:| 1 of group 0)"):
        batch_advantages([[0.0, 1.0]], estimator="opo", token_lengths=lengths)
    with pytest.raises(ValueError, match=r"token.length(s:| 1 is)"):
        group_advantage([0.0, 1.0], "opo", token_lengths=lengths[0] if isinstance(lengths[0], list) else [1.0])


def test_a_batch_without_tokens_cannot_be_weighed_by_them():
    for name in ("opo", "reinforce++"):
        with pytest.raises(ValueError, match="token"):
            batch_advantages([[0.0, 1.0]], estimator=name, token_lengths=[[0, 0]])
    with pytest.raises(ValueError, match="the completions of group 2 have no tokens"):
        batch_advantages([[0.0, 1.0], [None], [0.0]], estimator="opo", token_lengths=[[1, 1], [None], [0]])
    with pytest.raises(ValueError, match="no tokens to weigh by"):
        group_advantage([0.0, 1.0], "opo", token_lengths=[0, 0])


# --- groups of one


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"grpo_sample_eps1e-9"}))
def test_a_reward_alone_in_its_group_gets_what_its_trainer_gives_it(name):
    keep = {
        "grpo_sample_eps1e-6": 0.7 / (1 + 1e-6),
        "grpo_sample_eps1e-6_variance_floor": 0.7 / (1 + 1e-6),
        "rloo_keep_single": 0.7,
        "remax": 0.7 - 0.5,  # these two have no group baseline
        "reinforce_plus_plus": (0.7 - 2.9 / 7) / math.sqrt((3 * 0.49 + 2 * 0.01 + 2 * 0.09 - 2.9**2 / 7) / 6 + 1e-8),
    }
    more = {"token_lengths": [[3], [2, 2]], "greedy": [0.5, 0.5]}
    value = batch_advantages([[0.7], [0.1, 0.3]], estimator=name, **more)[0, 0]
    assert value == pytest.approx(keep.get(name, 0.0), abs=1e-12)
    if name in OF_ONE_GROUP:
        alone = group_advantage([0.7], name, token_lengths=[3], greedy=0.5)
        assert alone.advantages == pytest.approx([value], abs=1e-12)


def test_openrlhf_refuses_a_group_of_one_as_the_trainer_does():
    with pytest.raises(ValueError, match="group 0 has a single reward"):
        group_advantage([0.7], "openrlhf")
    with pytest.raises(ValueError, match="group 2 has a single reward"):
        batch_advantages([[1.0, 0.0], [None, None], [None, 0.2]], estimator="openrlhf")
    assert np.isfinite(batch_advantages([[1.0, 0.0], []], estimator="openrlhf")[0]).all()


# --- ragged groups, masks, what is refused


@given(batches)
def test_absent_rewards_are_ignored_at_any_index(rewards):
    holes = [[None, *(value for reward in group for value in (reward, None))] for group in rewards]
    width = max(map(len, holes))
    filled = np.array(
        [[9e9 if value is None else value for value in group] + [7e7] * (width - len(group)) for group in holes]
    )
    mask = np.array([[value is not None for value in group] + [False] * (width - len(group)) for group in holes])
    for name in ("grpo", "verl", "trl_batch", "batch_whiten", "rloo", "gpg", "pass_at_k", "rank", "normal_score"):
        expected = [list(row) for row in present_values(batch_advantages(rewards, estimator=name))]
        for values in (batch_advantages(holes, estimator=name), batch_advantages(filled, mask, name)):
            assert present_values(values) == [pytest.approx(row, rel=1e-9, abs=1e-9) for row in expected]


def test_absent_rewards_have_no_advantage_and_a_group_without_any_is_all_fill():
    values = batch_advantages([[1.0, None, 0.0], [None, None], []])
    np.testing.assert_array_equal(np.isnan(values), [[0, 1, 0], [1, 1, 1], [1, 1, 1]])
    np.testing.assert_array_equal(batch_advantages([[1.0, None], [None]], fill=0.0)[1], [0.0, 0.0])
    for name in NAMES:
        got = batch_advantages(
            [[1.0, 0.0], [None, None]], estimator=name, token_lengths=[[1, 2], [None, None]], greedy=[0.0, math.nan]
        )
        assert np.isnan(got[1]).all()
        assert np.isfinite(got[0]).all()


def test_a_batch_without_any_reward_has_no_advantages_and_no_error():
    for name in ("grpo", "trl_batch", "gpg", "rank", "batch_whiten"):
        assert np.isnan(batch_advantages([[None, None]], estimator=name)).all()


@pytest.mark.parametrize("name", ["grpo", "rank", "remax"])
def test_an_integer_that_no_float_holds_is_refused(name):
    with pytest.raises(ValueError, match="finite"):
        group_advantage([0, 10**400], name, greedy=0.0)
    with pytest.raises(ValueError, match="finite"):
        batch_advantages([[0, 10**400]], estimator=name, greedy=[0.0])
    with pytest.raises(ValueError, match="finite"):
        group_advantage([0, 1], "remax", greedy=10**400)


def test_only_a_mask_hides_nan():
    rewards = np.array([[0.0, 1.0, math.nan], [math.inf, 1.0, 2.0]])
    mask = np.array([[True, True, False], [False, True, True]])
    assert present_values(batch_advantages(rewards, mask)) == [pytest.approx([-1, 1], rel=1e-6)] * 2
    with pytest.raises(ValueError, match=f"reward 2 of group 0 is nan and 1 more; {OUT_OF_RANGE}"):
        batch_advantages(rewards)
    with pytest.raises(ValueError, match="reward 1 of group 0 is nan"):
        batch_advantages([[0.0, None]], [[True, True]])


def test_a_mask_is_written_as_trainers_do_or_as_ragged_as_the_rewards():
    rewards = [[1.0, 0.0, 0.5], [1.0, 0.5]]
    expected = batch_advantages([[1.0, 0.0], [1.0, 0.5]])
    for mask in ([[True, True, False], [True, True]], [[1, 1, 0], [1, 1, 0]], np.array([[1.0, 1.0, 0.0]] * 2)):
        values = batch_advantages(rewards, mask)
        np.testing.assert_array_equal(values[:, :2], expected)
        assert np.isnan(values[:, 2]).all()


def test_groups_of_width_zero_give_no_advantages():
    for empty in ([[]], [[], []], np.zeros((2, 0))):
        assert batch_advantages(empty, estimator="rank").shape == (len(empty), 0)


def test_what_has_no_tokens_takes_no_part_in_statistics_over_tokens():
    values = batch_advantages([[1e100, 0.25], [0.25]], estimator="reinforce++", token_lengths=[[0, 1], [1]])
    np.testing.assert_allclose(values, [[1e104, 0.0], [0.0, np.nan]], rtol=1e-12)


@pytest.mark.parametrize(
    ("rewards", "mask", "message"),
    [
        ([], None, "at least one group"),
        (np.zeros(3), None, r"rewards: expected a sequence for each group, received array\(\[0"),
        (np.zeros((1, 2, 2)), None, r"rewards: expected numbers, received array\(\[0"),
        ([0.0, 1.0], None, r"rewards: expected a sequence for each group, received \[0.0, 1.0\]"),
        ([["a", "b"]], None, "expected numbers, received 'a'"),
        ([[[0.0], [1.0]]], None, "expected numbers"),
        (np.array([["a", "b"]]), None, "expected numbers, received .*'a'"),
        ([[0.0, 1.0]], [[2, 0]], "mask 0 of group 0 is 2; accepted: true or false, 1 or 0"),
        ([[0.0, 1.0]], [["yes", "no"]], "mask: expected numbers, received 'yes'"),
        ([[0.0, 1.0]], [True, False], "mask: expected a sequence for each group"),
        ([[0.0, 1.0], [0.0, 1.0]], [[True], [True, True]], "mask 1 of group 0 is nan"),
        ([[0.0, 1.0], [0.0]], [[None, True], [True]], "mask 0 of group 0 is nan"),
        ([[0.0, 1.0]], [[True]], r"mask: expected shape \(1, 2\), received \(1, 1\)"),
    ],
)
def test_shapes_and_types_that_do_not_fit_are_refused(rewards, mask, message):
    with pytest.raises(ValueError, match=message):
        batch_advantages(rewards, mask)


def test_what_is_no_number_is_a_value_error_that_names_it():
    with pytest.raises(ValueError, match="token length 0 is 'x'"):
        group_advantage([1.0, 2.0], "opo", token_lengths=["x", 2])
    with pytest.raises(ValueError, match="greedy reward 0 is 'x'"):
        group_advantage([1.0, 2.0], "remax", greedy="x")
    with pytest.raises(ValueError, match=r"greedy: expected numbers, received .*'x'"):
        batch_advantages([[1.0, 2.0]], estimator="remax", greedy=["x"])


def test_integers_truth_values_objects_and_lists_of_arrays_are_numbers_too():
    expected = batch_advantages([[1.0, 0.0], [0.0, 1.0]])
    for same in (
        np.array([[1, 0], [0, 1]]),
        np.array([[True, False], [False, True]]),
        np.array([[1.0, 0], [0, 1]], dtype=object),
        [np.array([1.0, 0.0]), np.array([0.0, 1.0])],
        [(True, False), (False, True)],
        [[np.float32(1), np.float64(0)], [0, 1]],
    ):
        np.testing.assert_array_equal(batch_advantages(same), expected)


def test_the_input_rewards_are_not_changed():
    rewards = np.array([[1.0, 0.0, 0.5], [3.0, 3.0, 3.0]])
    before = rewards.copy()
    for name in NAMES:
        batch_advantages(rewards, estimator=name, token_lengths=np.ones((2, 3)), greedy=np.zeros(2))
    np.testing.assert_array_equal(rewards, before)


def test_an_estimator_of_ones_own_goes_where_a_name_does():
    own = Estimator("own", "group_std", "(r - m) / (s1 + 0.1)", 1, 0.1)
    assert group_advantage([0.0, 1.0], own).std == 0.5
    assert estimator_of(own) is own
