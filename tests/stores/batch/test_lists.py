"""Four lists become a batch and come back as they were; lists that do not fit together are refused."""

from __future__ import annotations

import gc
import math
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cpu_time import cpu_seconds
from tests.support.records.rollout_groups import batch, full_group, refused
from tfgrpo.stores.batch.batch import ExperienceBatch
from tfgrpo.stores.batch.shapes import LogProbs, Rollout
from tfgrpo.stores.errors import ShapeError

STATES = ["a", {"question": "b"}]
ACTIONS = [["x", "y"], [["deep"], 3]]
REWARDS = [[1, 0.5], [0.0, -1.0]]
LOGPS = [[-1.0, -2.0], [-3.0, -4.0]]


def from_lists(states=STATES, actions=ACTIONS, rewards=REWARDS, logps=LOGPS, **more):
    return ExperienceBatch.from_lists(states, actions, rewards, logps, **more)


def test_four_lists_round_trip():
    lists = from_lists().to_lists()
    assert lists == (STATES, ACTIONS, REWARDS, LOGPS)
    lists.states[1]["question"] = "changed"
    assert STATES[1] == {"question": "b"}


def test_groups_of_different_sizes_round_trip():
    made = from_lists(actions=[["x"], ["y", "z"]], rewards=[[1.0], [2.0, 3.0]], logps=None)
    assert made.to_lists(partial=True) == (STATES, [["x"], ["y", "z"]], [[1.0], [2.0, 3.0]], [[None], [None, None]])


def test_arrays_count_as_lists():
    made = from_lists(rewards=np.array(REWARDS, dtype=np.float32), logps=[np.array(row) for row in LOGPS])
    assert made.to_lists().reward_groups == REWARDS
    assert from_lists(logps=None).groups[0].rollouts[0].logprob is None


FIRST = "first bad group: index 0, id 'p'"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"states": "ab"}, "states: expected a list, received a text"),
        ({"states": []}, "states: expected at least one, received none"),
        ({"states": 3}, "states: expected a list, received a int"),
        ({"actions": ACTIONS[:1]}, "action_groups: expected 2 groups, one for each state, received 1 group"),
        (
            {"actions": [*ACTIONS, ["surplus", "z"]]},
            "action_groups: expected 2 groups, one for each state, received 3 groups",
        ),
        ({"rewards": REWARDS[:1]}, "rewards: expected 2 groups, one for each state, received 1 group"),
        ({"logps": [*LOGPS, [-1.0, -1.0]]}, "log_probs_old: expected 2 groups, one for each state, received 3 groups"),
        ({"actions": ["xy", ["a", "b"]]}, f"action_groups: expected a list for each state, received a str; {FIRST}"),
        ({"rewards": [1.0, 2.0]}, f"rewards: expected a list for each state, received a float; {FIRST} and 1 more"),
        (
            {"rewards": np.zeros((2, 1))},
            f"rewards: expected shape (2, 2) = (states, group_size), received (2, 1); {FIRST} and 1 more",
        ),
        (
            {"rewards": [[1.0, 2.0], [1.0]]},
            "rewards: expected 2 per state, received 1; first bad group: index 1, id 'q-17'",
        ),
        (
            {"rewards": np.zeros((2, 2, 3))},
            (
                "rewards: expected finite numbers"
                f", received a list (one number for each action); {FIRST}, action 0 and 3 more"
            ),
        ),
        ({"rewards": np.float64(3)}, "rewards: expected a list, received a float64"),
        (
            {"logps": [[-1.0, None], [-1.0, -2.0]]},
            f"log_probs_old: expected finite numbers, received None; {FIRST}, action 1",
        ),
        (
            {"rewards": [[1.0, math.nan], [math.inf, 0.0]]},
            f"rewards: expected finite numbers, received nan; {FIRST}, action 1 and 1 more",
        ),
        ({"rewards": [[True, False], [0.0, 1.0]]}, "rewards: expected finite numbers, received True"),
        (
            {"actions": [["x", object()], ["a", "b"]]},
            f"action_groups: expected JSON values, received object is not a JSON value; {FIRST}, action 1",
        ),
        ({"states": ["a", object()]}, "states: expected JSON values, received object is not a JSON value; index 1"),
        (
            {"actions": [[], []], "rewards": [[], []], "logps": [[], []]},
            "action_groups: expected at least one action in each group, received none",
        ),
        (
            {"group_size": 3},
            f"action_groups: expected shape (2, 3) = (states, group_size), received (2, 2); {FIRST} and 1 more",
        ),
        ({"group_size": True}, "group_size: expected a whole number of at least 1, received True"),
        ({"group_size": 2.5}, "group_size: expected a whole number of at least 1, received 2.5"),
        ({"group_size": 0}, "group_size: expected a whole number of at least 1, received 0"),
        ({"ids": ["p"]}, "ids: expected 2, one for each state, received 1"),
    ],
)
def test_lists_that_do_not_fit_together_are_refused_with_expected_received_and_where(changes, message):
    error = refused(lambda: from_lists(**{"ids": ["p", "q-17"], **changes}))
    assert isinstance(error, ValueError)
    assert message in str(error)


