"""Confine a user's code: agents and tools that exit, cancel themselves or ignore cancellation become ordinary failures.

Code that blocks its event loop cannot be confined, only reported: ``tfgrpo.tasks.runtime.host.watch_loop``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from tfgrpo.rewarders.faults import described
from tfgrpo.rewarders.threads import RewarderThreads, is_cancellation
from tfgrpo.stores.errors import ActorError

_T = TypeVar("_T")
CANCEL_WAIT_S = 2.0
"""Seconds that cancelled work has to end."""


async def contained(work: Awaitable[_T]) -> _T:
    """Await a user's code. Its ordinary exceptions and the cancellation of this task pass through.

    Raises ``ActorError`` for ``SystemExit``, ``KeyboardInterrupt`` and the like, which would end the event loop of all
    other rollouts too, and for a cancellation or a ``GeneratorExit`` that the code raised itself.
    """
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
        work.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        if work.cancel():
            pending.append(work)
    return _ended(pending, wait_s)


async def _ended(pending: list[asyncio.Future[Any]], wait_s: float) -> bool:
    return not pending or not (await asyncio.wait(pending, timeout=wait_s))[1]
