"""What fails while groups are collected is a status with its reason; what cannot go on ends the collection."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.agents.collecting import Policy, Rewards, collect, refused, without_digest
from tests.support.waiting import eventually
from tfgrpo.stores.errors import (
    ActorError,
    BudgetRefused,
    ModelAuthRefused,
    ModelServerFault,
    RecordRejected,
    SettingsError,
    StoreError,
)
from tfgrpo.tasks.collector import Generation


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


def fails_with(error):
    def answer(*_, **__):
        raise error

    return answer


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
        (None, "error"),
    ],
)
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


@pytest.mark.parametrize("error", [ModelServerFault("500"), MemoryError()])
async def test_a_model_in_this_process_that_fails_gives_statuses_and_is_called_again_group_by_group(error):
    collected = await collect(Breaking(error), lambda *_: 1.0, ragged="pad")
    assert {(rollout.status, rollout.completion) for rollout in collected.batch.rollouts()} <= {
        ("transport_error", None), ("error", None),
    }  # fmt: skip
    assert "rewards: expected 2 for this state, received 0" in str(await refused(Breaking(error), lambda *_: 1.0))
    model = Breaking(error, 1)
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
    for model in ((Breaking(error), None), (None, Rewards(fails_with(error)))):
        with pytest.raises(type(error)):
            await collect(*model, ragged="pad")


async def test_a_storage_error_in_a_users_model_fails_its_own_call_only():
    refuse = fails_with(RecordRejected("out/mine.jsonl: NaN is no JSON"))
    for policy in (refuse, Policy(refuse), Breaking(RecordRejected("NaN"))):
        collected = await collect(policy, lambda *_: 1.0, ragged="pad")
        assert {rollout.status for rollout in collected.batch.rollouts()} == {"error"}
    for reward in (refuse, Rewards(refuse)):
        collected = await collect(Policy(), reward, ragged="pad")
        assert {rollout.reward for rollout in collected.batch.rollouts()} == {None}
        assert "NaN is no JSON" in collected.batch.groups[0].rollouts[0].error


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
    gone = await collect(Policy(fails_with(ModelServerFault("500"))), lambda *_: 1.0, ["a"], ragged="resample", rounds=1)
    assert (len(gone.batch), without_digest(gone.dropped[0].group_id)) == (0, "g0")
    short = Policy(lambda state, n, place: ["x"] * (n if place else n - 1))
    assert len((await collect(short, lambda *_: 1.0, ["a"], ragged="resample")).batch.groups[0].scored) == 2


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
