"""Executor of daemon threads for rewarders that may block for ever.

A thread cannot be killed, and the executors of the standard library wait at exit for a hanging call, which also occupies
one of their threads for good. Here the process may end at any time, and an abandoned call is replaced by a new thread.
A call that keeps the interpreter lock (such as a catastrophic regular expression) still stops every thread.
"""

from __future__ import annotations

import inspect
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class RewarderThreads(Executor):
    """At most ``limit`` concurrent calls, first come first served; each on a new daemon thread.

    A thread costs about 0.1 ms to start, far less than a rewarder that needs one.
    """

    def __init__(self, limit: int = 8) -> None:
        self._limit = limit
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
                self._start_waiting()


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call needs no thread, because it returns a coroutine."""
    call = getattr(function, "__call__", None)  # noqa: B004  of an object with an asynchronous __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
