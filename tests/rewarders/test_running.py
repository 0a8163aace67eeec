"""Asynchronous rewarders run on the event loop under their time limit, and what goes wrong in them is a fault."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.support.rewards.rewarder_examples import freeze
from tfgrpo.rewarders.base import Abstained
from tfgrpo.rewarders.callable import AsyncCallableRewarder, adapt
from tfgrpo.rewarders.registry import build_rewarder
from tfgrpo.rewarders.running import MODEL_TIMEOUT_S, TIMEOUT_S
from tfgrpo.rewarders.scoring import WeightedRewarder, score_group
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.errors import RewardError
from tfgrpo.stores.outcomes import RewardScore

LATER_PICKY = "tests.support.rewards.rewarder_examples:later_picky"


class Async:
    rewarder_id = "async"

    def __init__(self, act):
        self.act = act
        self.contexts = []

    async def score(self, context):
        self.contexts.append(context)
        return await self.act(context)


def told(context, score=1.0, details=None):
    return [RewardScore("async", score, "fine", details) for _ in context.outputs]


async def scored(rewarder, context, timeout_s=None, others=()):
    with RewarderThreads() as threads:
        return await score_group([WeightedRewarder(rewarder, 1.0, timeout_s), *others], context, threads)


async def test_an_asynchronous_rewarder_runs_on_the_event_loop(make_context):
    seen = []

    async def act(context):
        seen.append(threading.current_thread())
        await asyncio.sleep(0)
        return told(context)

    result = await scored(Async(act), make_context(["a", "b"]))
    assert result.totals == {"r0": 1.0, "r1": 1.0}
    assert seen == [threading.main_thread()]


async def test_one_that_hangs_is_given_up_on_and_others_do_not_wait_for_it(make_context):
    cancelled = []

    async def act(context):
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    result = await scored(Async(act), make_context(["a"]), 0.03, [WeightedRewarder(build_rewarder("gt"), 0.0)])
    await asyncio.sleep(0)
    assert result.timed_out == "async: no verdict within 0.03 s"
    assert isinstance(result.verdicts[0][1], RewardScore)
    assert cancelled == [1]


async def test_a_verdict_that_comes_after_the_limit_never_counts_though_the_waiting_loop_was_frozen(make_context):
    def wild(output, answer):
        freeze(0.3)
        return 1.0

    async def later(output, answer):
        return wild(output, answer)

    class Quick:
        rewarder_id, quick = "wild", True

        def score(self, context):
            return [RewardScore("wild", wild(each.output, ""), "") for each in context.outputs]

    for rewarder in (adapt("wild", wild), adapt("wild", later), Quick()):
        result = await scored(rewarder, make_context(["a", "b"]), 0.1)
        assert (result.timed_out, result.totals) == ("wild: no verdict within 0.1 s", {})


async def test_one_that_ignores_its_cancellation_is_left_behind(make_context):
    done = asyncio.Event()

    async def act(context):
        while not done.is_set():
            try:
                await done.wait()
            except asyncio.CancelledError:
                continue
        return told(context)

    result = await scored(Async(act), make_context(["a"]), 0.03)
    assert result.timed_out is not None
    done.set()
    await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "error", [ValueError("bad"), RewardError("bad"), SystemExit("bad"), asyncio.CancelledError("bad")]
)
async def test_whatever_it_raises_is_its_own_fault(make_context, error):
    async def act(context):
        raise error

    result = await scored(Async(act), make_context(["a"]))
    assert "bad" in result.faults["async"]
    assert result.totals == {}


async def test_cancelling_the_group_cancels_its_rewarders(make_context):
    begun = asyncio.Event()
    ended = []

    async def act(context):
        begun.set()
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(1)

    task = asyncio.create_task(scored(Async(act), make_context(["a"])))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert ended == [1]


async def test_a_plain_score_that_returns_an_awaitable_is_told_how_to_declare_it(make_context):
    class Odd:
        rewarder_id = "odd"

        def score(self, context):
            return Async(lambda _: None).score(context)

    class Stranger(Odd):
        def score(self, context):
            future = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop)
            return asyncio.wrap_future(future, loop=loop)

    loop = asyncio.get_running_loop()
    for kind in (Odd, Stranger):
        result = await scored(kind(), make_context(["a"]))
        assert "async def" in result.faults["odd"]


async def test_each_rewarder_is_told_its_time_limit(make_context):
    async def act(context):
        return told(context)

    quick, patient = Async(act), Async(act)
    patient.asks_model = True
    for rewarder, limit in ((quick, TIMEOUT_S), (patient, MODEL_TIMEOUT_S)):
        await scored(rewarder, make_context(["a"]))
        assert rewarder.contexts[0].time_limit_s == limit
    await scored(quick, make_context(["a"]), 7.0)
    assert quick.contexts[1].time_limit_s == 7.0


@pytest.mark.parametrize("details", [{"n": float("nan")}, {"n": object()}, {1: 2}, [1]])
async def test_details_that_are_no_json_object_are_refused(make_context, details):
    async def act(context):
        return told(context, details=details)

    result = await scored(Async(act), make_context(["a"]))
    assert "details" in result.faults["async"]


async def test_details_are_kept_and_cannot_be_changed_afterwards(make_context):
    mine = {"votes": [1, 2]}

    async def act(context):
        return told(context, details=mine)

    result = await scored(Async(act), make_context(["a"]))
    mine["votes"].append(3)
    assert result.verdicts[0][0].details == {"votes": (1, 2)}


async def test_a_plain_asynchronous_function_becomes_a_rewarder(make_context):
    context = make_context(["x", "yy"], answer="x")
    assert isinstance(build_rewarder("tests.support.rewards.rewarder_examples:later"), AsyncCallableRewarder)
    for name in ("later", "AsyncCall"):
        result = await scored(build_rewarder(f"tests.support.rewards.rewarder_examples:{name}"), context)
        assert result.totals == {"r0": 1.0, "r1": 1.0}
    result = await scored(build_rewarder("tests.support.rewards.rewarder_examples:later_lengths"), context)
    assert result.totals == {"r0": 1.0, "r1": 2.0}


async def test_it_loses_only_the_attempts_that_it_raises_on(make_context):
    rewarder = build_rewarder(LATER_PICKY)
    result = await scored(rewarder, make_context(["ok", "boom", "skip"]))
    kinds = [type(verdicts[0]) for verdicts in result.verdicts]
    assert kinds == [RewardScore, Abstained, Abstained]
    result = await scored(rewarder, make_context(["boom", "boom"]))
    assert result.faults == {LATER_PICKY: f"{LATER_PICKY}: raised ValueError: cannot read"}


class OutOfTime(BaseException):
    """What time limits such as those of ``func_timeout`` raise."""


@pytest.mark.parametrize("kind", ["thread", "quick", "async"])
async def test_what_is_no_exception_is_a_fault_of_its_rewarder_too(make_context, kind):
    class Raising:
        rewarder_id = "raising"
        quick = kind == "quick"

        def score(self, context):
            raise OutOfTime("too slow")

    class RaisingLater(Raising):
        async def score(self, context):
            raise OutOfTime("too slow")

    result = await scored((RaisingLater if kind == "async" else Raising)(), make_context(["a"]))
    assert result.faults["raising"] == "OutOfTime: too slow"


@pytest.mark.parametrize("later", [False, True])
async def test_what_is_no_exception_costs_a_function_its_own_attempt(make_context, later):
    def picky(output, answer):
        if output == "b":
            raise OutOfTime("too slow")
        return 1.0

    async def picky_later(output, answer):
        return picky(output, answer)

    result = await scored(adapt("picky", picky_later if later else picky), make_context(["a", "b"]))
    assert result.totals == {"r0": 1.0}
    assert "OutOfTime: too slow" in result.verdicts[1][0].reason
