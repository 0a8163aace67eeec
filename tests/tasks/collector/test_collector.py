"""Collecting groups: every shape checked before it costs, every failure a status, no state between calls."""

from __future__ import annotations

import asyncio
import math
import threading

import numpy as np
import pytest

from tests.support.agents.collecting import Policy, Rewards, collect, options, refused, without_digest
from tfgrpo.stores.batch.shapes import LogProbs, Sampling
from tfgrpo.stores.errors import ShapeError
from tfgrpo.tasks.collector.collector import CollectorOptions, ExperienceCollector
from tfgrpo.tasks.collector.protocols import Generation, Prompt, RolloutReward

# --- the contract


async def test_groups_come_in_the_order_of_their_states_with_rewards_and_ids():
    policy, rewards = Policy(), Rewards()
    collected = await collect(policy, rewards, generation={"temperature": 0.3})
    lists = collected.batch.to_lists(partial=True)
    assert lists.states == ["a", "b"]
    assert lists.action_groups == [["a:0", "a:1"], ["b:0", "b:1"]]
    assert lists.reward_groups == [[1.0, 0.0], [1.0, 0.0]]
    assert [without_digest(rollout.id) for rollout in collected.batch.rollouts()] == ["g0/0", "g0/1", "g1/0", "g1/1"]
    assert policy.options == [{"temperature": 0.3}] * 2
    assert sorted(rewards.asked) == [(["a", "a"], ["a:0", "a:1"]), (["b", "b"], ["b:0", "b:1"])]


async def test_one_request_asks_for_all_completions_of_a_state():
    policy = Policy()
    await collect(policy, size=8)
    assert policy.asked == [("a", 8), ("b", 8)]


async def test_a_policy_that_cannot_do_many_is_asked_one_by_one_at_once():
    policy = Policy()
    policy.accepts_n = False
    collected = await collect(policy, Rewards(lambda states, completions: [1.0] * len(completions)), size=3)
    assert sorted(policy.asked) == [("a", 1)] * 3 + [("b", 1)] * 3
    assert [len(group.rollouts) for group in collected.batch] == [3, 3]


async def test_rewards_can_be_asked_for_with_one_call():
    rewards = Rewards()
    collected = await collect(Policy(), rewards, fuse_rewards=True)
    assert rewards.asked == [(["a", "a", "b", "b"], ["a:0", "a:1", "b:0", "b:1"])]
    assert [group.rewards for group in collected.batch] == [(1.0, 0.0), (1.0, 0.0)]


async def test_a_group_is_scored_while_others_still_generate():
    scored = asyncio.Event()

    async def generate(state):
        if state == "b":
            await asyncio.wait_for(scored.wait(), 5)
        return state

    def answer(states, completions):
        scored.set()
        return [1.0] * len(states)

    assert len((await collect(generate, Rewards(answer))).batch) == 2


async def test_plain_functions_serve_as_policy_and_rewards_and_run_off_the_loop():
    loop_thread = threading.get_ident()
    threads = set()

    def policy(state, **more):
        threads.add(threading.get_ident())
        return {"said": state}

    def reward(state, completion):
        threads.add(threading.get_ident())
        return RolloutReward(1.0, {"exact": 1.0, "style": None}) if completion["said"] == state else None

    collected = await collect(policy, reward)
    assert [rollout.reward_parts for rollout in collected.batch.rollouts()] == [{"exact": 1.0, "style": None}] * 4
    assert loop_thread not in threads


async def test_coroutines_and_functions_that_return_them_serve_too():
    class Calls:
        async def __call__(self, state, completion):
            return 1.0

    def policy(state):
        async def later():
            return state

        return later()

    assert [group.rewards for group in (await collect(policy, Calls())).batch] == [(1.0, 1.0)] * 2


async def test_a_model_in_this_process_is_asked_once_for_everything():
    class Model:
        def __init__(self):
            self.asked = []

        def generate_batch(self, states, n):
            self.asked.append((tuple(states), n))
            return [[f"{state}{index}" for index in range(n)] for state in states]

    model = Model()
    rewards = Rewards(lambda states, completions: np.array([1.0] * len(completions), dtype=np.float32))
    collected = await collect(model, rewards)
    assert model.asked == [(("a", "b"), 2)]
    assert collected.batch.groups[1].rewards == (1.0, 1.0)


