"""Whatever a grader does wrong costs the items that it does it to, and nobody anything else."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref

import pytest

from rewarders.graders.base import GradeResult, GraderInput, ItemGrader, grader
from rewarders.graders.calling import grade_blocking
from rewarders.graders.running import Graded, GraderRunner, NotGraded
from rewarders.graders.table import build_grader
from stores.errors import GraderUnavailable, RewardError

SOON = 0.3
"""Seconds that hanging graders get."""


def items(count: int = 4, record: dict | None = None) -> list[GraderInput]:
    return [GraderInput.of(f"d:{n}", record or {}, "x" * n, completion_index=n) for n in range(count)]


def good(item: GraderInput) -> GradeResult:
    return GradeResult(item.sample_id, float(len(item.completion)), item.completion_index)


def rewards(grades) -> list[float | None]:
    return [grade.reward if isinstance(grade, Graded) else None for grade in grades]


def reasons(grades) -> set[str]:
    return {f"{grade.error_type}: {grade.reason}" for grade in grades if isinstance(grade, NotGraded)}


async def settled(runner: GraderRunner) -> None:
    """Once nothing of a call that was given up on runs any more."""

    def wait():
        until = time.monotonic() + 10
        while runner.hanging():
            assert time.monotonic() < until
            time.sleep(0.01)

    await asyncio.to_thread(wait)


class Batch:
    """A plain grader out of a function of a batch; knows how often it was asked."""

    def __init__(self, function):
        self.function = function
        self.calls = 0

    def grade_batch(self, inputs):
        self.calls += 1
        return self.function(inputs)


class AsyncBatch(Batch):
    async def grade_batch(self, inputs):
        self.calls += 1
        return await self.function(inputs)


class Promised(Batch):
    """Its plain method returns something to be awaited."""

    def grade_batch(self, inputs):
        self.calls += 1
        return self.function(inputs)


def raises_on(*bad: str):
    def function(inputs):
        if any(item.sample_id in bad for item in inputs):
            raise ValueError("cannot\nread  this")
        return [good(item) for item in inputs]

    return function


def as_async(function):
    async def call(inputs):
        await asyncio.sleep(0)
        return function(inputs)

    return call


@pytest.fixture
def runner():
    with GraderRunner(timeout_s=5.0) as runner:
        yield runner


def kinds(function):
    return [Batch(function), AsyncBatch(as_async(function)), Promised(as_async(function))]


async def test_a_good_grader_grades_every_item_whatever_its_kind(runner):
    for each in kinds(raises_on()):
        assert rewards(await runner.grade("good", each, items())) == [0.0, 1.0, 2.0, 3.0]
        assert each.calls == 1
        assert await runner.grade("good", each, []) == ()


async def test_a_grader_that_raises_loses_the_items_that_it_raises_on(runner):
    for each in kinds(raises_on("d:1")):
        grades = await runner.grade("picky", each, items())
        assert rewards(grades) == [0.0, None, 2.0, 3.0]
        assert reasons(grades) == {"ValueError: ValueError: cannot read this"}
        assert each.calls == 5


async def test_a_grader_that_raises_on_everything_is_asked_once_more_for_each_item(runner):
    for each in kinds(raises_on("d:0", "d:1", "d:2", "d:3")):
        assert rewards(await runner.grade("broken", each, items())) == [None] * 4
        assert each.calls == 5


async def test_a_grader_that_cannot_be_asked_at_all_is_not_asked_again(runner):
    def down(inputs):
        raise GraderUnavailable("the service is down")

    for each in kinds(down):
        grades = await runner.grade("down", each, items())
        assert reasons(grades) == {"GraderUnavailable: the service is down"}
        assert each.calls == 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda said: said[::-1], [0.0, 1.0, 2.0, 3.0]),
        (lambda said: said[:2], [0.0, 1.0, None, None]),
        (lambda said: [*said, GradeResult("d:9", 9.0, 9)], [0.0, 1.0, 2.0, 3.0]),
        (lambda said: [*said[:3], GradeResult("d:3", float("nan"), 3)], [0.0, 1.0, 2.0, None]),
        (lambda said: [GradeResult("d:0", None, 0), *said[1:]], [None, 1.0, 2.0, 3.0]),
        (lambda said: ["good", *said[1:]], [None, 1.0, 2.0, 3.0]),
        (lambda said: None, [None] * 4),
        (lambda said: 1.0, [None] * 4),
    ],
    ids=["reversed", "short", "long", "nan", "none", "text", "nothing", "a number"],
)
async def test_wrong_results_cost_the_items_that_they_are_wrong_for(runner, change, expected):
    for each in kinds(lambda inputs: change([good(item) for item in inputs])):
        found = rewards(await runner.grade("wrong", each, items()))
        # No result at all for a batch means that each item is asked for alone, where this grader is wrong again.
        assert found == expected


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), RecursionError()])
async def test_no_exception_of_a_grader_gets_out(runner, error):
    def fails(inputs):
        raise error

    @grader
    def one(item):
        raise error

    @grader
    async def later(item):
        raise error

    for each in (*kinds(fails), one, later):
        grades = await runner.grade("wild", each, items(2))
        assert [grade.error_type for grade in grades] == [type(error).__name__] * 2


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no")


async def test_an_exception_that_cannot_say_what_it_is_costs_its_item_only(runner):
    def function(inputs):
        if any(item.sample_id == "d:1" for item in inputs):
            raise Unprintable
        return [good(item) for item in inputs]

    for each in (*kinds(function), grader(lambda item: function([item])[0].reward)):
        grades = await runner.grade("mute", each, items())
        assert rewards(grades) == [0.0, None, 2.0, 3.0]
        assert reasons(grades) == {"Unprintable: Unprintable"}


def test_ctrl_c_in_the_main_thread_is_the_users_and_no_grade():
    def interrupted(_):
        raise KeyboardInterrupt

    for each in (Batch(interrupted), grader(interrupted)):
        with pytest.raises(KeyboardInterrupt):
            grade_blocking(each, items(), [None] * 4)


async def test_functions_of_one_item_are_asked_once_for_each_item(runner):
    asked = []

    def score(item):
        asked.append(item.sample_id)
        return {"d:1": float("inf"), "d:2": None}.get(item.sample_id, 1.0)

    @grader
    async def later(item):
        return score(item)

    for each in (grader(score), later):
        asked.clear()
        assert rewards(await runner.grade("one", each, items())) == [1.0, None, None, 1.0]
        assert sorted(asked) == ["d:0", "d:1", "d:2", "d:3"]


class Overriding(ItemGrader):
    def score_one(self, item):
        return 0.0

    def grade_batch(self, inputs):
        return [good(item) for item in inputs]


async def test_a_grader_that_brings_its_own_batch_method_is_asked_by_it(runner):
    assert rewards(await runner.grade("own", Overriding(), items())) == [0.0, 1.0, 2.0, 3.0]


async def test_what_a_grader_writes_into_a_record_no_other_sees(runner):
    def spoils(inputs):
        for item in inputs:
            item.record["metadata"]["schema"] = "spoiled"
            item.record["answer"] = "spoiled"
        return [good(item) for item in inputs]

    record = {"answer": "42", "metadata": {"schema": "{}"}}
    for each in kinds(spoils):
        assert rewards(await runner.grade("spoiler", each, items(2, record))) == [0.0, 1.0]
        assert record == {"answer": "42", "metadata": {"schema": "{}"}}


async def test_a_record_that_cannot_be_copied_is_still_graded(runner):
    record = {"lock": threading.Lock()}
    assert rewards(await runner.grade("good", Batch(raises_on()), items(2, record))) == [0.0, 1.0]


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
    assert runner.hanging() == {"hangs": 1}
    hangs.release.set()
    await settled(runner)


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

    assert rewards(await runner.grade("single", AsyncBatch(function), items(12), SOON)) == [
        None,
        *map(float, range(1, 12)),
    ]


async def test_a_grader_that_keeps_hanging_is_not_asked_for_ever():
    hangs = Hangs("d:0")
    with GraderRunner(calls=2, hanging=3) as runner:
        late = await asyncio.gather(*(runner.grade("hangs", hangs, items(2), SOON) for _ in range(12)))
        assert {grade.error_type for grades in late for grade in grades} == {"RewarderTimeout", "GraderUnavailable"}
        assert hangs.started <= 4  # the third that is given up on may have one beside it
        before = hangs.started
        refused = await runner.grade("hangs", hangs, items(2))
        assert hangs.started == before
        assert "calls of it hang; it is not asked until one of them ends" in refused[0].reason
        assert threading.active_count() < 20

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
    assert runner.hanging() == {"blocks": 1}
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
    assert runner.hanging() == {"stubborn": 1}
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


async def test_a_caller_that_leaves_takes_the_calls_that_wait_with_it():
    hangs = Hangs()
    with GraderRunner(calls=1) as runner:
        running = asyncio.create_task(runner.grade("hangs", hangs, items(), SOON))
        waiting = asyncio.create_task(runner.grade("hangs", hangs, items(), SOON))
        await asyncio.sleep(0.05)
        for task in (running, waiting):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await asyncio.sleep(2 * SOON)
        assert hangs.started == 1
        assert runner.hanging() == {"hangs": 1}  # though nobody waits for it
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


def test_a_caller_without_an_event_loop_waits():
    with GraderRunner() as runner:
        for each in kinds(raises_on("d:1")):
            assert rewards(runner.grade_now("picky", each, items())) == [0.0, None, 2.0, 3.0]


async def test_several_threads_may_use_one_runner(runner):
    each = build_grader("math_exact")
    item = GraderInput.of("d:0", {"answer": "42"}, "<think>a</think>42")
    graded = await asyncio.gather(*(asyncio.to_thread(runner.grade_now, "math", each, [item]) for _ in range(16)))
    assert graded == [(Graded(1.0),)] * 16


class Closing:
    closed = False

    async def grade_batch(self, inputs):
        return [good(item) for item in inputs]

    async def aclose(self):
        self.closed = True
        raise RewardError("never mind")


async def test_the_end_of_a_runner_closes_what_graders_hold_open_and_takes_no_more_calls():
    before = threading.active_count()
    runner, closing, fine = GraderRunner(), Closing(), Batch(raises_on())
    await runner.grade("closing", closing, items())
    await runner.grade("fine", fine, items())
    runner.close()
    runner.close()
    assert closing.closed
    with pytest.raises(RuntimeError, match="closed"):
        await runner.grade("fine", fine, items())
    await asyncio.sleep(0.05)
    assert threading.active_count() <= before


async def test_a_runner_that_is_forgotten_is_closed():
    runner, closing = GraderRunner(), Closing()
    await runner.grade("closing", closing, items())
    gone = weakref.ref(runner)
    del runner
    gc.collect()
    assert gone() is None
    assert closing.closed


def test_a_limit_that_is_none_is_refused():
    for name in ("timeout_s", "calls", "hanging"):
        with pytest.raises(ValueError, match=name):
            GraderRunner(**{name: 0})
