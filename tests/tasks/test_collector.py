"""Collecting groups: every shape checked before it costs, the same answers by every kind of model, no state between calls."""

import asyncio
import math
import threading
from itertools import count

import numpy as np
import pytest

from tests.support.agents.collecting import Policy, Rewards, collect, options, refused, without_digest
from tests.support.waiting import eventually
from tfgrpo.stores.batch.lines import ExperienceWindow
from tfgrpo.stores.batch.shapes import LogProbs, RolloutGroup
from tfgrpo.stores.errors import (
    ActorError,
    BudgetRefused,
    ModelAuthRefused,
    ModelServerFault,
    RecordRejected,
    SettingsError,
    ShapeError,
    StoreError,
)
from tfgrpo.tasks.collector import CollectorOptions, ExperienceCollector, Generation, RolloutReward

# --- the contract


class InProcess:
    """A model in this process: answers with state and index, or by a function of states, number and call."""

    def __init__(self, answer=None):
        self.asked = []
        self._answer = answer or (lambda states, n, call: [[f"{state}:{index}" for index in range(n)] for state in states])

    def generate_batch(self, states, n):
        self.asked.append((tuple(states), n))
        return self._answer(states, n, len(self.asked))


class Calls:
    async def __call__(self, state, completion):
        return float(completion.startswith(state))


def later(state):
    async def answer():
        return f"{state}:0"

    return answer()


async def coroutine(state):
    return f"{state}:0"


@pytest.mark.parametrize(("policy", "rewards"), [
    (Policy(), Rewards(lambda states, texts: np.array([1.0] * len(texts), dtype=np.float32))),
    (InProcess(), Rewards(lambda states, texts: [RolloutReward(1.0, {"exact": 1.0})] * len(texts))),
    (lambda state: f"{state}:0", Calls()), (later, lambda state, text: np.array(1.0)),
    (coroutine, lambda state, text: RolloutReward(1.0, {"exact": 1.0, "style": None})),
])  # fmt: skip
async def test_every_kind_of_policy_and_of_rewards_serves(policy, rewards):
    collected = await collect(policy, rewards)
    assert [group.rewards for group in collected.batch] == [(1.0, 1.0)] * 2
    assert all(rollout.completion.startswith(group.state) for group in collected.batch for rollout in group.rollouts)


async def test_a_model_in_this_process_is_asked_once_for_everything():
    model = InProcess()
    await collect(model, lambda *_: 1.0)
    assert model.asked == [(("a", "b"), 2)]


async def test_plain_functions_run_off_the_loop():
    loop_thread, threads = threading.get_ident(), set()

    def policy(state, **more):
        threads.add(threading.get_ident())
        return {"said": state}

    def reward(state, completion):
        threads.add(threading.get_ident())
        return RolloutReward(1.0, {"exact": 1.0, "style": None}) if completion["said"] == state else None

    collected = await collect(policy, reward)
    assert [rollout.reward_parts for rollout in collected.batch.rollouts()] == [{"exact": 1.0, "style": None}] * 4
    assert loop_thread not in threads


async def test_collecting_without_an_event_loop_gives_the_batch_and_is_refused_inside_one(caplog):
    made = ExperienceCollector(Policy(), lambda state, text: None if state == "b" else 1.0, 2, options(ragged="drop_group"))
    batch = await asyncio.to_thread(made.collect_experiences, ["a", "b"])
    assert [without_digest(group.id) for group in batch] == ["g0"]
    assert "group g1 left out: 0 scored rollouts" in without_digest(caplog.text)
    with pytest.raises(RuntimeError, match=r"await collector\.collect"):
        made.collect_experiences(["a"])


async def test_one_collector_may_collect_many_times_at_once_with_bounded_calls_in_flight():
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
    made = ExperienceCollector(policy, lambda *_: 1.0, 2)
    results = await asyncio.gather(*(made.collect([f"s{index}"]) for index in range(20)))
    assert [collected.batch.groups[0].state for collected in results] == [f"s{index}" for index in range(20)]