async def test_the_data_of_a_generation_are_kept():
    generation = Generation(
        "x",
        logprob=LogProbs((-1.0,), total=-1.0, count=1, complete=True),
        sampling=Sampling("m", 0.5),
        latency_s=0.1,
        prompt_token_ids=(1, 2),
        metadata={"k": 1},
    )
    prompt = Prompt(["s"], "q-1", "bare", "m@1", "pack:1", {"answer": "7"})
    collected = await collect(Policy(lambda *_: [generation] * 2), lambda *_: 1.0, [prompt])
    group = collected.batch.groups[0]
    assert (group.id, group.state, group.bare_state, group.prompt_token_ids) == ("q-1", ("s",), "bare", (1, 2))
    assert (group.policy_version, group.experience_version, group.metadata) == ("m@1", "pack:1", {"answer": "7"})
    assert group.rollouts[1].logprob.total == -1.0
    assert group.rollouts[1].sampling.temperature == 0.5


def test_collecting_without_an_event_loop_gives_the_batch(caplog):
    collector = ExperienceCollector(
        Policy(), lambda state, text: None if state == "b" else 1.0, 2, options(ragged="drop_group")
    )
    batch = collector.collect_experiences(["a", "b"])
    assert [without_digest(group.id) for group in batch] == ["g0"]
    assert "group g1 left out: 0 scored rollouts" in without_digest(caplog.text)


async def test_collecting_without_an_event_loop_is_refused_inside_one():
    with pytest.raises(RuntimeError, match=r"await collector\.collect"):
        ExperienceCollector(Policy(), Rewards(), 2).collect_experiences(["a"])


async def test_one_collector_may_collect_many_times_at_once():
    collector = ExperienceCollector(Policy(), Rewards(), 2)
    results = await asyncio.gather(*(collector.collect([f"s{index}"]) for index in range(20)))
    assert [collected.batch.groups[0].state for collected in results] == [f"s{index}" for index in range(20)]


async def test_calls_in_flight_are_bounded():
    now = most = 0

    async def policy(state):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        return state

    await collect(policy, lambda *_: 1.0, [f"s{index}" for index in range(10)], concurrency=3)
    assert most == 3


# --- before anything is asked


def test_all_problems_of_a_collector_are_reported_when_it_is_built():
    wrong = CollectorOptions("loose", True, -1, 0, 0.0)
    with pytest.raises(ShapeError) as caught:
        ExperienceCollector({}, 7, 2.5, wrong)
    named = [problem.name for problem in caught.value.problems]
    assert named == [
        "group_size", "ragged", "min_group_size", "rounds", "concurrency", "timeout_s", "policy_model", "reward_model",
    ]  # fmt: skip
    assert "generate(state, n), generate_batch(states, n), or a function" in str(caught.value)


@pytest.mark.parametrize("size", [0, -1, True, 2.0, "2", None])
def test_a_group_size_is_a_whole_number(size):
    with pytest.raises(ShapeError, match="group_size: expected a whole number of at least 1"):
        ExperienceCollector(Policy(), Rewards(), size)


def test_a_class_in_place_of_an_object_is_refused():
    with pytest.raises(ShapeError, match="received the class Other"):
        ExperienceCollector(type("Other", (), {}), Rewards(), 2)


def test_options_that_exclude_each_other_are_refused():
    with pytest.raises(ShapeError, match="fuse_rewards"):
        ExperienceCollector(Policy(), Rewards(), 2, options(fuse_rewards=True, ragged="resample"))


@pytest.mark.parametrize(
    ("states", "received"),
    [("a text", "a text"), (b"x", "a text"), ({"a": 1}, "a dict"), (3, "a int"), ([], "none")],
)
async def test_states_are_a_list_that_is_not_empty(states, received):
    policy = Policy()
    with pytest.raises(ShapeError, match=f"states: expected .* received {received}"):
        await ExperienceCollector(policy, Rewards(), 2).collect(states)
    assert policy.asked == []


