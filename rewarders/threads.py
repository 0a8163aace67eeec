"""Executor of daemon threads for rewarders that may block for ever.

A thread cannot be killed, and the executors of the standard library wait at exit for a hanging call, which also occupies
one of their threads for good. Here the process may end at any time, and an abandoned call is replaced by a new thread.
A call that keeps the interpreter lock (such as a catastrophic regular expression) still stops every thread.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class RewarderThreads(Executor):
    """At most ``limit`` concurrent calls, first come first served; each on a new daemon thread.

    A thread costs about 0.1 ms to start, far less than a rewarder that needs one.
    """

    def __init__(self, limit: int = 8) -> None:
        if limit < 1:
            raise ValueError(f"limit is {limit}; accepted: at least 1")
        self._limit = limit
        self._lock = threading.Lock()  # guards the four fields below
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._running: set[Future[Any]] = set()
        self._abandoned: set[Future[Any]] = set()
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run the call as soon as fewer than ``limit`` others run. Raises ``RuntimeError`` after ``shutdown``."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("these threads are shut down")
            self._waiting.append((future, lambda: fn(*args, **kwargs)))
            self._start_waiting()
        return future

    async def run(self, call: Callable[[], T], limit_s: float, *, watch: bool = True) -> T:
        """Return the result of a call. Raises ``TimeoutError``, and abandons the call, ``limit_s`` after its start.

        When the caller leaves, a call that waits for a thread is dropped; one that runs is watched to its limit all the
        same, or abandoned at once without ``watch``.
        """
        loop = asyncio.get_running_loop()
        started: asyncio.Future[None] = loop.create_future()

        def begun() -> T:
            loop.call_soon_threadsafe(_complete, started)
            return call()

        watching = asyncio.ensure_future(self._watched(self.submit(begun), started, limit_s))
        watching.add_done_callback(lambda task: task.cancelled() or task.exception())  # perhaps no one waits any more
        try:
            return await asyncio.shield(watching)
        except asyncio.CancelledError:
            if not (watch and started.done()):
                watching.cancel()
            raise

    async def _watched(self, future: Future[T], started: asyncio.Future[None], limit_s: float) -> T:
        answer = asyncio.wrap_future(future)
        try:
            either: list[asyncio.Future[Any]] = [started, answer]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return await asyncio.wait_for(answer, limit_s)
        finally:
            answer.cancel()
            if not future.done():
                self.abandon(future)

    @property
    def abandoned(self) -> int:
        """Number of abandoned calls that still run."""
        return len(self._abandoned)

    def abandon(self, future: Future[Any]) -> None:
        """Abandon a call: drop it if it waits, else free its place for another thread."""
        future.cancel()
        with self._lock:
            if future in self._running:
                self._running.remove(future)
                self._abandoned.add(future)
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
                threading.Thread(target=self._run, args=(future, call), name="rewarder", daemon=True).start()

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
                self._abandoned.discard(future)
                self._start_waiting()


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call needs no thread, because it returns a coroutine."""
    call = getattr(function, "__call__", None)  # noqa: B004  of an object with an asynchronous __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