@pytest.mark.parametrize(("answers", "same"), [(("a", "bb", "a", "bb"), True), (("a", "bb", "a", "ccc"), False)])
def test_the_same_replies_give_the_same_ids_and_others_other_ones(answers, same):
    coming, clock = iter(answers), count()
    collecting = ExperienceCollector(
        lambda state: Generation(next(coming), latency_s=float(next(clock))),
        lambda state, text: float(len(text)),
        2,
        options(concurrency=1),
    )
    first, second = (collecting.collect_experiences(["the same prompt"]) for _ in range(2))
    assert ([made.id for made in first.rollouts()] == [made.id for made in second.rollouts()]) is same
    window = ExperienceWindow(5)
    window.extend(first)
    window.extend(second)
    assert window.window() == (first if same else first.merge(second))


# --- before anything is asked


def test_all_problems_of_a_collector_are_reported_when_it_is_built():
    with pytest.raises(ShapeError) as caught:
        ExperienceCollector({}, type("Other", (), {}), 2.5)
    assert {problem.name for problem in caught.value.problems} == {"group_size", "policy_model", "reward_model"}
    assert "generate(state, n), generate_batch(states, n), or a function, received a dict without any" in str(caught.value)
    assert "received the class Other" in str(caught.value)
    with pytest.raises(ValueError, match="5 validation errors"):
        CollectorOptions("loose", True, -1, 0, on_group=5)


@pytest.mark.parametrize("size", [0, True, 2.0])
def test_a_group_size_is_a_whole_number(size):
    with pytest.raises(ShapeError, match="group_size: expected a whole number of at least 1"):
        ExperienceCollector(Policy(), Rewards(), size)


@pytest.mark.parametrize(
    ("states", "problems"),
    [
        ("a text", ["states: expected a list of at least one state, received a text"]),
        ({"a": 1}, ["states: expected a list of at least one state, received a dict"]),
        ([], ["states: expected a list of at least one state, received none"]),
        (
            [{1}, RolloutGroup("q", "a"), RolloutGroup("q", "b"), object()],
            [
                "state: expected a JSON value, received set is not a JSON value; index 0",
                "id: expected one of its own for each state, received 'q'; indexes 1 and 2",
                "state: expected a JSON value, received object is not a JSON value; index 3",
            ],
        ),
    ],
)
async def test_states_are_a_list_that_is_not_empty(states, problems):
    policy = Policy()
    with pytest.raises(ShapeError) as caught:
        await ExperienceCollector(policy, Rewards(), 2).collect(states)
    assert str(caught.value).splitlines() == problems
    assert policy.asked == []


# --- before the rewards are paid for


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Policy(lambda *_: ["x"]), "generations: expected 2 for this state, received 1; group index 0, id 'g0'"),
        (Policy(lambda *_: ["x"] * 3), "generations: expected 2 for this state, received 3"),
        (Policy(lambda *_: "xy"), "generations: expected a list of 2, received a text"),
        (Policy(lambda *_: ["x", object()]), "received object is not a JSON value; group index 0, id 'g0', index 1"),
        (Policy(lambda *_: [Generation("x", usage=object())] * 2), "usage: expected an instance of RolloutUsage"),
        (Policy(lambda *_: [Generation("x", logprob=LogProbs(total=math.nan))] * 2), "logprob.total: expected a finite"),
        (Policy(lambda *_: [Generation("x", logprob=LogProbs((-1.0,), (1, 2)))] * 2), "logprob: expected lists of one length"),
        (InProcess(lambda *_: [["x", "y"]]), "generations: expected 2 groups, one for each state, received 1 group"),
        (InProcess(lambda *_: None), "generations: expected 2 groups, one for each state, received a NoneType"),
    ],
)  # fmt: skip
async def test_what_a_policy_returned_is_checked_before_the_reward_model_is_asked(policy, message):
    rewards = Rewards()
    error = await refused(policy, rewards)
    assert message in str(error)
    assert rewards.asked == []