async def test_two_states_with_one_id_are_refused_before_any_call():
    policy = Policy()
    error = await refused(policy, states=[Prompt("a", "q"), Prompt("b", "q"), "c"])
    assert (error.name, error.where, policy.asked) == ("id", "indexes 0 and 1", [])


async def test_all_states_that_are_not_json_are_reported_before_any_call():
    policy = Policy()
    error = await refused(policy, states=[{1}, "b", Prompt("c", "q", metadata={"x": object()})])
    assert [(problem.name, problem.received, problem.where) for problem in error.problems] == [
        ("state", "set is not a JSON value", "index 0, id 'g0'"),
        ("metadata", "object is not a JSON value", "index 2, id 'q'"),
    ]
    assert policy.asked == []


@pytest.mark.parametrize("wrong", [{"timeout_s": "60"}, {"timeout_s": True}, {"on_group": 5}])
def test_options_of_another_type_are_refused_when_the_collector_is_built(wrong):
    with pytest.raises(ShapeError) as caught:
        ExperienceCollector(Policy(), Rewards(), 2, options(**wrong))
    assert [(problem.name, problem.received) for problem in caught.value.problems] == [
        (name, repr(value)) for name, value in wrong.items()
    ]


async def test_a_policy_that_returns_nothing_has_failed_and_gets_no_reward():
    collected = await collect(lambda state: None, lambda *_: 1.0, ["a"], ragged="pad")
    assert [(rollout.status, rollout.reward) for rollout in collected.batch.rollouts()] == [("error", None)] * 2
    error = await refused(lambda state: None, lambda *_: 1.0, ["a"])
    assert "the policy returned None in place of a completion" in str(error)


# --- before the rewards are paid for


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda state, n, place: ["x"], "generations: expected 2 for this state, received 1; group index 0, id 'g0'"),
        (lambda state, n, place: ["x"] * 3, "generations: expected 2 for this state, received 3"),
        (lambda state, n, place: "xy", "generations: expected a list of 2, received a text"),
        (lambda state, n, place: None, "generations: expected a list of 2, received a NoneType"),
        (lambda state, n, place: [object()] * 2, "completion: expected a JSON value, received object"),
        (lambda s, n, place: [Generation("x", logprob=LogProbs(total=math.nan))] * 2, "logprob.total: expected a finite"),
        (lambda s, n, place: [Generation("x", logprob=LogProbs((-1.0,), (1, 2)))] * 2, "logprob: expected lists of one length"),
    ],
)  # fmt: skip
async def test_what_a_policy_returned_is_checked_before_the_reward_model_is_asked(answer, message):
    rewards = Rewards()
    error = await refused(Policy(answer), rewards)
    assert message in str(error)
    assert rewards.asked == []


async def test_a_completion_that_is_not_json_is_named_by_its_index_in_the_group():
    calls = iter(range(4))
    error = await refused(lambda state: object() if next(calls) == 2 else state, states=["a"], size=4, concurrency=1)
    assert error.where == "group index 0, id 'g0', index 2"
    again = Policy(lambda state, n, place: ["x", None, "y"] if place == 0 else [{1}])
    error = await refused(again, lambda *_: 1.0, ["a"], 3, ragged="resample")
    assert error.where == "group index 0, id 'g0', index 1"


async def test_the_groups_of_a_model_in_this_process_are_counted():
    class Model:
        def __init__(self, returned):
            self.returned = returned

        async def generate_batch(self, states, n):
            return self.returned

    assert (await refused(Model([["x", "y"]]))).received == "1 group"
    assert (await refused(Model(None))).received == "a NoneType"
    assert "expected 2 for this state, received 1" in str(await refused(Model([["x"], ["y", "z"]])))


async def test_no_further_call_is_made_after_a_shape_error():
    policy = Policy(lambda state, n, place: ["x"])
    await refused(policy, states=[f"s{index}" for index in range(10)], concurrency=1)
    assert len(policy.asked) == 1


# --- rewards


