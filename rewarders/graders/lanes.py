"""What does one grader run on? Threads or an event loop of its own, and a count of the calls of it that hang.

A call past its time limit is left behind; what it graded so far counts. A grader with too many calls left behind is not
asked until one of them ends, so that it cannot use up threads for ever.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any, Final

from tfgrpo.rewarders.graders.base import Grader, GraderInput
from tfgrpo.rewarders.graders.calling import Kept, grade_awaiting, grade_blocking, is_async, of_its_own
from tfgrpo.rewarders.graders.grades import SILENT, Grade, NotGraded
from tfgrpo.rewarders.graders.loops import LoopThread
from tfgrpo.rewarders.threads import RewarderThreads

_GRACE_S: Final = 1.0
"""What a loop gets on top of a time limit to answer, before it counts as blocked."""


class Lane:
    """Runs one grader. May be used from several threads and event loops at once."""

    def __init__(self, name: str, grader: Grader, *, calls: int, hanging: int) -> None:
        """``calls``: batches at a time, if it is a plain grader. ``hanging``: calls left behind that make it broken."""
        self.name = name
        self._grader = grader
        self._threads = RewarderThreads(calls)
        self._most_left = hanging
        self._lock = threading.Lock()  # guards the fields below
        self._loop: LoopThread | None = None
        self._closed = False
        self._left: set[object] = set()

    @property
    def left_behind(self) -> int:
        """Calls that were given up on and still run."""
        return len(self._left)

    @property
    def broken(self) -> bool:
        """Whether so many calls hang that no other is started."""
        return self.left_behind >= self._most_left

    async def grade(self, inputs: Sequence[GraderInput], limit_s: float) -> tuple[Grade, ...]:
        """One grade for each input, at most ``limit_s`` after the call has begun."""
        kept = Kept(len(inputs), limit_s)
        if self.broken:
            rest = self._refusal()
        elif is_async(self._grader):
            rest = await self._on_loop(inputs, kept, limit_s)
        else:
            rest = await self._in_thread(inputs, kept, limit_s)
        return tuple(grade or rest for grade in kept.grades)

    def close(self) -> None:
        """Give back the threads, the loop, and the connections that the grader has open on it. Waits for nothing else."""
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

    async def _in_thread(self, inputs: Sequence[GraderInput], kept: Kept, limit_s: float) -> NotGraded:
        """Have a batch graded by a plain grader; what is returned goes to the items without a grade."""
        call = _Call(self, inputs, kept)
        # The caller may be cancelled; the call is watched to its end or its limit all the same.
        watching = asyncio.ensure_future(self._watched(call, limit_s))
        try:
            return await asyncio.shield(watching)
        except asyncio.CancelledError:
            if not call.begun.done():
                watching.cancel()
            raise

    async def _watched(self, call: _Call, limit_s: float) -> NotGraded:
        future = self._threads.submit(call)
        answer = asyncio.wrap_future(future)
        try:
            either: list[asyncio.Future[Any]] = [call.begun, answer]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            start = time.monotonic()
            waiting = await asyncio.wait_for(answer, limit_s)
        except TimeoutError:
            return self._late(call.kept)
        finally:
            answer.cancel()
            call.leave_behind()
            self._threads.abandon(future)
        if waiting is None:
            return self._refusal() if call.refused else self._silence(call.kept)
        return await self._on_loop(call.inputs, call.kept, limit_s - (time.monotonic() - start), waiting)

    async def _on_loop(
        self, inputs: Sequence[GraderInput], kept: Kept, limit_s: float, begun: Awaitable[object] | None = None
    ) -> NotGraded:
        """As ``_in_thread``, by an asynchronous grader, or one whose answer has to be awaited."""
        late = self._late(kept)
        loop = self._living_loop()
        future = asyncio.wrap_future(loop.start(lambda: self._on_this_loop(inputs, kept, limit_s, begun)))
        try:
            await asyncio.wait([future], timeout=limit_s + _GRACE_S)
            if not future.done():
                self._give_up_on(loop)
                return late
            if future.cancelled():
                return NotGraded(f"{self.name}: the event loop of the grader ended", "GraderUnavailable", broke=True)
            return self._silence(kept) if future.result() else late
        finally:
            future.cancel()

    async def _on_this_loop(
        self, inputs: Sequence[GraderInput], kept: Kept, limit_s: float, begun: Awaitable[object] | None
    ) -> bool:
        """Whether the grader was in time."""
        if begun is None:
            kept.begin()
        work = grade_awaiting(self._grader, of_its_own(self._grader, inputs), kept, begun)
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait([task], timeout=limit_s)
            return task.done()
        finally:
            if not task.done():
                self.leave(task)
                task.add_done_callback(self.ended)
                task.cancel()

    def leave(self, call: object) -> None:
        """Count a call that is left behind."""
        with self._lock:
            self._left.add(call)

    def ended(self, call: object) -> None:
        """Count it no more."""
        with self._lock:
            self._left.discard(call)

    def blocking(self, inputs: Sequence[GraderInput], kept: Kept) -> Awaitable[object] | None:
        """Have a batch graded in this thread, as long as it takes."""
        return grade_blocking(self._grader, of_its_own(self._grader, inputs), kept)

    def _living_loop(self) -> LoopThread:
        with self._lock:
            if self._closed:
                raise RuntimeError("this runner is closed")
            if self._loop is None:
                self._loop = LoopThread(f"grader {self.name}", self._loop_ended)
            return self._loop

    def _give_up_on(self, loop: LoopThread) -> None:
        """A loop that does not answer is blocked by a call of the grader; the next call gets a new one."""
        with self._lock:
            if self._loop is not loop:
                return
            self._loop = None
            self._left.add(loop)
        loop.let_go()

    def _loop_ended(self, loop: LoopThread) -> None:
        with self._lock:
            self._left.discard(loop)
            if self._loop is loop:
                self._loop = None

    def _silence(self, kept: Kept) -> NotGraded:
        """What an item without a grade gets after the call has ended."""
        return self._late(kept) if kept.late else SILENT

    def _late(self, kept: Kept) -> NotGraded:
        return NotGraded(f"{self.name}: no reward within {kept.limit_s:g} s", "RewarderTimeout")

    def _refusal(self) -> NotGraded:
        reason = f"{self.name}: {self.left_behind} calls of it hang; it is not asked until one of them ends"
        return NotGraded(reason, "GraderUnavailable", broke=True)


class _Call:
    """One batch for a plain grader, on its way into a thread."""

    def __init__(self, lane: Lane, inputs: Sequence[GraderInput], kept: Kept) -> None:
        self.inputs = inputs
        self.kept = kept
        self.refused = False
        self._lane = lane
        self._home = asyncio.get_running_loop()
        self.begun: asyncio.Future[None] = self._home.create_future()
        self._lock = threading.Lock()  # guards the field below
        self._running = False

    def __call__(self) -> Awaitable[object] | None:
        """Grade, unless too many calls hang by now."""
        self.refused = self._lane.broken
        if self.refused:
            return None
        with self._lock:
            self._running = True
        try:
            self._home.call_soon_threadsafe(self._tell)
            self.kept.begin()
            return self._lane.blocking(self.inputs, self.kept)
        finally:
            with self._lock:
                self._running = False
            self._lane.ended(self)

    def leave_behind(self) -> None:
        """If it still runs, it is left behind."""
        with self._lock:
            if self._running:
                self._lane.leave(self)

    def _tell(self) -> None:
        if not self.begun.done():
            self.begun.set_result(None)
