"""Batches of experience: checked as a whole when made, unchangeable, and without any silent case of parallel lists."""

import math
import random
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from tests.support.records.rollout_groups import batch, full_group, group, refused, rollout
from tfgrpo.stores.batch.batch import ExperienceBatch
from tfgrpo.stores.batch.shapes import LogProbs, RolloutGroup, RolloutUsage, Sampling
from tfgrpo.stores.errors import ShapeError

# --- shapes


def test_a_batch_is_immutable_at_every_depth():
    made = full_group()
    state = [{"role": "user", "content": "hi"}]
    mine = RolloutGroup("g", state, [rollout("g")])
    state[0]["content"] = "changed"
    assert mine.state == ({"role": "user", "content": "hi"},)
    assert mine.rollouts == (rollout("g"),)
    assert ExperienceBatch([made]).groups == (made,)
    first = made.rollouts[0]
    for record in (batch(made), made, first, first.logprob, first.sampling, first.usage):
        with pytest.raises(FrozenInstanceError):
            setattr(record, next(iter(type(record).__slots__)), None)
    with pytest.raises(TypeError, match="frozen"):
        made.rollouts[0].metadata["tags"][1]["b"] = 2


def test_a_completion_is_a_text_a_list_of_messages_or_any_other_value():
    spoken, other = full_group().rollouts[0], rollout(completion={"tree": [1, 2]})
    assert (spoken.text, len(spoken.messages)) == ("4", 2)
    assert rollout(completion="hi").messages == ({"role": "assistant", "content": "hi"},)
    assert (other.text, other.messages, other.completion) == (None, None, {"tree": (1, 2)})
    assert rollout(completion=[{"role": "user", "content": "x"}]).text is None
    with pytest.raises(TypeError, match="not a JSON value"):
        rollout(completion=object())


@pytest.mark.parametrize(
    ("kind", "temperature", "top_p", "complete", "ready"),
    [
        ("processed", 0.7, 0.9, True, True),
        ("processed", 0.7, 0.9, False, False),
        ("raw", 1.0, 1.0, True, True),
        ("raw", 0.7, 1.0, True, False),
        ("raw", 1.0, None, True, False),
        ("unknown", None, 1.0, True, False),
    ],
)
def test_only_values_of_the_distribution_sampled_from_serve_a_ratio(kind, temperature, top_p, complete, ready):
    logprob = LogProbs(total=-1.0 if complete else None, kind=kind, complete=complete)
    assert rollout(logprob=logprob, sampling=Sampling("m", temperature, top_p)).ratio_ready is ready
    assert rollout().ratio_ready is False


# --- checks


def test_every_problem_of_a_batch_is_in_one_error():
    odd = LogProbs((-1.0, math.inf), (1,), complete=True, kind="?", count=-1, mask=(2,))
    bad = RolloutGroup(
        "",
        "s",
        (
            rollout("", 0, math.nan),
            rollout("", 0, True, status=["lost"], id="x", usage=RolloutUsage(-1, True, "3", math.inf)),
            rollout("other", -1, 1.0, id="x", reward_parts={"a": math.inf}, latency_s=-1.0),
            rollout("", 2, 0.5, status="timeout", id="", logprob=odd, sampling=Sampling("m", math.nan, seed="7")),
            "text",
        ),
        target_size=2,
    )  # fmt: skip
    error = refused(lambda: batch(bad, group("q1"), group("q1"), "q1"))
    named = [problem.name for problem in error.problems]
    for name in (
        "id", "target_size", "reward", "rollout id", "rollout index", "index", "group_id", "status", "rollouts", "latency_s",
        "reward_parts.a", "logprob", "logprob.kind", "logprob.total", "logprob.tokens", "logprob.count", "logprob.mask",
        "sampling.temperature", "sampling.seed", "usage.prompt_tokens", "usage.completion_tokens", "usage.reasoning_tokens",
        "usage.cost_usd", "group id", "groups",
    ):  # fmt: skip
        assert name in named, name
    assert "id: expected one of its own, received 'q1'; indexes 1 and 2" in str(error)
    assert "groups: expected a RolloutGroup, received str; index 3" in str(error)
    assert (error.name, error.where) == ("id", "group index 0, id ''")
    many = refused(lambda: batch(*(group("q1") for _ in range(80))))
    assert len(many.problems) == 51
    assert "29 more like these" in str(many)