def test_lists_of_different_lengths_are_refused_without_states_too():
    error = refused(lambda: ExperienceBatch.from_lists("Q", [["x"]], [[1.0], [2.0]], [[0.0], [0.0]]))
    assert "states: expected a list, received a text" in str(error)


def test_every_problem_of_the_lists_is_in_one_error():
    error = refused(
        lambda: from_lists(actions=ACTIONS[:1], rewards=REWARDS * 2, logps=[["a", 1], [2, 3]], group_size=-1)
    )
    assert [problem.name for problem in error.problems] == ["group_size", "action_groups", "rewards", "log_probs_old"]


def test_a_wrong_length_hides_no_wrong_value_and_one_value_no_other():
    error = refused(
        lambda: ExperienceBatch.from_lists(
            ["a", object()],
            [["x", object()], [object(), "y"]],
            [[1.0], [math.nan, 2.0]],
            [[0.0, None], [0.0]],
            ids=["q", "q"],
        )
    )
    assert [(problem.name, problem.received) for problem in error.problems] == [
        ("ids", "'q'"),
        ("states", "object is not a JSON value"),
        ("action_groups", "object is not a JSON value"),
        ("rewards", "1"),
        ("rewards", "nan"),
        ("log_probs_old", "1"),
        ("log_probs_old", "None"),
    ]
    assert error.problems[2].where == "first bad group: index 0, id 'q', action 1 and 1 more"


@pytest.mark.parametrize(
    ("lists", "problems"),
    [
        (
            (["a", "b", "c"], [["x", "y"]] * 3, [[1.0, math.nan], [1.0]]),
            [("rewards", "2 groups"), ("rewards", "1"), ("rewards", "nan")],
        ),
        (
            (["a", "b", "c"], [["x", "y"]] * 2, [[1.0, math.nan], [1.0], [0.0, 1.0]], [[1, 2], ["z", 3], [1]]),
            [
                ("action_groups", "2 groups"), ("rewards", "1"), ("rewards", "nan"), ("log_probs_old", "1"),
                ("log_probs_old", "'z'"),
            ],
        ),
        (
            (["a", "b"], [["x", object()], "zw", []], [[1.0, math.nan], 3, [2.0]]),
            [
                ("action_groups", "3 groups"), ("action_groups", "a str"), ("action_groups", "none"),
                ("action_groups", "object is not a JSON value"), ("rewards", "3 groups"), ("rewards", "a int"),
                ("rewards", "nan"),
            ],
        ),
        ((["a", "b"], [["x"], ["y", "z"]], [[1.0, 2.0, 3.0]]), [("rewards", "1 group"), ("rewards", "3")]),
        (("Q", [["x", "y"]], [[1.0], [math.nan, 1.0]]), [("states", "a text"), ("rewards", "1"), ("rewards", "nan")]),
    ],
)  # fmt: skip
def test_a_wrong_number_of_groups_hides_no_other_problem(lists, problems):
    error = refused(lambda: ExperienceBatch.from_lists(*lists))
    assert [(problem.name, problem.received) for problem in error.problems] == problems


def test_a_wrong_length_is_one_that_no_action_group_has():
    error = refused(lambda: from_lists(actions=[["x"], ["y", "z"]], rewards=[[1.0, 2.0], [1.0, 2.0, 3.0], [1.0]]))
    where = [(problem.expected, problem.where) for problem in error.problems if problem.name == "rewards"]
    assert where == [("2 groups, one for each state", ""), ("1 or 2 per state", "first bad group: index 1, id 'g1'")]


def test_lists_are_a_batch_as_any_other_and_the_collector_goes_on():
    made = from_lists()
    again = ExperienceBatch(made.groups)
    assert (made, made.allow_nan) == (again, False)
    assert pickle.loads(pickle.dumps(made)) == made
    one = made.groups[0].rollouts[0]
    same = Rollout(one.id, one.group_id, 0, "x", reward=1.0, logprob=LogProbs(total=-1.0, complete=True))
    assert (type(one), one, hash(one.logprob)) == (Rollout, same, hash(same.logprob))
    with pytest.raises(FrozenInstanceError):
        one.reward = 2.0
    assert gc.isenabled()
    assert "at most 0" in str(refused(lambda: from_lists(logps=[[-1.0, 0.5], [-3.0, -4.0]])))


