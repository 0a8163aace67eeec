"""Four lists become a batch and come back as they were; lists that do not fit together are refused."""

from __future__ import annotations

import math
import re
from types import MappingProxyType

import numpy as np
import pytest

from tests.support.records.rollout_groups import batch, full_group, refused
from tfgrpo.stores.batch.batch import ExperienceBatch

STATES = ["a", {"question": "b"}]
ACTIONS = [["x", "y"], [["deep"], 3]]
REWARDS = [[1, 0.5], [0.0, -1.0]]
LOGPS = [[-1.0, -2.0], [-3.0, -4.0]]


def from_lists(states=STATES, actions=ACTIONS, rewards=REWARDS, logps=LOGPS, **more):
    return ExperienceBatch.from_lists(states, actions, rewards, logps, **more)


def test_four_lists_round_trip():
    lists = from_lists(rewards=np.array(REWARDS, dtype=np.float32), logps=[np.array(row) for row in LOGPS]).to_lists()
    assert lists == (STATES, ACTIONS, REWARDS, LOGPS)
    lists.states[1]["question"] = "changed"
    assert STATES[1] == {"question": "b"}
    made = from_lists(actions=[["x"], ["y", "z"]], rewards=[[1.0], [2.0, 3.0]], logps=None)
    assert made.to_lists(partial=True) == (STATES, [["x"], ["y", "z"]], [[1.0], [2.0, 3.0]], [[None], [None, None]])


FIRST = "first bad group: index 0, id 'p'"
SHAPE = "(states, group_size)"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"states": "ab"}, "states: expected a list, received a text"),
        ({"states": []}, "states: expected at least one, received none"),
        ({"states": 3}, "states: expected a list, received a int"),
        ({"states": ["a", object()]}, "states: expected JSON values, received object is not a JSON value; index 1"),
        ({"actions": ACTIONS[:1]}, "action_groups: expected 2, one for each state, received 1"),
        ({"actions": [*ACTIONS, ["surplus", "z"]]}, "action_groups: expected 2, one for each state, received 3"),
        ({"rewards": REWARDS[:1]}, "rewards: expected 2, one for each state, received 1"),
        ({"logps": [*LOGPS, [-1.0, -1.0]]}, "log_probs_old: expected 2, one for each state, received 3"),
        ({"actions": ["xy", ["a", "b"]]}, f"action_groups: expected a list for each state, received a str; {FIRST}"),
        ({"actions": [[], []]}, "action_groups: expected at least one action in each group, received none"),
        ({"actions": [["x", object()], ["a", "b"]]}, f"received object is not a JSON value; {FIRST}, action 1"),
        ({"rewards": [1.0, 2.0]}, f"rewards: expected a list for each state, received a float; {FIRST} and 1 more"),
        ({"rewards": np.zeros((2, 1))}, f"rewards: expected shape (2, 2) = {SHAPE}, received (2, 1); {FIRST} and 1 more"),
        ({"rewards": [[1.0, 2.0], [1.0]]}, f"(2, 2) = {SHAPE}, received (2, 1); first bad group: index 1, id 'q-17'"),
        ({"actions": [["x"], ["y", "z"]]}, f"rewards: expected 1 per state, received 2; {FIRST}"),
        ({"rewards": np.zeros((2, 2, 3))}, f"received a list (one number for each action); {FIRST}, action 0 and 3 more"),
        ({"rewards": np.float64(3)}, "rewards: expected a list, received a float64"),
        ({"rewards": [[1.0, math.nan], [math.inf, 0.0]]}, f"received nan; {FIRST}, action 1 and 1 more"),
        ({"rewards": [[True, False], [0.0, 1.0]]}, "rewards: expected finite numbers, received True"),
        ({"rewards": [[10**400, 0.0], [0.0, 1.0]], "allow_nan": True}, f"rewards: expected numbers, received {10**79}"),
        ({"logps": [[-1.0, None], [-1.0, -2.0]]}, f"log_probs_old: expected finite numbers, received None; {FIRST}, action 1"),
        ({"logps": [[-1.0, 0.5], [-3.0, -4.0]]}, "logprob.total: expected a finite number of at most 0, received 0.5"),
        ({"group_size": 3}, f"action_groups: expected shape (2, 3) = {SHAPE}, received (2, 2); {FIRST} and 1 more"),
        ({"group_size": True}, "group_size: expected a whole number of at least 1, received True"),
        ({"group_size": 2.5}, "group_size: expected a whole number of at least 1, received 2.5"),
        ({"group_size": 0}, "group_size: expected a whole number of at least 1, received 0"),
        ({"ids": ["p"]}, "ids: expected 2, one for each state, received 1"),
        ({"ids": "pq"}, "ids: expected a list, received a text"),
        ({"ids": ["", 7]}, "id: expected a valid string, received 7"),
        ({"ids": ["p", "p"]}, "group id: expected one of its own, received 'p'; indexes 0 and 1"),
    ],
)  # fmt: skip
def test_lists_that_do_not_fit_together_are_refused_with_expected_received_and_where(changes, message):
    error = refused(lambda: from_lists(**{"ids": ["p", "q-17"], **changes}))
    assert isinstance(error, ValueError)
    assert message in str(error)