@pytest.mark.parametrize(
    ("logprob", "problem"),
    [
        (LogProbs((-1.0, -9999.0), total=-10000.0, complete=True), "no -9999, which marks a missing value"),
        (LogProbs((-1.0, 0.5), total=-0.5), "logprob.tokens: expected a finite number of at most 0, received 0.5"),
        (LogProbs(total=0.5), "logprob.total: expected a finite number of at most 0, received 0.5"),
        (LogProbs(complete=True), "logprob.total: expected a number, since complete is true, received None"),
        (LogProbs((-1.0, -2.0), total=-3.0, count=3, complete=True), "logprob.count: expected 2, as there are tokens"),
        (LogProbs((-1.0, -2.0), total=-1.0, complete=True), "logprob.total: expected -3.0, the sum of the tokens"),
        (LogProbs((-1.0, -2.0), total=-3.0, complete=True, mask=(1, 0)), "logprob.total: expected -1.0"),
        (LogProbs((-1.0, -9999.0), count=2), ""),
        (LogProbs((-1.0, 1e-7), count=2), ""),
        (LogProbs((-1.0, -2.0), total=-1.0, count=1, complete=True, mask=(1, 0)), ""),
        (LogProbs((-0.1, -0.2), total=float(np.float32(-0.1) + np.float32(-0.2)), complete=True), ""),
    ],
)
def test_log_probabilities_that_are_called_complete_are_so(logprob, problem):
    made = group("q", rollouts=(rollout("q", 0, 1.0, logprob=logprob),))
    if problem:
        assert problem in str(refused(lambda: batch(made)))
    else:
        assert batch(made).groups[0] == made


def test_a_failed_rollout_is_never_a_number():
    unread = group(rollouts=(rollout(reward=0.0, status="parse_error"),))
    assert batch(unread).groups == (unread,)
    for status in ("transport_error", "timeout", "filtered", "refused", "error"):
        made = group(rollouts=(rollout(reward=0.0, status=status),))
        with pytest.raises(ShapeError, match="reward: expected None unless the status is ok or parse_error"):
            batch(made)


def test_nan_and_infinity_are_refused_unless_they_are_let_in():
    odd = LogProbs(total=-math.inf)
    for made in (group(rewards=(math.nan, 1.0)), group(rewards=(math.inf,)), group(rollouts=(rollout(logprob=odd),))):
        with pytest.raises(ShapeError, match="expected a finite number"):
            batch(made)
        kept = ExperienceBatch((made,), allow_nan=True)
        assert len(kept.filter(keep=lambda group: True)) == 1


# --- arrays


def test_arrays_mask_absent_values_as_nan():
    arrays = batch(full_group("q1"), group("q2", (0.5, None, 0.25))).arrays()
    np.testing.assert_array_equal(arrays.rewards, [[1.0, math.nan, math.nan], [0.5, math.nan, 0.25]])
    np.testing.assert_array_equal(arrays.mask, [[1, 0, 0], [1, 0, 1]])
    np.testing.assert_array_equal(arrays.present, [[1, 1, 0], [1, 1, 1]])
    np.testing.assert_array_equal(arrays.logp_old, [[-0.75, math.nan, math.nan], [math.nan] * 3])
    np.testing.assert_array_equal(arrays.token_lengths, [[2.0, math.nan, math.nan], [math.nan] * 3])
    assert arrays.group_ids == ("q1", "q2")
    with pytest.raises(ValueError, match="read-only"):
        arrays.rewards[0, 0] = 0.0
    assert batch().arrays().rewards.shape == (0, 0)
    assert batch(RolloutGroup("g", "s", (), 4)).arrays().mask.shape == (1, 0)


def test_an_incomplete_log_probability_is_absent_never_zero():
    made = batch(group(rollouts=(rollout(logprob=LogProbs(total=-1.0, complete=False, count=4)),)))
    assert made.flat().logprobs == (None,)
    assert not made.arrays().logp_mask.any()
    assert made.arrays().token_lengths.tolist() == [[4.0]]


# --- merge, filter, split


