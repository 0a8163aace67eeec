"""Wait for user code: rewarders, agents and tools, many at once on an event loop, and on daemon threads where they may block.

The executors of the standard library wait at exit for a hanging call, which also occupies one of their threads for good. Here
the process may end at any time, and an abandoned call is replaced by a new thread. Code that blocks its event loop, or keeps
the interpreter lock (such as a catastrophic regular expression), still stops everything.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar, cast

from tfgrpo.rewarders.calling import described, is_ctrl_c, no_score
from tfgrpo.stores.errors import ActorError, RewarderTimeout

_P = ParamSpec("_P")
_T = TypeVar("_T")
CANCEL_WAIT_S = 2.0


class RewarderThreads(Executor):
    """At most ``limit`` concurrent calls, first come first served; each on a new daemon thread, which costs about 0.1 ms."""

    def __init__(self, limit: int = 8, name: str = "rewarder") -> None:
        """``name``: of the threads, for whoever looks at a process."""
        self._limit, self._name = limit, name
        self._lock = threading.Lock()  # guards the three fields below
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._running: set[Future[Any]] = set()
        self._closed = False

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Run the call as soon as fewer than ``limit`` others run. Raises ``RuntimeError`` after ``shutdown``."""
        future: Future[_T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("these threads are shut down")
            self._waiting.append((future, lambda: fn(*args, **kwargs)))
            self._start_waiting()
        return future

    def abandon(self, future: Future[Any]) -> None:
        """Abandon a call: drop it if it waits, else free its place for another thread."""
        future.cancel()
        with self._lock:
            self._running.discard(future)
            self._start_waiting()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Accept no more calls and cancel waiting ones. Never waits for running ones: they may hang."""
        with self._lock:
            self._closed = True
            dropped = [future for future, _ in self._waiting]
            self._waiting.clear()
        for future in dropped:
            future.cancel()

    def _start_waiting(self) -> None:
        while self._waiting and len(self._running) < self._limit:
            future, call = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                self._running.add(future)
                threading.Thread(target=self._run, args=(future, call), name=self._name, daemon=True).start()

    def _run(self, future: Future[Any], call: Callable[[], Any]) -> None:
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001  the result of the future
            future.set_exception(error)
        else:
            future.set_result(result)
        finally:
            with self._lock:
                self._running.discard(future)
                self._start_waiting()


async def concurrently(calls: Sequence[Callable[[], Any]], limit_s: float, grace_s: float = 0.0) -> list[Any]:
    """Make calls at once; return what each returned or raised: ``RewarderTimeout`` after the limit and the grace."""
    late, end = RewarderTimeout(no_score(limit_s)), time.monotonic() + limit_s + grace_s

    async def one(call: Callable[[], Any]) -> Any:
        outcome = await _outcome_of(call)
        return outcome if time.monotonic() <= end else late

    tasks = [asyncio.ensure_future(one(call)) for call in calls]
    try:
        await asyncio.wait(tasks, timeout=limit_s + grace_s)
        return [task.result() if task.done() else late for task in tasks]
    finally:
        for task in tasks:
            task.cancel()


async def _outcome_of(call: Callable[[], Any]) -> Any:
    # Alone: a frame that holds its own error would live until the garbage is collected.
    try:
        answer = call()
        return await answer if inspect.isawaitable(answer) else answer
    except BaseException as error:  # raised into an event loop, what is no ``Exception`` would end the loop
        if is_ctrl_c(error) or is_cancellation(error):
            raise
        return error


async def all_of(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """Await everything concurrently. When one raises, the others still finish first: their answers are paid for."""
    done = await asyncio.gather(*work, return_exceptions=True)
    for result in done:
        if isinstance(result, BaseException):
            raise result
    return cast("list[_T]", done)


def is_cancellation(error: BaseException) -> bool:
    """Return whether the coroutine that caught this is being cancelled or closed; user code may raise the same errors."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    # Python raises this at the very await of a coroutine that it closes; user code raises it in a frame below.
    return isinstance(error, GeneratorExit) and (error.__traceback__ is None or error.__traceback__.tb_next is None)


async def contained(work: Awaitable[_T]) -> _T:
    """Await a user's code. Raises ``ActorError`` for what is no ``Exception``, but for the cancellation of this task."""
    # ``SystemExit`` and the like would end the event loop of all other rollouts too.
    try:
        return await work
    except Exception:
        raise
    except BaseException as error:
        if is_cancellation(error):
            raise
        if isinstance(error, asyncio.CancelledError):
            raise ActorError("CancelledError: the attempt cancelled itself") from None
        raise ActorError(described(error, whole=True)) from None


async def in_thread(threads: RewarderThreads, work: Callable[[], _T]) -> _T:
    """Run a blocking function in a thread, which is abandoned when this is cancelled."""

    def checked() -> _T:
        try:
            return work()
        # A future never ends with the one, and the other closes who waits.
        except (StopIteration, GeneratorExit) as error:
            raise RuntimeError(f"the code raised {type(error).__name__}") from error

    future = threads.submit(checked)
    try:
        return await asyncio.wrap_future(future)
    finally:
        threads.abandon(future)


async def gathered(work: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Return all results; when one raises, cancel the others and wait for them."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel_all(tasks)


def cancel_all(running: Iterable[asyncio.Future[Any]], wait_s: float = CANCEL_WAIT_S) -> Coroutine[Any, Any, bool]:
    """Cancel work at once; return a coroutine that waits at most ``wait_s`` and returns whether all of it has ended."""
    pending = []
    for work in running:
        # Looks at the exception, also of work that is done: asyncio logs those that are never retrieved.
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        if work.cancel():
            pending.append(work)

    async def ended() -> bool:
        return not pending or not (await asyncio.wait(pending, timeout=wait_s))[1]

    return ended()