# --- rewards


@pytest.mark.parametrize(
    ("answer", "received"),
    [(lambda s, c: [1.0], "length 1"), (lambda s, c: np.zeros((len(c), 1)), "shape (2, 1)"), (lambda s, c: 1.0, "a float")],
)
async def test_rewards_of_another_shape_are_refused(answer, received):
    error = await refused(Policy(), Rewards(answer))
    assert (error.name, error.received, without_digest(error.where)) == ("rewards", received, "group 'g0'")


async def test_a_call_with_a_wrong_number_of_rewards_affects_its_own_groups_only():
    rewards = Rewards(lambda states, texts: [1.0] if states[0] == "a" else [1.0] * len(texts))
    collected = await collect(Policy(), rewards, ragged="pad")
    assert [group.rewards for group in collected.batch] == [(None, None), (1.0, 1.0)]
    assert "received length 1" in collected.batch.groups[0].rollouts[0].error


@pytest.mark.parametrize("bad", ["high", True, math.nan, np.zeros(2), RolloutReward(1.0, {"a": math.nan}), 10**400], ids=type)
@pytest.mark.parametrize("each", [False, True])
async def test_an_invalid_reward_affects_its_own_attempt_only(bad, each):
    def one(state, text):
        return bad if text == "a:0" else 1.0

    def batch(states, texts):
        return list(map(one, states, texts))

    collected = await collect(Policy(), one if each else Rewards(batch), ragged="pad")
    assert [group.rewards for group in collected.batch] == [(None, 1.0), (1.0, 1.0)]
    assert collected.batch.groups[0].rollouts[0].error.startswith("reward: ")


def fails_with(error):
    def answer(*_, **__):
        raise error

    return answer


# A storage error of a model's own is none of the collection's.
@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), RecordRejected("NaN is no JSON")])
@pytest.mark.parametrize("batched", [True, False])
async def test_a_reward_model_that_fails_or_abstains_leaves_its_rollouts_ungraded(batched, error):
    broken, said = fails_with(error), f"reward: {type(error).__name__}: {error}"
    collected = await collect(Policy(), Rewards(broken) if batched else broken, ragged="pad")
    assert {(rollout.error, rollout.reward) for rollout in collected.batch.rollouts()} == {(said, None)}
    assert f"rollout 0: {said}" in str(await refused(Policy(), broken))
    abstained = await refused(Policy(), lambda state, text: None)
    expected = "rewards: expected 2 for this state, received 0; group index 0, id 'g0'; rollout 0: ok, without a reward"
    assert expected in without_digest(str(abstained))


def breaking(error, times=99):
    """A model in this process that raises in its first calls."""

    def answer(states, n, call):
        if call <= times:
            raise error
        return [["x"] * n for _ in states]

    return InProcess(answer)


@pytest.mark.parametrize(("error", "status"), [
    (ConnectionResetError("gone"), "transport_error"), (TimeoutError("slow socket"), "timeout"),
    (BudgetRefused("max_calls"), "refused"), (ActorError("bad agent"), "error"), (RecordRejected("NaN is no JSON"), "error"),
    (SystemExit(3), "error"), (None, "error"),
])  # fmt: skip
async def test_a_failed_completion_is_a_rollout_with_a_status_and_its_siblings_continue(error, status):
    calls = iter(range(4))

    def policy(state):
        if next(calls) != 1:
            return state
        if error is None:
            return None
        raise error

    rewards = Rewards(lambda states, completions: [1.0] * len(completions))
    collected = await collect(policy, rewards, ["a"], 4, ragged="pad", concurrency=1)
    (lost,) = (rollout for rollout in collected.batch.rollouts() if rollout.status != "ok")
    assert (lost.status, lost.reward, lost.completion, bool(lost.error)) == (status, None, None, True)
    assert [len(texts) for _, texts in rewards.asked] == [len(collected.batch.groups[0].scored)] == [3]


