"""Selector that signals when its event loop is idle.

Threads of one interpreter take turns, so what another thread does while replies arrive delays them; between them it is
free.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections import deque
from typing import Final

MAX_WAIT_S: Final = 0.1
"""A blocked loop is never idle, and those who wait may be the ones that bring it work."""


class IdleSelector(selectors.DefaultSelector):
    """The selector of one loop, which enters ``select`` whenever no callback is ready."""

    def __init__(self) -> None:
        super().__init__()
        self._idle = False
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = deque()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Select as the base class does, after waking those that wait for an idle loop."""
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        self._idle = True
        while self._waiting:
            loop, woken = self._waiting.popleft()
            with contextlib.suppress(RuntimeError):  # that loop is closed
                loop.call_soon_threadsafe(woken.set)
        try:
            return super().select(timeout)
        finally:
            self._idle = False

    async def wait_idle(self, max_wait_s: float = MAX_WAIT_S) -> None:
        """Return when the loop is idle, at the latest after ``max_wait_s`` seconds. To be awaited on another loop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max_wait_s):
                while not self._idle:
                    woken = asyncio.Event()
                    self._waiting.append((asyncio.get_running_loop(), woken))
                    # Checked again: a loop that went to sleep before the line above will not wake us.
                    if not self._idle:
                        await woken.wait()
