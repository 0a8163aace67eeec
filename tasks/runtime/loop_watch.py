"""Who holds up the event loop? A thread that notices when it stands still, and says in the log where.

An asynchronous agent or tool that blocks stops every rollout of the process, their time limits included. Nothing can
interrupt it from outside; naming the line is what helps.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from types import FrameType
from typing import Final

HELD_UP_S: Final = 10.0
_LOG: Final = logging.getLogger("tfgrpo.runtime")


class LoopWatch:
    """Watches one loop from a daemon thread, from ``start`` to ``stop``. Says each standstill once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread_id: int, held_up_s: float = HELD_UP_S) -> None:
        self._loop = loop
        self._thread_id = thread_id
        self._held_up_s = held_up_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tfgrpo-loop-watch", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; harmless when repeated."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(self._held_up_s):
            moved = threading.Event()
            try:
                self._loop.call_soon_threadsafe(moved.set)
            except RuntimeError:  # the loop is closed
                return
            if not moved.wait(self._held_up_s) and not self._stopped.is_set():
                self._complain()
                while not moved.wait(self._held_up_s) and not self._stopped.is_set():
                    pass

    def _complain(self) -> None:
        frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001 - the documented way to another thread's stack
        _LOG.warning(
            "every rollout of this process waits: the event loop has been held up for %g s at %s. "
            "An async agent or tool that blocks belongs in a plain function, which gets a thread of its own.",
            self._held_up_s,
            "an unknown place" if frame is None else _place(frame),
        )


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
