"""A failure of a grader costs only its own items their grade."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest

from tests.support.rewards.grader_kinds import AsyncBatch, Batch, good, items, per_item, raises_on, reasons, rewards
from tfgrpo.rewarders.graders.base import GradeResult, GraderInput, ItemGrader, grader
from tfgrpo.rewarders.graders.calling import BatchGrades, grade_blocking
from tfgrpo.rewarders.graders.loading import build_grader
from tfgrpo.rewarders.graders.running import GraderRunner
from tfgrpo.stores.errors import GraderUnavailable, RewardError


@pytest.fixture
def runner():
    with GraderRunner(timeout_s=5.0) as runner:
        yield runner


def test_a_grade_after_the_time_limit_is_dropped():
    kept = BatchGrades(1, limit_s=-1.0)
    kept.start()
    kept.set(0, 1.0)
    kept.set_all([1.0])
    assert kept.grades == [None]


class Promised(Batch):
    """Its plain method returns something to be awaited."""

    def grade_batch(self, inputs):
        self.calls += 1
        return self.function(inputs)


def as_async(function):
    async def call(inputs):
        await asyncio.sleep(0)
        return function(inputs)

    return call


def kinds(function):
    return [Batch(function), AsyncBatch(as_async(function)), Promised(as_async(function))]


async def test_a_good_grader_grades_every_item_whatever_its_kind(runner):
    for each in kinds(raises_on()):
        assert rewards(await runner.grade("good", each, items())) == [0.0, 1.0, 2.0, 3.0]
        assert each.calls == 1
        assert await runner.grade("good", each, []) == ()


async def test_a_batch_that_a_grader_raises_on_is_ungraded_as_a_whole(runner):
    """Asked item by item, a grader that compares within its batch would give every item the best reward."""

    def best(inputs):
        longest = max(len(item.completion) for item in inputs)
        rewards = [1.0 if len(item.completion) == longest else 0.0 for item in inputs]
        if any(item.sample_id == "d:1" for item in inputs):
            raise ValueError("cannot\nread  this")
        return rewards

    for each in kinds(best):
        grades = await runner.grade("best", each, items())
        assert rewards(grades) == [None] * 4
        assert reasons(grades) == {"ValueError: ValueError: cannot read this"}
        assert all(grade.broke for grade in grades)
        assert each.calls == 1


async def test_a_grader_of_items_by_declaration_loses_the_items_that_it_raises_on(runner):
    for each in map(per_item, kinds(raises_on("d:1"))):
        grades = await runner.grade("picky", each, items())
        assert rewards(grades) == [0.0, None, 2.0, 3.0]
        assert reasons(grades) == {"ValueError: ValueError: cannot read this"}
        assert each.calls == 5


async def test_a_grader_of_items_that_raises_on_everything_is_asked_once_more_for_each(runner):
    for each in map(per_item, kinds(raises_on("d:0", "d:1", "d:2", "d:3"))):
        assert rewards(await runner.grade("broken", each, items())) == [None] * 4
        assert each.calls == 5


async def test_a_grader_that_cannot_be_asked_at_all_is_not_asked_again(runner):
    def down(inputs):
        raise GraderUnavailable("the service is down")

    for each in map(per_item, kinds(down)):
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

    for each in (*kinds(fails), *map(per_item, kinds(fails)), one, later):
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

    for each in (*map(per_item, kinds(function)), grader(lambda item: function([item])[0].reward)):
        grades = await runner.grade("mute", each, items())
        assert rewards(grades) == [0.0, None, 2.0, 3.0]
        assert reasons(grades) == {"Unprintable: Unprintable"}


def test_ctrl_c_in_the_main_thread_is_the_users_and_no_grade():
    def interrupted(_):
        raise KeyboardInterrupt

    for each in (Batch(interrupted), grader(interrupted)):
        with pytest.raises(KeyboardInterrupt):
            grade_blocking(each, items(), BatchGrades(4))


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


async def test_several_threads_may_use_one_runner(runner):
    each = build_grader("math_exact")
    item = GraderInput.of("d:0", {"answer": "42"}, "<think>a</think>42")

    def grade():
        return asyncio.run(runner.grade("math", each, [item]))

    graded = await asyncio.gather(*(asyncio.to_thread(grade) for _ in range(16)))
    assert graded == [(1.0,)] * 16


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
    with pytest.raises(ValueError, match="timeout_s"):
        GraderRunner(timeout_s=0)