@pytest.mark.parametrize(
    ("error", "status"), [(ModelServerFault("500"), "transport_error"), (RecordRejected("NaN is no JSON"), "error")]
)
async def test_a_model_in_this_process_that_fails_gives_statuses_and_is_called_again_group_by_group(error, status):
    collected = await collect(breaking(error), lambda *_: 1.0, ragged="pad")
    assert {(rollout.status, rollout.completion) for rollout in collected.batch.rollouts()} == {(status, None)}
    assert "rewards: expected 2 for this state, received 0" in str(await refused(breaking(error), lambda *_: 1.0))
    model = breaking(error, 1)
    collected = await collect(model, lambda *_: 1.0, ragged="resample")
    assert model.asked == [(("a", "b"), 2), (("a",), 2), (("b",), 2)]
    assert [group.rewards for group in collected.batch] == [(1.0, 1.0)] * 2


@pytest.mark.parametrize("error", [ModelAuthRefused("401"), SettingsError.one("a", "b", "c"), StoreError("no space")])
@pytest.mark.parametrize("of", ["policy", "rewards"])
async def test_an_error_that_every_further_call_would_share_ends_the_collection_and_its_other_calls(error, of):
    begun, finished = [], []

    async def answer(*_, **__):
        begun.append(0)
        if len(begun) == 1:
            await eventually(lambda: len(begun) == 4)
            raise error
        await asyncio.sleep(30)
        finished.append(0)

    with pytest.raises(type(error)):
        await collect(*((answer, lambda *_: 1.0) if of == "policy" else (None, answer)), states=["a"], size=4)
    assert (len(begun), finished) == (4, [])
    for model in ((breaking(error), None), (None, Rewards(fails_with(error)))):
        with pytest.raises(type(error)):
            await collect(*model, ragged="pad")


async def test_groups_that_were_paid_for_are_delivered_even_if_the_collection_fails():
    kept = []

    def answer(states, completions):
        return [1.0, None] if states[0] == "b" else [1.0, 0.0]

    error = await refused(Policy(), Rewards(answer), on_group=kept.append)
    assert error.where.startswith("group index 1")
    assert {without_digest(group.id) for group in kept} == {"g0", "g1"}


async def test_cancelling_a_collection_cancels_its_calls():
    begun, ended = [], []

    async def policy(state):
        begun.append(state)
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(state)

    work = asyncio.ensure_future(collect(policy, lambda *_: 1.0, ["a"], 2))
    await eventually(lambda: len(begun) == 2)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert ended == ["a", "a"]


async def test_only_the_missing_rollouts_are_requested_again_a_bounded_number_of_times():
    def answer(state, n, place):
        lost = Generation(None, "transport_error", error="x")
        return [lost if place < 2 and index == n - 1 else f"{place}{index}" for index in range(n)]

    policy = Policy(answer)
    collected = await collect(policy, lambda *_: 1.0, ["a"], 3, ragged="resample")
    assert policy.asked == [("a", 3), ("a", 1), ("a", 1)]
    assert [(without_digest(rollout.id), rollout.completion) for rollout in collected.batch.rollouts()] == [
        ("g0/0", "00"), ("g0/1", "01"), ("g0/2", "20"),
    ]  # fmt: skip
    failing = Policy(fails_with(ModelServerFault("500")))
    gone = await collect(failing, lambda *_: 1.0, ["a"], ragged="resample", rounds=1)
    assert (len(gone.batch), without_digest(gone.dropped[0].group_id), failing.asked) == (0, "g0", [("a", 2)] * 2)
    short = Policy(lambda state, n, place: ["x"] * (n if place else n - 1))
    assert len((await collect(short, lambda *_: 1.0, ["a"], ragged="resample")).batch.groups[0].scored) == 2
