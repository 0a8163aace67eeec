"""Where do asynchronous graders run? On an event loop in a daemon thread of its own, which can be left behind.

A coroutine that blocks stops its whole loop, and nothing can interrupt it. Hence graders do not share loops, and a loop
that no longer answers is replaced, not waited for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

T = TypeVar("T")

_CLOSE_S: Final = 2.0


class LoopThread:
    """An event loop that runs until ``close`` in a daemon thread."""

    def __init__(self, name: str, on_end: Callable[[LoopThread], None]) -> None:
        """``on_end`` is called in that thread when the loop has ended, for whatever reason."""
        self._loop = asyncio.new_event_loop()
        self._on_end = on_end
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def start(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run the coroutine that ``work`` makes. Raises ``RuntimeError`` when the loop has ended."""
        coroutine = work()
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise

    def let_go(self) -> None:
        """Ask the loop to cancel its work and end as soon as it answers again; wait for nothing."""
        try:
            self._loop.call_soon_threadsafe(self._loop.stop)
        except RuntimeError:  # it has ended already
            return

    def close(self) -> None:
        """End the loop, with 2 s for its work to be cancelled; one that blocks is left behind."""
        self.let_go()
        if self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_cancel_rest())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()
            self._on_end(self)


async def _cancel_rest() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=_CLOSE_S / 2)
