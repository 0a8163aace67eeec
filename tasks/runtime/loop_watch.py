"""Log where the event loop is blocked, from a thread that watches it.

An asynchronous agent or tool that blocks stops every rollout of the process, time limits included. It cannot be
interrupted from outside, but the line at which it blocks can be named.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from types import FrameType
from typing import Final

BLOCKED_S: Final = 10.0
_LOG: Final = logging.getLogger("tfgrpo.runtime")


class LoopWatch:
    """Watches one loop from a daemon thread, from ``start`` to ``stop``; logs each blockage once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread_id: int, blocked_s: float = BLOCKED_S) -> None:
        self._loop = loop
        self._thread_id = thread_id
        self._blocked_s = blocked_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tfgrpo-loop-watch", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; harmless when repeated."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(self._blocked_s):
            moved = threading.Event()
            try:
                self._loop.call_soon_threadsafe(moved.set)
            except RuntimeError:  # the loop is closed
                return
            if not moved.wait(self._blocked_s) and not self._stopped.is_set():
                self._warn()
                while not moved.wait(self._blocked_s) and not self._stopped.is_set():
                    pass

    def _warn(self) -> None:
        frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001 - the documented way to another thread's stack
        _LOG.warning(
            "every rollout of this process waits: the event loop has been blocked for %g s at %s. "
            "An async agent or tool that blocks belongs in a plain function, which gets a thread of its own.",
            self._blocked_s,
            "an unknown line" if frame is None else _location(frame),
        )


def _location(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
