"""Call one grader with one batch and record each item's grade as it comes; errors of the grader become grades.

Threads and time limits are those of ``tfgrpo.rewarders.graders.running``. Grades go into an object of the caller, so that
items graded before a call is abandoned are not lost.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Final

from tfgrpo.rewarders.faults import is_cancellation, is_ctrl_c
from tfgrpo.rewarders.graders.base import AsyncFunctionGrader, FunctionGrader, Grade, Grader, GraderInput, ItemGrader
from tfgrpo.rewarders.graders.grades import as_grade, matched, not_graded, unless_it_raises
from tfgrpo.stores.errors import GraderUnavailable, RewarderTimeout

_CONCURRENT: Final = 8
"""Items of a failed batch that an asynchronous grader is called again for at the same time."""


class BatchGrades:
    """The grades of one batch, None until graded. Grades after the time limit are dropped.

    The call checks the clock itself: a grader that keeps the interpreter lock also stops the thread that waits for it.
    """

    def __init__(self, count: int, limit_s: float = math.inf) -> None:
        self.grades: list[Grade | None] = [None] * count
        self.limit_s = limit_s
        self._deadline = math.inf

    def start(self) -> None:
        """Start the clock."""
        self._deadline = time.monotonic() + self.limit_s

    @property
    def left_s(self) -> float:
        """Seconds until the time limit; all of it before the start."""
        return min(self.limit_s, self._deadline - time.monotonic())

    @property
    def late(self) -> bool:
        """Whether the time limit has passed."""
        return time.monotonic() > self._deadline

    def set(self, index: int, grade: Grade) -> None:
        """Record the grade of one item."""
        if not self.late:
            self.grades[index] = grade

    def set_all(self, grades: Sequence[Grade]) -> None:
        """Record the grades of all items."""
        if not self.late:
            self.grades[:] = grades

    def complete(self, missing: Grade) -> tuple[Grade, ...]:
        """Return the grades, with ``missing`` where there is none."""
        return tuple(missing if grade is None else grade for grade in self.grades)


def is_built_in(grader: Grader) -> bool:
    """Return whether a grader contains no user code."""
    ours = type(grader).__module__.startswith("tfgrpo.rewarders.")
    return ours and not isinstance(grader, FunctionGrader | AsyncFunctionGrader)


def isolated_inputs(grader: Grader, inputs: Sequence[GraderInput]) -> list[GraderInput]:
    """Return the batch with copies of the records if a user's grader may change them.

    A record that cannot be copied (nested too deep, or not JSON) is shared.
    """
    if is_built_in(grader):
        return list(inputs)
    return [replace(item, record=unless_it_raises(item.record, deepcopy, item.record)) for item in inputs]


def grade_blocking(grader: Grader, inputs: Sequence[GraderInput], grades: BatchGrades) -> Awaitable[object] | None:
    """Grade a batch in this thread, without a limit. Errors of the grader do not propagate; Ctrl-C does.

    An item by item grader loses the items on which it fails. A batch that fails is ungraded as a whole, unless the grader
    declares with ``per_item`` that items are independent: then each is graded alone. The result, if any, is an answer
    that has to be awaited.
    """
    function = item_function(grader)
    if function is None:
        try:
            answer = grader.grade_batch(inputs)
            if inspect.isawaitable(answer):
                return answer
            grades.set_all(matched(inputs, answer))
            return None
        except BaseException as error:  # user code: its failure is data
            if is_ctrl_c(error):
                raise
            if _is_final(grader, error, inputs):
                grades.set_all([not_graded(error)] * len(inputs))
                return None
        function = partial(_graded_alone, grader)
    for index, item in enumerate(inputs):
        if grades.late:
            break
        try:
            grades.set(index, as_grade(function(item)))
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            grades.set(index, not_graded(error))
    return None


async def grade_async(
    grader: Grader, inputs: Sequence[GraderInput], grades: BatchGrades, pending: Awaitable[object] | None = None
) -> None:
    """Grade a batch on this event loop, without a limit, under the rules of ``grade_blocking``.

    ``pending``: an answer of the grader that was requested already.
    """

    async def alone(item: GraderInput) -> object:
        async with limiter:
            answer: object = grader.grade_batch([item])
            return matched([item], await answer if inspect.isawaitable(answer) else answer)[0]

    async def one(index: int, item: GraderInput) -> None:
        try:
            grades.set(index, as_grade(await function(item)))
        except BaseException as error:
            if is_cancellation(error):
                raise
            grades.set(index, not_graded(error))

    limiter = asyncio.Semaphore(_CONCURRENT)
    function: Callable[[GraderInput], Awaitable[object]] = alone
    if isinstance(grader, AsyncFunctionGrader):
        function = grader.function
    else:
        try:
            answer: object = grader.grade_batch(inputs) if pending is None else pending
            grades.set_all(matched(inputs, await answer if inspect.isawaitable(answer) else answer))
            return
        except BaseException as error:
            if is_cancellation(error):
                raise
            if _is_final(grader, error, inputs):
                grades.set_all([not_graded(error)] * len(inputs))
                return
    await asyncio.gather(*(one(index, item) for index, item in enumerate(inputs)))


def _graded_alone(grader: Grader, item: GraderInput) -> Grade:
    return matched([item], grader.grade_batch([item]))[0]


def item_function(grader: Grader) -> Callable[[GraderInput], object] | None:
    """Return the function that grades one item, when the grader's batch method only calls it for each."""
    if isinstance(grader, ItemGrader) and type(grader).grade_batch is ItemGrader.grade_batch:
        return grader.score_one
    return None


def _is_final(grader: Grader, error: BaseException, inputs: Sequence[GraderInput]) -> bool:
    """Return whether grading item by item cannot help, or would change the question: a grader may compare items."""
    independent = unless_it_raises(False, getattr, grader, "per_item", False) is True
    return not independent or len(inputs) == 1 or isinstance(error, GraderUnavailable | RewarderTimeout)
