"""What does one grader say of one batch, whatever it does wrong? Calls it and keeps each item's grade as it comes.

Knows no threads: those are ``tfgrpo.rewarders.graders.running``'s. Grades are put into what the caller made, so that what was
graded before a grader was given up on is not lost.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Final

from tfgrpo.rewarders.graders.base import AsyncFunctionGrader, FunctionGrader, Grader, GraderInput, ItemGrader
from tfgrpo.rewarders.graders.grades import SILENT, Grade, finite_number, matched, not_graded, unless_it_raises
from tfgrpo.stores.errors import GraderUnavailable, RewarderTimeout

_AT_ONCE: Final = 8
"""Items of a failed batch that an asynchronous grader is asked for again at the same time."""


class Kept:
    """The grades of one batch, None until there is one. A grade that comes after the time limit is not kept.

    The time is that of the call itself: a grader that holds the interpreter lock also stops whoever waits for it.
    """

    def __init__(self, count: int, limit_s: float = math.inf) -> None:
        self.grades: list[Grade | None] = [None] * count
        self.limit_s = limit_s
        self._deadline = math.inf

    def begin(self) -> None:
        """Start the clock."""
        self._deadline = time.monotonic() + self.limit_s

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self._deadline

    def put(self, position: int, grade: Grade) -> None:
        """Keep the grade of one item."""
        if not self.late:
            self.grades[position] = grade

    def put_all(self, grades: Sequence[Grade]) -> None:
        """Keep the grades of all items."""
        if not self.late:
            self.grades[:] = grades


def is_async(grader: Grader) -> bool:
    """Whether a grader's batch method is a coroutine method."""
    return inspect.iscoroutinefunction(grader.grade_batch)


def is_built_in(grader: Grader) -> bool:
    """Whether no code of a user's is in a grader."""
    ours = type(grader).__module__.startswith("rewarders.")
    return ours and not isinstance(grader, FunctionGrader | AsyncFunctionGrader)


def of_its_own(grader: Grader, inputs: Sequence[GraderInput]) -> list[GraderInput]:
    """The batch as a grader may do with it what it likes: a user's grader gets copies of the records.

    A record that cannot be copied, nested too deep or with what is of no JSON, is shared.
    """
    if is_built_in(grader):
        return list(inputs)
    return [replace(item, record=unless_it_raises(item.record, deepcopy, item.record)) for item in inputs]


def grade_blocking(grader: Grader, inputs: Sequence[GraderInput], kept: Kept) -> Awaitable[object] | None:
    """Have a batch graded in this thread, as long as it takes. Nothing a grader does raises here; Ctrl-C does.

    An item by item grader loses the items that it fails on. A batch that fails is ungraded as a whole, unless the grader
    declares with ``per_item`` that no item depends on another: then each is asked for alone. What is returned, if
    anything, is the answer of a grader that wants to be awaited.
    """
    one = item_function(grader)
    if one is not None:
        for position, item in enumerate(inputs):
            if kept.late:
                break
            kept.put(position, _graded_one(one, item))
        return None
    try:
        said = grader.grade_batch(inputs)
        if inspect.isawaitable(said):
            return said
        kept.put_all(matched(inputs, said))
    except BaseException as error:  # a user's code: its failure is data
        if _is_ctrl_c(error):
            raise
        if _final(grader, error, inputs):
            kept.put_all([not_graded(error)] * len(inputs))
        else:
            _again_blocking(grader, inputs, kept)
    return None


async def grade_awaiting(
    grader: Grader, inputs: Sequence[GraderInput], kept: Kept, begun: Awaitable[object] | None = None
) -> None:
    """Have a batch graded on this event loop, as long as it takes, under the rules of ``grade_blocking``.

    ``begun``: an answer that was asked for already.
    """
    if isinstance(grader, AsyncFunctionGrader):
        await asyncio.gather(*(_await_one(grader.function, inputs, at, kept) for at in range(len(inputs))))
        return
    try:
        kept.put_all(matched(inputs, await _answer(grader, inputs) if begun is None else await begun))
    except BaseException as error:
        if _ends_the_call(error):
            raise
        if _final(grader, error, inputs):
            kept.put_all([not_graded(error)] * len(inputs))
        else:
            turns = asyncio.Semaphore(_AT_ONCE)
            await asyncio.gather(*(_again_awaiting(grader, inputs, at, kept, turns) for at in range(len(inputs))))


async def _answer(grader: Grader, inputs: Sequence[GraderInput]) -> object:
    said = grader.grade_batch(inputs)
    return await said if inspect.isawaitable(said) else said


def _again_blocking(grader: Grader, inputs: Sequence[GraderInput], kept: Kept) -> None:
    for position, item in enumerate(inputs):
        if kept.late:
            return
        one = Kept(1)
        waiting = grade_blocking(grader, [item], one)
        if inspect.iscoroutine(waiting):
            waiting.close()
        second = one.grades[0] or not_graded(TypeError("grade_batch returned an awaitable the second time"))
        kept.put(position, second)


async def _again_awaiting(
    grader: Grader, inputs: Sequence[GraderInput], position: int, kept: Kept, turns: asyncio.Semaphore
) -> None:
    async with turns:
        one = Kept(1)
        await grade_awaiting(grader, [inputs[position]], one)
        kept.put(position, one.grades[0] or SILENT)


def item_function(grader: Grader) -> Callable[[GraderInput], object] | None:
    """What grades one item, when that is all that the grader's batch method does."""
    if isinstance(grader, FunctionGrader):
        return grader.function
    if isinstance(grader, ItemGrader) and type(grader).grade_batch is ItemGrader.grade_batch:
        return grader.score_one
    return None


def _graded_one(one: Callable[[GraderInput], object], item: GraderInput) -> Grade:
    try:
        return finite_number(one(item))
    except BaseException as error:
        if _is_ctrl_c(error):
            raise
        return not_graded(error)


async def _await_one(
    one: Callable[[GraderInput], Awaitable[object]], inputs: Sequence[GraderInput], position: int, kept: Kept
) -> None:
    try:
        kept.put(position, finite_number(await one(inputs[position])))
    except BaseException as error:
        if _ends_the_call(error):
            raise
        kept.put(position, not_graded(error))


def _final(grader: Grader, error: BaseException, inputs: Sequence[GraderInput]) -> bool:
    """Whether asking item by item is no use, or would ask something else: a grader may compare within its batch."""
    alike = unless_it_raises(False, getattr, grader, "per_item", False) is True
    return not alike or len(inputs) == 1 or isinstance(error, GraderUnavailable | RewarderTimeout)


def _is_ctrl_c(error: BaseException) -> bool:
    """Whether the user wants the process to end, which only the main thread is told; elsewhere a grader raised it."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def _ends_the_call(error: BaseException) -> bool:
    """Whether somebody outside wants this coroutine to end; a grader may raise ``CancelledError`` by itself."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, GeneratorExit)