@pytest.mark.parametrize(
    ("answer", "received"),
    [
        (lambda s, c: [1.0], "length 1"),
        (lambda s, c: np.zeros((len(c), 1)), "shape (2, 1)"),
        (lambda s, c: 1.0, "a float"),
        (lambda s, c: np.float64(1.0), "a float64"),
    ],
)
async def test_rewards_of_another_shape_are_refused(answer, received):
    error = await refused(Policy(), Rewards(answer))
    assert (error.name, error.received) == ("rewards", received)
    assert "group 'g0'" in error.where


NO_REWARDS = ["high", True, math.nan, math.inf, [1.0], np.zeros(2), RolloutReward(1.0, {"a": math.nan}), 10**400]


@pytest.mark.parametrize("bad", NO_REWARDS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("how", [{}, {"fuse_rewards": True}, {"each": True}])
async def test_an_invalid_reward_affects_its_own_attempt_only(bad, how):
    def one(state, text):
        return bad if text == "a:0" else 1.0

    def batch(states, texts):
        return list(map(one, states, texts))

    more = {name: value for name, value in how.items() if name != "each"}
    collected = await collect(Policy(), one if "each" in how else Rewards(batch), ragged="pad", **more)
    assert [group.rewards for group in collected.batch] == [(None, 1.0), (1.0, 1.0)]
    assert collected.batch.groups[0].rollouts[0].error.startswith("reward: ")


async def test_strict_reports_the_invalid_reward_and_delivers_every_group():
    kept = []
    error = await refused(Policy(), lambda s, text: math.nan if text == "a:0" else 1.0, on_group=kept.append)
    assert "expected a finite number or None, received nan" in error.where
    assert [len(group.scored) for group in sorted(kept, key=lambda group: group.id)] == [1, 2]


async def test_a_call_with_a_wrong_number_of_rewards_affects_its_own_groups_only():
    rewards = Rewards(lambda states, texts: [1.0] if states[0] == "a" else [1.0] * len(texts))
    collected = await collect(Policy(), rewards, ragged="pad")
    assert [group.rewards for group in collected.batch] == [(None, None), (1.0, 1.0)]
    assert "received length 1" in collected.batch.groups[0].rollouts[0].error


async def test_rewards_of_another_shape_for_the_whole_batch_are_refused():
    error = await refused(Policy(), Rewards(lambda s, c: [1.0]), fuse_rewards=True)
    assert error.where == "2 groups"


async def test_a_reward_that_is_not_finite_is_refused_unless_allowed():
    rewards = Rewards(lambda s, c: [math.nan, np.float32(1.0)] * (len(c) // 2))
    assert "reward: expected a finite number" in str(await refused(Policy(), rewards))
    let_in = await collect(Policy(), rewards, allow_nan=True)
    assert math.isnan(let_in.batch.groups[0].rewards[0])


async def test_a_reward_of_a_single_element_array_is_a_number():
    collected = await collect(Policy(), lambda state, text: np.array(0.5))
    assert collected.batch.groups[0].rewards == (0.5, 0.5)


async def test_an_abstention_is_no_reward_and_strict_reports_it():
    error = await refused(Policy(), lambda state, text: None)
    assert (
        "rewards: expected 2 for this state, received 0; group index 0, id 'g0'; rollout 0: ok, without a reward"
        in str(error)
    )
    padded = await collect(Policy(), lambda state, text: None if text.endswith("0") else 1.0, ragged="pad")
    assert [group.rewards for group in padded.batch] == [(None, 1.0)] * 2


@pytest.mark.parametrize("batched", [True, False])
async def test_a_reward_model_that_fails_leaves_its_rollouts_ungraded_with_the_error(batched):
    def broken(*_):
        raise ZeroDivisionError("by zero")

    collected = await collect(Policy(), Rewards(broken) if batched else broken, ragged="pad")
    assert {rollout.error for rollout in collected.batch.rollouts()} == {"reward: ZeroDivisionError: by zero"}
    assert "rollout 0: reward: ZeroDivisionError: by zero" in str(await refused(Policy(), broken))
