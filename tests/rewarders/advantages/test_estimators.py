"""Every estimator gives the known values, keeps its invariants, names what it needs, and refuses what it cannot compare."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.vectors import read_vectors, rows_of
from tfgrpo.rewarders.advantages.batch import (
    ESTIMATORS,
    PRESET_ALIASES,
    Estimator,
    batch_advantages,
    estimator_of,
    multi_reward_advantages,
)
from tfgrpo.rewarders.advantages.group import group_advantage

CASES = read_vectors("advantage_estimators")
KNOWN = [(case, name) for case in CASES for name in case if name not in {"name", "rewards", "token_lengths"}]
NAMES = sorted(ESTIMATORS)
OF_ONE_GROUP = [name for name in NAMES if "batch" not in ESTIMATORS[name].needs]
WITHIN = [name for name in NAMES if name != "remax"]
"""Without ReMax, which compares with a reward from outside the group."""
SCALES = {"mean_only", "rloo", "rloo_keep_single", "opo_length_weighted", "pass_at_k_top1_minus_top2", "gpg"}
OUT_OF_RANGE = "accepted: finite numbers from"

sane = st.floats(-100, 100).map(lambda value: round(value, 3))
batches = st.lists(st.lists(sane, min_size=2, max_size=6), min_size=1, max_size=5)


def lengths_of(rewards):
    return [[1 + (7 * row + 3 * column) % 11 for column in range(len(group))] for row, group in enumerate(rewards)]


def rows(rewards, name, mask=None, lengths=None):
    """Return the advantages of each group, without those of absent rewards."""
    more = {"token_lengths": lengths_of(rewards) if lengths is None else lengths, "greedy": [0.5] * len(rewards)}
    values = batch_advantages(rewards, mask, name, **more)
    return [[value for value in row if not math.isnan(value)] for row in values.tolist()]


def near(expected, tolerance=1e-9):
    return [pytest.approx(row, rel=tolerance, abs=tolerance) for row in expected]


# --- values


def test_the_estimator_gives_the_known_values_one_by_one_and_as_arrays():
    for case, name in KNOWN:
        lengths = case["token_lengths"]
        whole = batch_advantages(np.array(case["rewards"]), estimator=name, token_lengths=lengths)
        np.testing.assert_allclose(whole, case[name], rtol=1e-9, atol=1e-12, err_msg=f"{name} {case['name']}")
        for group, tokens, expected in zip(case["rewards"], lengths, case[name], strict=True) if name in OF_ONE_GROUP else ():
            values = group_advantage(group, name, token_lengths=tokens).advantages
            assert values == pytest.approx(expected, rel=1e-9, abs=1e-12), (name, case)


def test_arrays_give_the_known_values_of_hard_groups_and_refuse_those_beyond_the_range_of_scores():
    for case in read_vectors("group_advantage"):
        rewards = [float(reward) for reward in case["rewards"]]
        if all(abs(reward) <= 1e100 for reward in rewards):
            assert rows([rewards, [0.0, 1.0]], "grpo")[0] == pytest.approx(case["advantages"], rel=1e-9, abs=1e-9), case
        else:
            with pytest.raises(ValueError, match=f"reward 0 of group 1 is .*{OUT_OF_RANGE}"):
                batch_advantages([[0.0, 1.0], rewards])


def test_the_greatest_rewards_have_finite_advantages_and_greater_ones_are_refused_by_group_and_index():
    for name in NAMES:
        assert np.isfinite(rows([[0.0, 1.0, 2.0], [1e100, -1e100, 1e100]], name)).all(), name
    for reward in (1.0001e100, -1.7e308, math.inf, math.nan):
        with pytest.raises(ValueError, match=rf"reward 1 of group 1 is .*{OUT_OF_RANGE} -1e\+100 to 1e\+100"):
            rows([[0.0, 1.0, 2.0], [0.0, reward, 2.0]], "grpo")


def test_a_reward_alone_in_its_group_gets_what_its_trainer_gives_it_and_openrlhf_refuses_it_as_the_trainer_does():
    kept = {"rloo_keep_single": 0.7, "remax": 0.2}
    kept |= dict.fromkeys(("grpo_sample_eps1e-6", "grpo_sample_eps1e-6_variance_floor"), 0.7 / (1 + 1e-6))
    for name in (name for name in NAMES if ESTIMATORS[name].singleton != "refuse"):
        expected = pytest.approx([kept.get(name, 0.0)], abs=1e-12)
        if "token_lengths" not in ESTIMATORS[name].needs or name == "opo_length_weighted":
            assert rows([[0.7], [1.0, 0.0]], name)[0] == expected, name
        if name in OF_ONE_GROUP:
            assert group_advantage([0.7], name, token_lengths=[3], greedy=0.5).advantages == expected, name
    with pytest.raises(ValueError, match="group 0 has a single reward"):
        group_advantage([0.7], "openrlhf")
    with pytest.raises(ValueError, match="group 2 has a single reward"):
        batch_advantages([[1.0, 0.0], [None, None], [None, 0.2]], estimator="openrlhf")
    assert np.isfinite(rows([[1.0, 0.0], []], "openrlhf")[0]).all()


def test_constants_that_no_vector_reaches_have_their_values_by_hand():
    floor = 5e-5 / (1e-3 + 1e-6)  # of the variance
    assert rows([[0.0, 1e-4]], "verl_vectorized") == near([[-floor, floor]])
    assert rows([[0.0, 1.0], [0.0, 0.0]], "gpg") == near([[-2.0, 2.0], [0.0, 0.0]])  # one of four rewards is not zero


# --- invariants


@given(batches, st.randoms(use_true_random=False))
def test_a_group_has_alone_and_in_any_order_the_advantages_that_it_has_in_a_ragged_batch(rewards, random):
    lengths = lengths_of(rewards)
    order = [random.sample(range(len(group)), len(group)) for group in rewards]
    shuffled, moved = (
        [[group[at] for at in places] for group, places in zip(given_as, order, strict=True)][::-1]
        for given_as in (rewards, lengths)
    )
    for name in NAMES:
        found = rows(rewards, name)
        wanted = [[row[at] for at in places] for row, places in zip(found, order, strict=True)][::-1]
        assert rows(shuffled, name, lengths=moved) == near(wanted), name
        if name in OF_ONE_GROUP:
            for row, group, tokens in zip(found, rewards, lengths, strict=True):
                alone = group_advantage(group, name, token_lengths=tokens, greedy=0.5).advantages
                assert row == pytest.approx(list(alone), rel=1e-9, abs=1e-9), name


@given(batches, st.sampled_from([-3.0, 0.5, 40.0]), st.sampled_from([0.5, 2.0, 1024.0]))
def test_advantages_follow_a_shift_and_a_change_of_scale_as_their_formula_does(rewards, shift, factor):
    for name in WITHIN:
        found = rows(rewards, name)
        if name != "gpg":  # it counts rewards that are zero
            assert rows([[reward + shift for reward in group] for group in rewards], name) == near(found, 1e-6), name
        scaled = rows([[reward * factor for reward in group] for group in rewards], name)
        if name in SCALES:
            assert scaled == near([[value * factor for value in row] for row in found]), name
        elif ESTIMATORS[name].kind == "rank":
            assert scaled == near(found), name


@given(batches)
def test_a_batch_twice_over_gives_the_population_form_of_every_group_twice(rewards):
    for name in ("grpo", "mean_only", "batch_whiten", "gpg"):
        assert rows(rewards * 2, name) == near(rows(rewards, name) * 2)


@given(batches)
def test_absent_rewards_are_ignored_at_any_index(rewards):
    holes = [[None, *(value for reward in group for value in (reward, None))] for group in rewards]
    width = max(map(len, holes))
    filled = np.array([[9e9 if each is None else each for each in group] + [7e7] * (width - len(group)) for group in holes])
    mask = np.array([[each is not None for each in group] + [False] * (width - len(group)) for group in holes])
    for name in WITHIN:
        wanted = near(rows(rewards, name, lengths=[[2] * len(group) for group in rewards]))
        assert rows(holes, name, lengths=[[2] * len(group) for group in holes]) == wanted
        assert rows(filled, name, mask, lengths=np.full(filled.shape, 2)) == wanted


# --- names and constants


def test_every_alias_is_a_name_of_its_estimator():
    assert {name for _, name in KNOWN} <= set(ESTIMATORS)
    assert not set(PRESET_ALIASES) & set(ESTIMATORS)
    for alias, name in PRESET_ALIASES.items():
        assert estimator_of(alias) is ESTIMATORS[name]
    for ask in (lambda: group_advantage([1.0, 0.0], "ppo"), lambda: batch_advantages([[1.0, 0.0]], estimator="ppo")):
        with pytest.raises(ValueError, match=r"unknown estimator 'ppo'; known: grpo, trl, .*centered_rank"):
            ask()


def test_an_estimator_with_constants_that_make_no_sense_cannot_be_made():
    constants = (("kind", "mean"), ("ddof", 2), ("epsilon", -1.0), ("epsilon", math.nan), ("variance_floor", -1.0))
    for field, value in (*constants, ("singleton", "x")):
        with pytest.raises(ValueError, match=rf"1 validation error for Estimator\n{field}\n"):
            replace(ESTIMATORS["mean_only"], **{field: value})


def test_constants_are_parameters_and_an_estimator_of_ones_own_goes_where_a_name_does():
    own = Estimator("own", "group_std", "(r - m) / (s1 + 0.5)", 1, 0.5)
    assert replace(estimator_of("grpo"), name="own", formula=own.formula, ddof=1, epsilon=0.5, alias=None) == own
    expected = [-0.5 / (math.sqrt(0.5) + 0.5), 0.5 / (math.sqrt(0.5) + 0.5)]
    assert rows([[0.0, 1.0]], own) == near([expected])
    assert group_advantage([0.0, 1.0], own).advantages == pytest.approx(expected)
    assert group_advantage([0.0, 1.0], own).std == 0.5


# --- what is refused


def test_shapes_and_types_that_do_not_fit_are_refused():
    for rewards, mask, message in (
        *rows_of("estimators", "shapes_and_types_that_do_not_fit_are_refused"),
        (np.zeros(3), None, r"rewards: expected numbers, in a sequence for each group, received array\(\[0"),
        (np.zeros((1, 2, 2)), None, "rewards: expected numbers, "),
        (np.array([["a", "b"]]), None, "expected numbers, .* received .*'a'"),
        ([[0, 10**400]], None, "rewards: expected numbers"),
        ([[0.0, 1.0, math.nan], [math.inf]], None, f"reward 2 of group 0 is nan and 1 more; {OUT_OF_RANGE}"),
    ):
        with pytest.raises(ValueError, match=message):
            batch_advantages(rewards, mask)


def test_what_an_estimator_needs_is_named_and_checked_and_one_group_never_stands_in_for_it():
    for name, more, message in (
        *rows_of("estimators", "what_an_estimator_needs_is_named_and_checked"),
        *((name, {}, "needs token_lengths") for name in ("opo", "reinforce++", "reinforce++_baseline")),
        *(("opo", {"token_lengths": [each]}, "token.length") for each in ([1.0], [1.0, -1.0], [1.0, None], [1.0, "x"])),
        ("remax", {"greedy": [math.nan]}, f"greedy reward 0 of group 0 is nan; {OUT_OF_RANGE}"),
    ):
        with pytest.raises(ValueError, match=message):
            batch_advantages([[0.0, 1.0]], estimator=name, **more)
    for name in ("gpg", "trl_batch", "reinforce++", "opo", "remax"):
        with pytest.raises(ValueError, match=f"{estimator_of(name).name.replace('+', '.')} needs"):
            group_advantage([0.0, 1.0], name)


# --- forms


def test_absent_rewards_have_no_advantage_and_a_group_without_any_is_all_fill():
    values = batch_advantages([[1.0, None, 0.0], [None, None], []])
    np.testing.assert_array_equal(np.isnan(values), [[0, 1, 0], [1, 1, 1], [1, 1, 1]])
    np.testing.assert_array_equal(batch_advantages([[1.0, None], [None]], fill=0.0)[1], [0.0, 0.0])
    for name in NAMES:
        more = {"token_lengths": [[1, 2], [None, None]], "greedy": [0.0, math.nan]}
        got = batch_advantages([[1.0, 0.0], [None, None]], estimator=name, **more)
        assert (np.isnan(got[1]).all(), np.isfinite(got[0]).all()) == (True, True)
        assert np.isnan(rows([[None, None]], name)).all()
    for empty in ([[]], [[], []], np.zeros((2, 0))):
        assert batch_advantages(empty, estimator="rank").shape == (len(empty), 0)


def test_a_mask_is_written_as_trainers_do_or_as_ragged_as_the_rewards_and_alone_hides_nan():
    expected = rows([[1.0, 0.0], [1.0, 0.5]], "grpo")
    for mask in ([[True, True, False], [True, True]], [[1, 1, 0], [1, 1, 0]], np.array([[1.0, 1.0, 0.0]] * 2)):
        assert rows([[1.0, 0.0, 0.5], [1.0, 0.5]], "grpo", mask) == expected
        assert rows([[1.0, 0.0, math.nan], [1.0, 0.5]], "grpo", mask) == expected


def test_what_has_no_tokens_takes_no_part_in_statistics_over_tokens():
    values = batch_advantages([[1e100, 0.25], [0.25]], estimator="reinforce++", token_lengths=[[0, 1], [1]])
    np.testing.assert_allclose(values, [[1e104, 0.0], [0.0, np.nan]], rtol=1e-12)


# --- several rewards


def test_several_rewards_are_normalised_before_they_are_added_up():
    parts = {"exact": [[0.0, 1.0], [1.0, 1.0]], "style": [[90.0, 10.0], [40.0, 60.0]]}
    values = multi_reward_advantages(parts, {"exact": 1.0, "style": 0.5}, epsilon=0.0)
    unit = 1 / math.sqrt(2)
    sums = np.array([[-unit + 0.5 * unit, unit - 0.5 * unit], [-0.5 * unit, 0.5 * unit]])
    np.testing.assert_allclose(values, (sums - sums.mean()) / sums.std(ddof=1), rtol=1e-9)


def test_a_part_that_is_absent_leaves_the_others_and_a_rollout_without_any_has_none():
    values = multi_reward_advantages({"a": [[0.0, 1.0, None]], "b": [[None, 1.0, None]]}, {"a": 1.0, "b": 1.0})
    np.testing.assert_array_equal(np.isfinite(values), [[True, True, False]])
    assert np.isnan(multi_reward_advantages({"a": [[None]]}, {"a": 1.0})).all()
    half = 0.5 / (math.sqrt(0.5) + 1e-4)
    default = multi_reward_advantages({"a": [[0.0, 1.0]]}, {"a": 1.0})[0, 1]
    assert default == pytest.approx(half / (half * math.sqrt(2) + 1e-4), rel=1e-9)
    assert multi_reward_advantages({"a": [[1.0]]}, {"a": 1.0}, epsilon=0.0).tolist() == [[0.0]]


def test_several_rewards_that_do_not_fit_together_are_refused():
    for parts, weights, message in (
        ({}, {}, "number for each"),
        ({"a": [[0.0, 1.0]]}, {"b": 1.0}, "number for each of"),
        ({"a": [[0.0, 1.0]]}, {"a": math.inf}, "a finite number for each of .*'a': inf"),
        ({"a": [[0.0, 1.0]], "b": [[0.0]]}, {"a": 1.0, "b": 1.0}, "expected one shape"),
    ):
        with pytest.raises(ValueError, match=message):
            multi_reward_advantages(parts, weights)
