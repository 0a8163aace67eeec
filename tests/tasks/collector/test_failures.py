"""What fails while groups are collected is a status with its reason; what cannot go on ends the collection."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest

from tests.support.agents.collecting import Policy, Rewards, collect, refused, without_digest
from tfgrpo.stores.errors import (
    ActorError,
    BudgetRefused,
    ModelAuthRefused,
    ModelServerFault,
    RecordRejected,
    SettingsError,
    StoreError,
)
from tfgrpo.tasks.collector.protocols import Generation


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ModelServerFault("500"), "transport_error"),
        (ConnectionResetError("gone"), "transport_error"),
        (TimeoutError("slow socket"), "timeout"),
        (BudgetRefused("max_calls"), "refused"),
        (ActorError("bad agent"), "error"),
        (KeyError("x"), "error"),
        (SystemExit(3), "error"),
    ],
)
async def test_a_failed_completion_is_a_rollout_with_a_status_and_its_siblings_continue(error, status):
    calls = iter(range(4))

    def policy(state):
        if next(calls) == 1:
            raise error
        return state

    rewards = Rewards(lambda states, completions: [1.0] * len(completions))
    collected = await collect(policy, rewards, ["a"], 4, ragged="pad", concurrency=1)
    lost = [rollout for rollout in collected.batch.rollouts() if rollout.status != "ok"]
    assert [(rollout.status, rollout.reward, rollout.completion) for rollout in lost] == [(status, None, None)]
    assert lost[0].error
    assert len(collected.batch.groups[0].scored) == 3
    assert len(rewards.asked[0][1]) == 3


class Breaking:
    """A model in this process; raises in its first calls."""

    def __init__(self, error, times=99):
        self.error = error
        self.asked = []
        self._times = times

    def generate_batch(self, states, n):
        self.asked.append((tuple(states), n))
        if len(self.asked) <= self._times:
            raise self.error
        return [["x"] * n for _ in states]


@pytest.mark.parametrize(
    ("error", "status"),
    [(ModelServerFault("500"), "transport_error"), (BudgetRefused("max_calls"), "refused"), (MemoryError(), "error")],
)
async def test_a_model_in_this_process_that_fails_gives_statuses_as_any_other_policy(error, status):
    collected = await collect(Breaking(error), lambda *_: 1.0, ragged="pad")
    assert [rollout.status for rollout in collected.batch.rollouts()] == [status] * 4
    assert all(rollout.error and rollout.completion is None for rollout in collected.batch.rollouts())
    assert "rewards: expected 2 for this state, received 0" in str(await refused(Breaking(error), lambda *_: 1.0))
    with pytest.raises(ModelAuthRefused):
        await collect(Breaking(ModelAuthRefused("401")), lambda *_: 1.0, ragged="pad")


async def test_a_model_in_this_process_that_failed_is_called_again_group_by_group():
    model = Breaking(ModelServerFault("500"), 1)
    collected = await collect(model, lambda *_: 1.0, ragged="resample")
    assert model.asked == [(("a", "b"), 2), (("a",), 2), (("b",), 2)]
    assert [group.rewards for group in collected.batch] == [(1.0, 1.0)] * 2


async def test_a_call_over_its_time_limit_is_a_timeout_and_delays_no_other():
    release, finished = threading.Event(), threading.Event()

    def policy(state):
        if state == "slow":
            release.wait(60)
            finished.set()
        return state

    collected = await collect(policy, lambda *_: 1.0, ["slow", "b"], 1, ragged="pad", timeout_s=0.1)
    assert not finished.is_set()
    release.set()
    assert [rollout.status for rollout in collected.batch.rollouts()] == ["timeout", "ok"]
    assert collected.batch.groups[0].rollouts[0].error == "ModelTimeout: no answer within 0.1 s"


@pytest.mark.parametrize("error", [ModelAuthRefused("401"), SettingsError.one("a", "b", "c")])
async def test_an_error_that_every_further_call_would_share_ends_the_collection(error):
    asked = []

    async def policy(state):
        asked.append(state)
        if state == "a":
            raise error
        await asyncio.sleep(5)

    with pytest.raises(type(error)):
        await collect(policy, lambda *_: 1.0, ["b", "a"], 1)

    def reward(*_):
        raise error

    for rewards in (reward, Rewards(reward)):
        with pytest.raises(type(error)):
            await collect(Policy(), rewards)


@pytest.mark.parametrize("of", ["policy", "rewards"])
async def test_the_other_calls_of_a_group_end_with_the_one_that_ends_the_collection(of):
    begun, finished = [], []

    async def answer(*_, **__):
        begun.append(0)
        if len(begun) == 1:
            await asyncio.sleep(0.01)
            raise ModelAuthRefused("401")
        await asyncio.sleep(0.05)
        finished.append(0)

    with pytest.raises(ModelAuthRefused):
        await collect(*((answer, lambda *_: 1.0) if of == "policy" else (None, answer)), states=["a"], size=4)
    await asyncio.sleep(0.1)
    assert (len(begun), finished) == (4, [])


async def test_a_storage_error_in_a_users_model_fails_its_own_call_only():
    def refuse(*_):
        raise RecordRejected("out/mine.jsonl: NaN is no JSON")

    for policy in (refuse, Policy(refuse), Breaking(RecordRejected("NaN"))):
        collected = await collect(policy, lambda *_: 1.0, ragged="pad")
        assert {rollout.status for rollout in collected.batch.rollouts()} == {"error"}
    for reward in (refuse, Rewards(refuse)):
        collected = await collect(Policy(), reward, ragged="pad")
        assert {rollout.reward for rollout in collected.batch.rollouts()} == {None}
        assert "NaN is no JSON" in collected.batch.groups[0].rollouts[0].error
    with pytest.raises(StoreError, match="no space"):
        await collect(Policy(), Rewards(fails_with(StoreError("no space"))))


def fails_with(error):
    def answer(*_):
        raise error

    return answer


async def test_groups_below_the_least_size_are_dropped_with_the_reason():
    collected = await collect(
        Policy(), lambda state, text: None if (state, text) == ("b", "b:1") else 1.0, ragged="drop_group"
    )
    assert [without_digest(group.id) for group in collected.batch] == ["g0"]
    (lost,) = collected.dropped
    assert (without_digest(lost.group_id), lost.reason) == ("g1", "1 scored rollout, fewer than 2")


async def test_missing_rollouts_are_requested_again_a_bounded_number_of_times():
    broken = [True, True, False, True, True, True]

    def answer(state, n, place):
        if broken[place]:
            raise ModelServerFault("500")
        return [f"{state}:{place}{index}" for index in range(n)]

    policy = Policy(answer)
    collected = await collect(policy, lambda *_: 1.0, ["a"], ragged="resample", rounds=2)
    assert [rollout.completion for rollout in collected.batch.rollouts()] == ["a:20", "a:21"]
    assert len(policy.asked) == 3
    gone = await collect(Policy(answer), lambda *_: 1.0, ["a"], ragged="resample", rounds=1)
    assert (len(gone.batch), without_digest(gone.dropped[0].group_id)) == (0, "g0")


async def test_only_the_missing_rollouts_are_requested_again():
    def answer(state, n, place):
        return [
            Generation(None, "transport_error", error="x") if place == 0 and index == 1 else f"{place}{index}"
            for index in range(n)
        ]

    policy = Policy(answer)
    collected = await collect(policy, lambda *_: 1.0, ["a"], 3, ragged="resample")
    assert policy.asked == [("a", 3), ("a", 1)]
    assert [(without_digest(rollout.id), rollout.completion) for rollout in collected.batch.rollouts()] == [
        ("g0/0", "00"), ("g0/1", "10"), ("g0/2", "02"),
    ]  # fmt: skip


async def test_a_model_in_this_process_is_asked_again_for_one_state():
    class Model:
        def __init__(self):
            self.asked = []

        def generate_batch(self, states, n):
            self.asked.append((tuple(states), n))
            return [[f"{len(self.asked)}"] * (n if len(self.asked) > 1 else n - 1) for _ in states]

    model = Model()
    collected = await collect(model, lambda *_: 1.0, ["a", "b"], ragged="resample")
    assert model.asked == [(("a", "b"), 2), (("a",), 1), (("b",), 1)]
    assert [len(group.scored) for group in collected.batch] == [2, 2]


async def test_groups_that_were_paid_for_are_delivered_even_if_the_collection_fails():
    kept = []

    def answer(states, completions):
        return [1.0, None] if states[0] == "b" else [1.0, 0.0]

    error = await refused(Policy(), Rewards(answer), on_group=kept.append)
    assert error.where.startswith("group index 1")
    assert {without_digest(group.id) for group in kept} == {"g0", "g1"}
    fused = []
    collected = await collect(Policy(), Rewards(), on_group=fused.append, fuse_rewards=True)
    assert tuple(fused) == collected.batch.groups


async def test_cancelling_a_collection_cancels_its_calls():
    ended = []

    async def policy(state):
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(state)

    work = asyncio.ensure_future(collect(policy, lambda *_: 1.0, ["a"], 2))
    await asyncio.sleep(0.02)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert ended == ["a", "a"]


async def test_a_batch_of_collected_groups_is_checked_once_more():
    collected = await collect()
    assert replace(collected).batch.allow_nan is False
