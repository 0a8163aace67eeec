"""A grader that hangs, blocks its loop or ignores cancellation is abandoned and delays no other."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from tests.support.rewards.grader_kinds import AsyncBatch, Batch, good, items, per_item, raises_on, reasons, rewards
from tests.support.rewards.rewarder_examples import freeze
from tfgrpo.rewarders.graders import running as running_module
from tfgrpo.rewarders.graders.base import grader
from tfgrpo.rewarders.graders.running import GraderRunner

SOON = 0.3
"""Seconds that hanging graders get."""


@pytest.fixture
def runner():
    with GraderRunner(timeout_s=5.0) as runner:
        yield runner


def hanging(runner: GraderRunner) -> dict[str, int]:
    """Calls that were given up on and still run, by name of the grader."""
    return {worker.name: worker.hanging for worker in [*runner._workers.values()] if worker.hanging}


async def settled(runner: GraderRunner) -> None:
    """Once nothing of a call that was given up on runs any more."""

    def wait():
        until = time.monotonic() + 10
        while hanging(runner):
            assert time.monotonic() < until
            time.sleep(0.01)

    await asyncio.to_thread(wait)


class Hangs:
    """Plain: hangs in its thread until released, on the items that it is told to."""

    def __init__(self, *bad: str):
        self.bad = bad
        self.release = threading.Event()
        self.started = 0

    def grade_batch(self, inputs):
        self.started += 1
        if not self.bad or any(item.sample_id in self.bad for item in inputs):
            self.release.wait(20)
        return [good(item) for item in inputs]


async def test_a_hanging_grader_is_given_up_on_and_holds_up_no_other(runner):
    hangs, fine = Hangs(), Batch(raises_on())
    late, graded = await asyncio.gather(
        runner.grade("hangs", hangs, items(), SOON), runner.grade("fine", fine, items())
    )
    assert reasons(late) == {f"RewarderTimeout: hangs: no reward within {SOON:g} s"}
    assert rewards(graded) == [0.0, 1.0, 2.0, 3.0]
    assert hanging(runner) == {"hangs": 1}
    hangs.release.set()
    await settled(runner)


async def test_a_reward_that_comes_after_its_limit_never_counts_whoever_was_frozen_meanwhile(runner):
    """A regular expression run wild holds the interpreter lock, so that the clock of the waiting loop stops as well."""

    def holds(item):
        if item.sample_id == "d:1":
            freeze(2 * SOON)
        return good(item)

    def batch(inputs):
        return [holds(item) for item in inputs]

    async def later(inputs):
        return batch(inputs)

    single, soon = grader(lambda item: holds(item).reward), f"RewarderTimeout: wild: no reward within {SOON:g} s"
    graded = await runner.grade("wild", single, items(), SOON)
    assert (rewards(graded), reasons(graded)) == ([0.0, None, None, None], {soon})
    for each in (Batch(batch), per_item(Batch(batch)), AsyncBatch(later), per_item(AsyncBatch(later)), Batch(later)):
        graded = await runner.grade("wild", each, items(), SOON)
        assert (rewards(graded), reasons(graded)) == ([None] * 4, {soon})


async def test_what_was_graded_before_an_item_hangs_counts(runner):
    release = threading.Event()

    @grader
    def slow(item):
        if item.sample_id == "d:2":
            release.wait(20)
        return 1.0

    @grader
    async def later(item):
        await asyncio.sleep(20 if item.sample_id == "d:2" else 0)
        return 1.0

    assert rewards(await runner.grade("slow", slow, items(), SOON)) == [1.0, 1.0, None, None]
    assert rewards(await runner.grade("later", later, items(), SOON)) == [1.0, 1.0, None, 1.0]
    release.set()


async def test_an_item_that_hangs_when_asked_alone_costs_an_async_grader_only_that_item(runner):
    async def function(inputs):
        if len(inputs) > 1:
            raise ValueError("one by one, please")
        await asyncio.sleep(20 if inputs[0].sample_id == "d:0" else 0)
        return [good(item) for item in inputs]

    assert rewards(await runner.grade("single", per_item(AsyncBatch(function)), items(12), SOON)) == [
        None,
        *map(float, range(1, 12)),
    ]


async def test_a_grader_that_keeps_hanging_is_not_asked_for_ever(monkeypatch):
    monkeypatch.setattr(running_module, "CALLS", 2)
    monkeypatch.setattr(running_module, "MOST_HANGING", 3)
    hangs, others = Hangs("d:0"), threading.active_count()
    with GraderRunner() as runner:
        late = await asyncio.gather(*(runner.grade("hangs", hangs, items(2), SOON) for _ in range(12)))
        assert {grade.error_type for grades in late for grade in grades} == {"RewarderTimeout", "GraderUnavailable"}
        assert hangs.started <= 4  # the third that is given up on may have one beside it
        before = hangs.started
        refused = await runner.grade("hangs", hangs, items(2))
        assert hangs.started == before
        assert "calls of it hang; it is not called until one of them ends" in refused[0].reason
        assert threading.active_count() < others + 20

        hangs.bad = ("none",)
        hangs.release.set()
        await settled(runner)
        assert rewards(await runner.grade("hangs", hangs, items(2))) == [
            0.0,
            1.0,
        ]  # it is asked again once it has ended


async def test_a_coroutine_that_blocks_its_loop_is_left_behind_with_it(runner):
    release = threading.Event()

    async def blocks(inputs):
        if inputs[0].completion_index == 0:
            release.wait(20)
        return [good(item) for item in inputs]

    each = AsyncBatch(blocks)
    assert rewards(await runner.grade("blocks", each, items(), SOON)) == [None] * 4
    assert hanging(runner) == {"blocks": 1}
    assert rewards(await runner.grade("blocks", each, items()[1:])) == [1.0, 2.0, 3.0]  # on a new loop
    release.set()
    await settled(runner)


async def test_calls_that_share_a_loop_which_is_left_behind_do_not_raise(runner):
    release = threading.Event()

    async def blocks(inputs):
        await asyncio.sleep(0.01)
        release.wait(20)
        return []

    each = AsyncBatch(blocks)
    first = asyncio.create_task(runner.grade("blocks", each, items(), SOON))
    second = asyncio.create_task(runner.grade("blocks", each, items(), 10))
    assert rewards(await first) == [None] * 4
    release.set()
    grades = await second
    assert rewards(grades) == [None] * 4
    assert reasons(grades) <= {
        "GraderUnavailable: blocks: the event loop of the grader ended",
        "NoResult: the grader returned no result for it",
    }


async def test_a_coroutine_that_will_not_be_cancelled_counts_as_hanging(runner):
    enough = threading.Event()

    async def stubborn(inputs):
        while not enough.is_set():
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                continue
        return []

    assert rewards(await runner.grade("stubborn", AsyncBatch(stubborn), items(), SOON)) == [None] * 4
    assert hanging(runner) == {"stubborn": 1}
    enough.set()
    await settled(runner)


async def test_a_grader_that_stops_its_loop_gets_a_new_one(runner):
    async def stops(inputs):
        if len(inputs) > 2:
            asyncio.get_running_loop().stop()
            await asyncio.sleep(1)
        return [good(item) for item in inputs]

    each = AsyncBatch(stops)
    assert rewards(await runner.grade("stops", each, items())) == [None] * 4
    await asyncio.sleep(0.05)
    assert rewards(await runner.grade("stops", each, items(2))) == [0.0, 1.0]


async def test_a_caller_that_leaves_takes_the_calls_that_wait_with_it(monkeypatch):
    monkeypatch.setattr(running_module, "CALLS", 1)
    hangs = Hangs()
    with GraderRunner() as runner:
        running = asyncio.create_task(runner.grade("hangs", hangs, items(), SOON))
        waiting = asyncio.create_task(runner.grade("hangs", hangs, items(), SOON))
        await asyncio.sleep(0.05)
        for task in (running, waiting):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await asyncio.sleep(2 * SOON)
        assert hangs.started == 1
        assert hanging(runner) == {"hangs": 1}  # though nobody waits for it
        hangs.release.set()


async def test_a_caller_that_leaves_an_async_grader_cancels_it(runner):
    ended = threading.Event()

    async def waits(inputs):
        try:
            await asyncio.sleep(20)
        finally:
            ended.set()

    task = asyncio.create_task(runner.grade("waits", AsyncBatch(waits), items()))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 5)
    await settled(runner)
