"""When has an event loop nothing to do? A selector that knows, for work elsewhere that can wait.

Threads of one interpreter take turns. What a thread beside the loop does while replies are coming in, it does at their
expense; between them it costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections import deque
from typing import Final

MOST_S: Final = 0.1
"""Longest wait for a lull: a loop that is held up has none, and those who wait may be the ones that bring it work."""


class LullSelector(selectors.DefaultSelector):
    """The selector of a loop, which enters it whenever nothing is ready. Made for one loop; asked from any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._idle = False
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = deque()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As its base does; those that wait for a lull are told before."""
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        self._idle = True
        while self._waiting:
            loop, told = self._waiting.popleft()
            with contextlib.suppress(RuntimeError):  # that loop is closed
                loop.call_soon_threadsafe(told.set)
        try:
            return super().select(timeout)
        finally:
            self._idle = False

    async def lull(self, most_s: float = MOST_S) -> None:
        """Return when the loop has nothing to do, at the latest after ``most_s`` seconds. Awaited on another loop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                while not self._idle:
                    await self._next()

    async def _next(self) -> None:
        told = asyncio.Event()
        self._waiting.append((asyncio.get_running_loop(), told))
        # Looked at again: had it gone to sleep before it could see who waits, nobody would wake us.
        if not self._idle:
            await told.wait()
