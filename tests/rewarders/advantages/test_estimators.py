"""Every estimator gives the known values, one group at a time and as arrays, and keeps its invariants."""

from __future__ import annotations

import math
import typing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from tests.support.rewards.estimators import (
    NAMES,
    arrays,
    batches,
    greedy_of,
    group_by_group,
    lengths_of,
    present_values,
)
from tests.support.vectors import read_vectors
from tfgrpo.rewarders.advantages.batch import batch_advantages, batch_statistics
from tfgrpo.rewarders.advantages.estimators import ALIASES, ESTIMATORS, Estimator, EstimatorName, estimator_of
from tfgrpo.rewarders.advantages.group import group_advantage

CASES = read_vectors("advantage_estimators")
NOT_ESTIMATORS = {"name", "rewards", "token_lengths"}
KNOWN = [(case, name) for case in CASES for name in case if name not in NOT_ESTIMATORS]
GROUP_CASES = read_vectors("group_advantage")


@pytest.mark.parametrize(("case", "name"), KNOWN, ids=lambda value: value if isinstance(value, str) else value["name"])
def test_the_estimator_gives_the_known_values_one_by_one_and_as_arrays(case, name):
    lengths = case["token_lengths"]
    assert group_by_group(case["rewards"], name, lengths) == [
        pytest.approx(row, rel=1e-9, abs=1e-12) for row in case[name]
    ]
    whole = batch_advantages(np.array(case["rewards"]), estimator=name, token_lengths=lengths)
    np.testing.assert_allclose(whole, case[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", [case for case in GROUP_CASES if case["finite"]], ids=lambda case: case["name"])
def test_arrays_agree_with_the_house_estimator_on_its_hard_cases(case):
    np.testing.assert_allclose(
        batch_advantages([case["rewards"], [0.0, 1.0]])[0, : len(case["rewards"])],
        case["advantages"],
        rtol=1e-9,
        atol=1e-9,
    )


def test_rewards_whose_sum_overflows_are_scaled_as_in_the_plain_form():
    groups = [[1.7e308, 1.7e308, -1.7e308], [1e300, -1e300, 0.0], [0.0, 0.5, 1.0], [5e-324, 1e-323, 0.0]]
    for name in ("grpo", "trl", "openrlhf", "verl_vectorized", "centered_rank", "pass_at_k_normalised"):
        expected = [group_advantage(group, name).advantages for group in groups[1:]]
        np.testing.assert_allclose(batch_advantages(groups[1:], estimator=name), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(batch_advantages(groups), [group_advantage(group).advantages for group in groups])


@pytest.mark.parametrize("name", ["mean_only", "rloo", "remax", "gpg", "pass_at_k"])
def test_an_advantage_beyond_the_range_of_a_float_is_an_error_in_both_forms(name):
    group = [1.7e308, *[-1.7e308] * 9]
    with pytest.raises(ValueError, match="no finite advantage"):
        group_advantage(group, name, batch=batch_statistics([[1.0, 2.0]]), greedy=-1.7e308)
    with pytest.raises(ValueError, match="group 1 have no finite advantage"):
        batch_advantages([[0.0] * 10, group], estimator=name, greedy=[0.0, -1.7e308])


@pytest.mark.parametrize("name", ["batch_whiten", "trl_batch", "reinforce++"])
def test_a_batch_whose_spread_overflows_is_an_error_in_both_forms(name):
    group = [1.7e308, -1.7e308]
    with pytest.raises(ValueError, match="no finite"):
        batch_statistics([group], [[1, 1]])
    with pytest.raises(ValueError, match="no finite"):
        batch_advantages([group], estimator=name, token_lengths=[[1, 1]])


# --- names


def test_names_and_aliases_are_the_ones_of_the_type():
    assert set(typing.get_args(EstimatorName)) == set(ESTIMATORS) | set(ALIASES)
    assert set(ALIASES.values()) <= set(ESTIMATORS)
    assert {name for _, name in KNOWN} <= set(ESTIMATORS)
    assert all(estimator_of(name).name == ALIASES[name] for name in ALIASES)


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
    for name in ("trl_batch", "batch_whiten", "reinforce++"):
        bare = replace(estimator_of(name), epsilon=0.0)
        assert group_by_group([[1.0, 1.0]], bare, [[1, 1]]) == [(0.0, 0.0)]
        np.testing.assert_array_equal(batch_advantages([[1.0, 1.0]], estimator=bare, token_lengths=[[1, 1]]), [[0, 0]])


# --- what an estimator needs


@pytest.mark.parametrize(
    ("name", "missing"), [("opo", "token_lengths"), ("remax", "greedy"), ("gpg", "batch"), ("reinforce++", "batch")]
)
def test_a_missing_input_of_an_estimator_is_named(name, missing):
    with pytest.raises(ValueError, match=f"needs {missing}"):
        group_advantage([0.0, 1.0], name)


def test_statistics_without_lengths_do_not_serve_an_estimator_that_weighs_tokens():
    with pytest.raises(ValueError, match="needs batch statistics with token lengths"):
        group_advantage([0.0, 1.0], "reinforce++", batch=batch_statistics([[0.0, 1.0]]))


@pytest.mark.parametrize("name", ["opo", "reinforce++", "reinforce++_baseline"])
def test_arrays_that_weigh_tokens_need_their_lengths(name):
    with pytest.raises(ValueError, match="needs token_lengths"):
        batch_advantages([[0.0, 1.0]], estimator=name)


def test_arrays_for_remax_need_the_greedy_rewards_one_for_each_group():
    with pytest.raises(ValueError, match="needs greedy"):
        batch_advantages([[0.0, 1.0]], estimator="remax")
    with pytest.raises(ValueError, match=r"greedy: expected shape \(1,\)"):
        batch_advantages([[0.0, 1.0]], estimator="remax", greedy=[0.0, 1.0])
    with pytest.raises(ValueError, match="greedy: group 0 has nan"):
        batch_advantages([[0.0, 1.0]], estimator="remax", greedy=[math.nan])
    with pytest.raises(ValueError, match="only finite"):
        group_advantage([0.0, 1.0], "remax", greedy=math.inf)


@pytest.mark.parametrize("lengths", [[[1.0]], [[1.0, -1.0]], [[1.0, math.nan]], [[1.0, None]]])
def test_token_lengths_that_do_not_fit_are_refused(lengths):
    with pytest.raises(ValueError, match="token_lengths: "):
        batch_advantages([[0.0, 1.0]], estimator="opo", token_lengths=lengths)
    with pytest.raises(ValueError, match="token_lengths: "):
        group_advantage([0.0, 1.0], "opo", token_lengths=lengths[0])
    with pytest.raises(ValueError, match="token_lengths: "):
        batch_statistics([[0.0, 1.0]], lengths)
    with pytest.raises(ValueError, match="token_lengths: expected one for each reward"):
        batch_statistics([[0.0, 1.0]] * 2, [[1, 1]])


def test_a_batch_without_tokens_cannot_be_weighed_by_them():
    for name in ("opo", "reinforce++"):
        with pytest.raises(ValueError, match="token"):
            group_by_group([[0.0, 1.0]], name, [[0, 0]])
        with pytest.raises(ValueError, match="token"):
            batch_advantages([[0.0, 1.0]], estimator=name, token_lengths=[[0, 0]])


# --- groups of one


def test_a_reward_alone_in_its_group_gets_what_its_trainer_gives_it():
    statistics = batch_statistics([[0.7], [0.1, 0.3]], [[3], [2, 2]])
    given_values = {
        name: group_advantage([0.7], name, token_lengths=[3], batch=statistics, greedy=0.5).advantages[0]
        for name in NAMES
        if ESTIMATORS[name].singleton != "refuse"
    }
    keep = {
        "grpo_sample_eps1e-6": 0.7 / (1 + 1e-6),
        "grpo_sample_eps1e-6_variance_floor": 0.7 / (1 + 1e-6),
        "rloo_keep_single": 0.7,
    }
    for name, value in given_values.items():
        if name not in {"remax", "reinforce_plus_plus"}:  # those have no group baseline
            assert value == pytest.approx(keep.get(name, 0.0), abs=1e-12), name
        whole = batch_advantages([[0.7], [0.1, 0.3]], estimator=name, token_lengths=[[3], [2, 2]], greedy=[0.5, 0.5])
        assert whole[0, 0] == pytest.approx(value, abs=1e-12), name


def test_openrlhf_refuses_a_group_of_one_as_the_trainer_does():
    with pytest.raises(ValueError, match="group 0 has a single reward"):
        group_advantage([0.7], "openrlhf")
    with pytest.raises(ValueError, match="group 0 and 1 more has a single reward"):
        batch_advantages([[0.7], [1.0, 0.0], [None, 0.2]], estimator="openrlhf")


# --- ragged groups, masks, what is refused


@given(batches)
def test_ragged_arrays_agree_with_the_loop_over_single_groups(rewards):
    lengths, greedy = lengths_of(rewards), greedy_of(rewards)
    for name in NAMES:
        expected = group_by_group(rewards, name, lengths, greedy)
        for row, values in zip(present_values(arrays(rewards, name)), expected, strict=True):
            assert row == pytest.approx(list(values), rel=1e-9, abs=1e-9), name


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
    with pytest.raises(ValueError, match="group 0, index 2 is nan and 1 more; only finite rewards"):
        batch_advantages(rewards)
    with pytest.raises(ValueError, match="group 0, index 1 is absent, but the mask counts it"):
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


def test_rewards_that_overflow_on_the_way_are_one_error_and_no_other():
    for huge in ([1.7e308, 1.7e308, -1.7e308], [1.7e308, 0.0, 0.0, 0.0, 0.0]):
        lengths = [1, *[900] * (len(huge) - 1)]
        with pytest.raises(
            ValueError, match="opo_length_weighted: rewards as large as those of group 0 have no finite"
        ):
            group_advantage(huge, "opo", token_lengths=lengths)
        with pytest.raises(
            ValueError, match="opo_length_weighted: rewards as large as those of group 0 have no finite"
        ):
            batch_advantages([huge], estimator="opo", token_lengths=[lengths])


def test_what_has_no_tokens_takes_no_part_in_statistics_over_tokens():
    rewards, lengths = [[1e150, 0.25], [0.25]], [[0, 1], [1]]
    batch = batch_statistics(rewards, lengths)
    single = [group_advantage(row, "reinforce++", batch=batch).advantages for row in rewards]
    values = batch_advantages(rewards, estimator="reinforce++", token_lengths=lengths)
    assert single == [(pytest.approx(1e154), 0.0), (0.0,)]
    np.testing.assert_allclose(values, [[1e154, 0.0], [0.0, np.nan]], rtol=1e-12)


def test_huge_finite_rewards_are_no_infinity():
    np.testing.assert_allclose(batch_advantages(np.array([[1.7e308, 1.7e308]])), [[0.0, 0.0]])


@pytest.mark.parametrize(
    ("rewards", "mask", "message"),
    [
        ([], None, "at least one group"),
        (np.zeros(3), None, r"expected shape \(groups, group size\), received \(3,\)"),
        (np.zeros((1, 2, 2)), None, "expected shape"),
        ([0.0, 1.0], None, "expected a sequence for each group, received 0.0 at group 0"),
        ([["a", "b"]], None, "expected numbers, received 'a'"),
        ([[[0.0], [1.0]]], None, "expected numbers"),
        (np.array([["a", "b"]]), None, "expected numbers, received <U1"),
        ([[0.0, 1.0]], [[2, 0]], "mask: expected truth values, or 0 and 1, received 2 at group 0, index 0"),
        ([[0.0, 1.0]], [["yes", "no"]], "mask: expected truth values"),
        ([[0.0, 1.0]], [True, False], "mask: expected truth values, one sequence for each group"),
        ([[0.0, 1.0], [0.0, 1.0]], [[True], [True, True]], "mask: group 0, index 1 has a reward and no truth value"),
        ([[0.0, 1.0], [0.0]], [[None, True], [True]], "mask: group 0, index 0 has a reward and no truth value"),
        ([[0.0, 1.0]], [[True]], r"mask: expected shape \(1, 2\), as the rewards, received \(1, 1\)"),
    ],
)
def test_shapes_and_types_that_do_not_fit_are_refused(rewards, mask, message):
    with pytest.raises(ValueError, match=message):
        batch_advantages(rewards, mask)


def test_what_is_no_number_is_a_value_error_that_names_it():
    with pytest.raises(ValueError, match="token_lengths: expected numbers, received 'x'"):
        group_advantage([1.0, 2.0], "opo", token_lengths=["x", 2])
    for greedy in ("x", math.nan):
        with pytest.raises(ValueError, match=r"greedy: .*(received \['x'\]|only finite rewards)"):
            group_advantage([1.0, 2.0], "remax", greedy=greedy)
    with pytest.raises(ValueError, match=r"greedy: expected a finite number for each group, received \['x'\]"):
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


def test_statistics_need_a_batch():
    with pytest.raises(ValueError, match="at least one group"):
        batch_statistics([])
    with pytest.raises(ValueError, match="at least one reward"):
        batch_statistics([[]])


def test_an_estimator_of_ones_own_goes_where_a_name_does():
    own = Estimator("own", "group_std", "(r - m) / (s1 + 0.1)", 1, 0.1)
    assert group_advantage([0.0, 1.0], own).std == 0.5
    assert estimator_of(own) is own