def test_batches_merge_filter_and_split():
    merged = batch(group("mixed")).merge(batch(group("flat", (1.0, 1.0))), batch(group("near", (1.0, 1.001))))
    assert [kept.id for kept in merged.filter(min_spread=0.01)] == ["mixed"]
    assert [kept.id for kept in merged.filter(min_spread=0.0)] == ["mixed", "near"]
    assert [kept.id for kept in merged.filter(keep=lambda group: group.id != "mixed")] == ["flat", "near"]
    assert len(merged.filter()) == 3
    assert [len(part) for part in merged.split(2)] == [2, 1]
    assert "one of its own" in str(refused(lambda: merged.merge(batch(group("near")))))
    for spread in (math.nan, "1", True):
        assert refused(lambda spread=spread: merged.filter(min_spread=spread)).name == "min_spread"
    for size in (0, True, 2.0):
        assert refused(lambda size=size: merged.split(size)).name == "size"


# --- ragged


RAGGED = (group("whole", (1.0, 0.0, 0.5)), group("short", (1.0, None, 0.0)), group("alone", (None, None, 1.0)))


def test_strict_names_every_group_that_is_short():
    error = refused(lambda: batch(*RAGGED).shaped("strict"))
    lost = ["group index 1, id 'short'; rollout 1", "group index 2, id 'alone'; rollout 0"]
    assert [problem.where for problem in error.problems] == [f"{where}: ok, without a reward" for where in lost]
    assert batch(RAGGED[0]).shaped("strict", group_size=3) == (batch(RAGGED[0]), ())
    assert refused(lambda: batch(RAGGED[0]).shaped("strict", group_size=2)).received == "3"


def test_pad_leaves_everything_to_the_masks():
    assert batch(*RAGGED).shaped("pad") == (batch(*RAGGED), ())


def test_drop_group_reports_excluded_groups_with_reasons():
    shaped, dropped = batch(*RAGGED).shaped("drop_group")
    assert [made.id for made in shaped] == ["whole", "short"]
    assert [(lost.group_id, lost.rollouts, lost.reason) for lost in dropped] == [("alone", 3, "1 scored rollout, fewer than 2")]


def test_resample_makes_groups_of_one_size_from_marked_copies():
    shaped, dropped = batch(*RAGGED).shaped("resample", group_size=3, rng=random.Random(1))
    assert [len(made.scored) for made in shaped] == [3, 3]
    (copy,) = (made for made in shaped.rollouts() if "resampled_from" in made.metadata)
    assert copy.id == f"{copy.metadata['resampled_from']}+1"
    assert {(lost.group_id, lost.rollouts) for lost in dropped} == {("alone", 3), ("short", 1)}
    assert shaped.shaped("strict")[1] == ()


def test_a_policy_that_cannot_be_applied_is_refused_with_every_reason():
    error = refused(lambda: batch().shaped("repeat", group_size=True, min_group_size=0))
    assert {problem.name for problem in error.problems} == {"policy", "group_size", "min_group_size"}
    assert refused(lambda: batch().shaped("resample")).name == "rng"


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
        ({"states": ["a", object()]}, "states: expected JSON values, received object is not a JSON value; index 1"),
        ({"actions": ACTIONS[:1]}, "action_groups: expected 2, one for each state, received 1"),
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
        ({"group_size": 0}, "group_size: expected a whole number of at least 1, received 0"),
        ({"ids": ["p"]}, "ids: expected 2, one for each state, received 1"),
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


def test_absent_values_never_become_numbers_in_lists_and_partial_lists_read_back():
    error = refused(lambda: batch(full_group()).to_lists())
    assert [problem.name for problem in error.problems] == ["rewards", "log_probs_old"]
    assert "first: group index 0, rollout 'q1/3'" in str(error)
    lists = batch(full_group()).to_lists(partial=True)
    made = ExperienceBatch.from_lists(*lists, partial=True)
    assert made.to_lists(partial=True) == lists
    failed = {rollout.status for rollout in made.rollouts() if rollout.completion is None}
    assert failed == {"error"}, "what has neither a reply nor a reward is no answered rollout"
    half = ExperienceBatch.from_lists(["a"], [[None, "x"]], [[1.0, None]], partial=True)
    assert [rollout.status for rollout in half.rollouts()] == ["ok", "ok"]
    error = refused(lambda: ExperienceBatch.from_lists(*lists))
    assert [problem.received for problem in error.problems] == ["None", "None"]