@pytest.mark.untraced
def test_a_hundred_thousand_rollouts_are_read_in_moments():
    groups = range(12_500)
    lists = (
        [f"state {number}" for number in groups],
        [[f"action {number} {index}" for index in range(8)] for number in groups],
        [[number / (index + 1) for index in range(8)] for number in groups],
        [[-number / (index + 1) for index in range(8)] for number in groups],
    )
    plain = cpu_seconds(lambda: [[(index, str(index)) for index in range(100_000)] for _ in range(10)])
    assert cpu_seconds(lambda: ExperienceBatch.from_lists(*lists)) < 5 * plain


def test_names_of_groups_are_texts():
    error = refused(lambda: ExperienceBatch.from_lists(["a", "b"], [["x"], ["y"]], [[1.0], [0.0]], ids=["", 7]))
    assert [(problem.received, problem.where) for problem in error.problems] == [("''", "index 0"), ("7", "index 1")]


@pytest.mark.parametrize(("ids", "received"), [("ab", "a text"), (5, "a int")])
def test_names_of_groups_are_a_list(ids, received):
    error = refused(lambda: ExperienceBatch.from_lists(["a", "b"], [["x"], ["y"]], [[1.0], ["z"]], ids=ids))
    assert [(problem.name, problem.received) for problem in error.problems] == [("ids", received), ("rewards", "'z'")]


@pytest.mark.parametrize("spread", [math.nan, "1", True])
def test_a_least_spread_that_is_no_number_is_refused(spread):
    with pytest.raises(ShapeError, match="min_spread: expected a finite number, or None"):
        ExperienceBatch(()).filter(min_spread=spread)


def test_rewards_and_log_probabilities_are_checked_in_the_same_way():
    error = refused(lambda: from_lists(rewards=[[1.0], [1.0]], logps=[[1.0], [1.0]]))
    assert [problem.name for problem in error.problems] == ["rewards", "log_probs_old"]


def test_nan_passes_only_when_it_is_let_in():
    made = from_lists(rewards=[[1.0, math.nan], [0.0, 0.0]], allow_nan=True)
    assert math.isnan(made.groups[0].rewards[1])
    assert math.isnan(made.filter(keep=lambda group: True).groups[0].rewards[1])


def test_absent_values_never_become_numbers_in_lists():
    error = refused(lambda: batch(full_group()).to_lists())
    assert [problem.name for problem in error.problems] == ["rewards", "log_probs_old"]
    assert "first: group index 0, rollout 'q1/3'" in str(error)


def test_partial_lists_read_back():
    lists = batch(full_group()).to_lists(partial=True)
    made = ExperienceBatch.from_lists(*lists, partial=True)
    assert made.to_lists(partial=True) == lists
    assert made.arrays().mask.tolist() == batch(full_group()).arrays().mask.tolist()
    failed = {rollout.status for rollout in made.rollouts() if rollout.completion is None}
    assert failed == {"error"}, "what has neither a reply nor a reward is no answered rollout"
    error = refused(lambda: ExperienceBatch.from_lists(*lists))
    assert [problem.received for problem in error.problems] == ["None", "None"]


@given(st.lists(st.lists(st.none() | st.floats(-1e6, 0), min_size=1, max_size=4), min_size=1, max_size=4))
def test_any_partial_lists_round_trip(values):
    lists = ([f"s{place}" for place in range(len(values))], [["a"] * len(row) for row in values], values, values)
    assert ExperienceBatch.from_lists(*lists, partial=True).to_lists(partial=True) == lists


@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4), min_size=1, max_size=4))
def test_any_lists_round_trip_and_agree_with_flat_and_arrays(rewards):
    states = [f"s{place}" for place in range(len(rewards))]
    actions = [[f"a{index}" for index in range(len(row))] for row in rewards]
    logprobs = [[-abs(value) for value in row] for row in rewards]
    made = ExperienceBatch.from_lists(states, actions, rewards, logprobs)
    assert made.to_lists() == (states, actions, rewards, logprobs)
    flat, arrays = made.flat(), made.arrays()
    assert list(flat.rewards) == [value for row in rewards for value in row] == arrays.rewards[arrays.mask].tolist()
    assert flat.completions == tuple(action for row in actions for action in row)
    assert [states[place] for place in flat.group_indexes] == list(flat.states)
    assert arrays.logp_old[arrays.logp_mask].tolist() == list(flat.logprobs)
    assert arrays.present.sum() == len(flat.rollout_ids)
