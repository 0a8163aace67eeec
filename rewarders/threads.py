"""Where does a rewarder run that may block for ever? On daemon threads, a bounded number of them.

A thread cannot be killed. The executors of the standard library therefore wait at exit for a rewarder that hangs, and
lend it one of their threads for good. Here the process may end at any time, and a call that was given up on is
replaced by a fresh thread. What an abandoned call still does, it does unobserved.
A call that never lets go of the interpreter lock (a regular expression run wild) stops every thread, these included.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class RewarderThreads(Executor):
    """At most ``limit`` calls at a time, first come first served; each on a daemon thread of its own.

    A thread costs about 0.1 ms to start, which is nothing beside what a rewarder that needs one does.
    """

    def __init__(self, limit: int = 8) -> None:
        if limit < 1:
            raise ValueError(f"limit is {limit}; accepted: at least 1")
        self._limit = limit
        # Guards the three fields below, which callers and finishing threads change.
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._running: set[Future[Any]] = set()
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

    def abandon(self, future: Future[Any]) -> None:
        """Give up on a call: drop it if it still waits, else stop counting its thread as taken."""
        future.cancel()
        self._release(future)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Take no more calls and cancel those that wait. Never waits for running ones: they may hang."""
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
        except BaseException as error:  # noqa: BLE001  handed to whoever waits for the future
            future.set_exception(error)
        else:
            future.set_result(result)
        finally:
            self._release(future)

    def _release(self, future: Future[Any]) -> None:
        with self._lock:
            self._running.discard(future)
            self._start_waiting()