def test_every_problem_of_the_lists_is_in_one_error():
    error = refused(
        lambda: from_lists(["a", object()], ACTIONS[:1], [[1.0], [math.nan, 2.0], [3.0]], [["a", 1], [2, 3]], group_size=-1)
    )
    assert [(problem.name, problem.received) for problem in error.problems] == [
        ("group_size", "-1"),
        ("states", "object is not a JSON value"),
        ("action_groups", "1"),
        ("rewards", "3"),
        ("rewards", "(3, 1)"),
        ("rewards", "nan"),
        ("log_probs_old", "'a'"),
    ]


def test_buffers_without_ids_can_be_merged_and_the_same_buffer_has_the_same_ids():
    def taken(rewards=((1.0, 0.0), (0.5, 0.5)), logps=None):
        return ExperienceBatch.from_lists(["a", "b"], [["x", "y"], ["z", "w"]], [list(row) for row in rewards], logps)

    one, other = taken(), taken(((1.0, 0.0), (0.5, 0.25)))
    assert all(re.fullmatch("g[01]-[0-9a-f]{12}", made.id) for made in one)
    assert one == taken()
    assert one.groups[0] == other.groups[0]
    assert len(ExperienceBatch(one.groups[1:]).merge(ExperienceBatch(other.groups[1:]))) == 2
    assert one.groups[0].id != taken(logps=[[-1.0, -2.0], [-3.0, -4.0]]).groups[0].id
    assert len({each.id for each in ExperienceBatch.from_lists(["a", "a"], [["x"], ["x"]], [[1.0], [1.0]])}) == 2
    odd = ExperienceBatch.from_lists([MappingProxyType({"q": "\ud83d"})], [[("x", None)]], [[math.nan]], allow_nan=True)
    assert odd.groups[0].id.startswith("g0-")


def test_absent_values_never_become_numbers_in_lists():
    error = refused(lambda: batch(full_group()).to_lists())
    assert [problem.name for problem in error.problems] == ["rewards", "log_probs_old"]
    assert "first: group index 0, rollout 'q1/3'" in str(error)


def test_partial_lists_read_back():
    lists = batch(full_group()).to_lists(partial=True)
    made = ExperienceBatch.from_lists(*lists, partial=True)
    assert made.to_lists(partial=True) == lists
    failed = {rollout.status for rollout in made.rollouts() if rollout.completion is None}
    assert failed == {"error"}, "what has neither a reply nor a reward is no answered rollout"
    error = refused(lambda: ExperienceBatch.from_lists(*lists))
    assert [problem.received for problem in error.problems] == ["None", "None"]
