"""Run graders off the event loop, each with threads or an event loop of its own, within a time limit.

A call past its limit is abandoned; items it graded before count. A grader with too many abandoned calls still running is
not called until one of them ends, so that it cannot take threads without bound. A failure of one grader costs only the
items of that grader their grade. ``tfgrpo.rewarders.graders.combine`` combines grades.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self, TypeVar

from tfgrpo.rewarders.graders.base import Grade, Grader, GraderInput, NotGraded
from tfgrpo.rewarders.graders.calling import BatchGrades, grade_async, grade_blocking, isolated_inputs
from tfgrpo.rewarders.graders.grades import NO_GRADE
from tfgrpo.rewarders.threads import RewarderThreads, is_async

T = TypeVar("T")

TIMEOUT_S: Final = 60.0
"""Default time limit of one batch at one grader."""
CALLS: Final = 8
"""Concurrent batches of one plain grader."""
MOST_HANGING: Final = 4
"""Abandoned calls of one grader that still run, at which it is no longer called."""
_GRACE_S: Final = 1.0
"""Extra time for an event loop to answer, before it counts as blocked."""
_CLOSE_S: Final = 2.0


class GraderRunner:
    """Runs graders; may be used from several threads and event loops at once.

    Close it at the end; a forgotten one is closed when it is collected, or when the process ends.
    """

    def __init__(self, *, timeout_s: float = TIMEOUT_S) -> None:
        """``timeout_s``: default limit of a batch."""
        if not timeout_s > 0:
            raise ValueError(f"timeout_s is {timeout_s}; accepted: more than 0")
        self._timeout_s = timeout_s
        self._lock = threading.Lock()  # guards the two fields below
        self._workers: dict[int, _GraderWorker] = {}
        self._closed = False
        # Not a method of its own, which would keep the runner from being collected.
        self._close = weakref.finalize(self, _close_all, self._workers)

    async def grade(
        self, name: str, grader: Grader, inputs: Sequence[GraderInput], timeout_s: float | None = None
    ) -> tuple[Grade, ...]:
        """Return one grade for each input, in order, within ``timeout_s`` of the call's start.

        Errors of a grader become grades. A batch for a plain grader may wait for a free thread before it starts. Raises
        ``RuntimeError`` after ``close``.
        """
        worker = self._worker(name, grader)
        return await worker.grade(inputs, self._timeout_s if timeout_s is None else timeout_s) if inputs else ()

    def close(self) -> None:
        """Accept no more calls, and release threads, loops and connections. Does not wait for hanging graders."""
        with self._lock:
            self._closed = True
        self._close()

    def __reduce__(self) -> tuple[Callable[[], Self], tuple[()]]:
        return partial(type(self), timeout_s=self._timeout_s), ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _worker(self, name: str, grader: Grader) -> _GraderWorker:
        with self._lock:
            if self._closed:
                raise RuntimeError("this runner is closed")
            worker = self._workers.get(id(grader))
            if worker is None:
                # A worker references its grader, so no other object can get the same id.
                worker = self._workers[id(grader)] = _GraderWorker(name, grader)
            return worker


def _close_all(workers: dict[int, _GraderWorker]) -> None:
    while workers:
        workers.popitem()[1].close()


class _GraderWorker:
    """Threads or an event loop of one grader, and the calls of it that were abandoned."""

    def __init__(self, name: str, grader: Grader) -> None:
        self.name = name
        self._grader = grader
        self._threads = RewarderThreads(CALLS)
        self._lock = threading.Lock()  # guards the three fields below
        self._loop: LoopThread | None = None
        self._closed = False
        self._abandoned: list[LoopThread | asyncio.Task[None]] = []

    @property
    def hanging(self) -> int:
        """Number of abandoned calls that still run."""
        with self._lock:
            self._abandoned = [each for each in self._abandoned if not each.done()]
            return len(self._abandoned) + self._threads.abandoned

    async def grade(self, inputs: Sequence[GraderInput], limit_s: float) -> tuple[Grade, ...]:
        """Return one grade for each input, at most ``limit_s`` after the call has started."""
        grades = BatchGrades(len(inputs), limit_s)
        run = self._on_loop if is_async(self._grader.grade_batch) else self._in_thread
        missing = self._refusal() or await run(inputs, grades)
        return grades.complete(missing)

    def close(self) -> None:
        """Release the threads, the loop, and the connections that the grader has open on it."""
        self._threads.shutdown()
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
        if loop is None:
            return
        close = getattr(self._grader, "aclose", None)
        if inspect.iscoroutinefunction(close):
            with suppress(Exception):  # a connection that does not close is dropped with its loop
                loop.start(close).result(_GRACE_S)
        loop.close()

    async def _in_thread(self, inputs: Sequence[GraderInput], grades: BatchGrades) -> NotGraded:
        """Grade a batch with a plain grader; return the grade of items without one."""

        def call() -> Awaitable[object] | NotGraded | None:
            if refusal := self._refusal():  # others of its calls may hang by now
                return refusal
            grades.start()
            return grade_blocking(self._grader, isolated_inputs(self._grader, inputs), grades)

        try:
            pending = await self._threads.run(call, grades.limit_s)
        except TimeoutError:
            return self._late(grades)
        if isinstance(pending, NotGraded):
            return pending
        return self._missing(grades) if pending is None else await self._on_loop(inputs, grades, pending)

    async def _on_loop(
        self, inputs: Sequence[GraderInput], grades: BatchGrades, pending: Awaitable[object] | None = None
    ) -> NotGraded:
        """As ``_in_thread``, for an asynchronous grader, or the ``pending`` answer of another."""
        loop, limit_s = self._living_loop(), grades.left_s
        future = asyncio.wrap_future(loop.start(lambda: self._in_time(inputs, grades, limit_s, pending)))
        try:
            await asyncio.wait([future], timeout=limit_s + _GRACE_S)
            if not future.done():
                self._replace(loop)
                return self._late(grades)
            if future.cancelled():
                return NotGraded(f"{self.name}: the event loop of the grader ended", "GraderUnavailable", broke=True)
            return self._missing(grades) if future.result() else self._late(grades)
        finally:
            future.cancel()

    async def _in_time(
        self, inputs: Sequence[GraderInput], grades: BatchGrades, limit_s: float, pending: Awaitable[object] | None
    ) -> bool:
        """Grade a batch on this loop. Return whether the grader was in time."""
        if pending is None:
            grades.start()
        work = grade_async(self._grader, isolated_inputs(self._grader, inputs), grades, pending)
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait([task], timeout=limit_s)
            return task.done()
        finally:
            if not task.done():
                with self._lock:
                    self._abandoned.append(task)
                task.cancel()

    def _living_loop(self) -> LoopThread:
        with self._lock:
            if self._closed:
                raise RuntimeError("this runner is closed")
            if self._loop is None or self._loop.done():
                self._loop = LoopThread(f"grader {self.name}")
            return self._loop

    def _replace(self, loop: LoopThread) -> None:
        """Abandon a loop that a call of the grader blocks; the next call gets a new one."""
        with self._lock:
            if self._loop is loop:
                self._loop = None
                self._abandoned.append(loop)
        loop.stop()

    def _missing(self, grades: BatchGrades) -> NotGraded:
        """Return the grade of an item without one after the call has ended."""
        return self._late(grades) if grades.late else NO_GRADE

    def _late(self, grades: BatchGrades) -> NotGraded:
        return NotGraded(f"{self.name}: no reward within {grades.limit_s:g} s", "RewarderTimeout")

    def _refusal(self) -> NotGraded | None:
        """Return the grade of every item while too many calls hang; None when the grader may be called."""
        if (hanging := self.hanging) < MOST_HANGING:
            return None
        reason = f"{self.name}: {hanging} calls of it hang; it is not called until one of them ends"
        return NotGraded(reason, "GraderUnavailable", broke=True)


class LoopThread:
    """An event loop in a daemon thread, which runs until ``close``.

    A coroutine that blocks stops its whole loop and cannot be interrupted. So graders do not share loops, and a loop that
    does not answer is replaced.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def done(self) -> bool:
        """Return whether the loop has ended, for any reason."""
        return not self._thread.is_alive()

    def start(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run the coroutine that ``work`` makes. Raises ``RuntimeError`` when the loop has ended."""
        coroutine = work()
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise

    def stop(self) -> None:
        """Ask the loop to cancel its work and end as soon as it answers; do not wait."""
        with suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._loop.stop)

    def close(self) -> None:
        """End the loop, with 2 s to cancel its work; one that blocks is abandoned."""
        self.stop()
        if self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        # ``asyncio.Runner`` would wait without a limit for work that refuses to be cancelled, and for its threads.
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_cancel_all())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        # Half, so that the thread itself ends within the time that ``close`` waits for it.
        await asyncio.wait(tasks, timeout=_CLOSE_S / 2)
