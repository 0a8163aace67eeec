"""What may a user's code do to the run around it? Fail, and no more than that.

Agents and tools may try to leave the process, cancel themselves or ignore their own cancellation. Here the first two
become ordinary failures, and the third is not waited for. Code that blocks its event loop cannot be contained, only
named: ``tfgrpo.tasks.runtime.loop_watch``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from tfgrpo.stores.errors import ActorError

T = TypeVar("T")
PATIENCE_S = 2.0
"""Seconds that cancelled work gets to end by itself."""


def told(error: BaseException) -> str:
    """Class and text of an error, whatever its ``__str__`` does."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a user's exception class; its name has to do
        return type(error).__name__
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def asked_to_stop() -> bool:
    """Whether somebody else cancelled the running task; False when code inside raised the cancellation itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def contained(work: Awaitable[T]) -> T:
    """Await a user's code. Its ordinary exceptions and our cancellation pass through.

    Raises ``ActorError`` for ``SystemExit``, ``KeyboardInterrupt`` and the like, which would end the event loop of all
    other rollouts too, and for a cancellation that nobody asked for.
    """
    try:
        return await work
    except (Exception, GeneratorExit):
        raise
    except asyncio.CancelledError:
        if asked_to_stop():
            raise
        raise ActorError("CancelledError: the attempt cancelled itself") from None
    except BaseException as error:  # noqa: BLE001 - turned into a failure
        raise ActorError(told(error)) from None


def without_stop_iteration(work: Callable[[], T]) -> Callable[[], T]:
    """``work`` with its ``StopIteration`` as a ``RuntimeError``: no future can carry the former, and none would end."""

    def checked() -> T:
        try:
            return work()
        except StopIteration as error:
            raise RuntimeError("the code raised StopIteration") from error

    return checked


def give_up_on(running: Iterable[asyncio.Future[Any]], patience_s: float = PATIENCE_S) -> Coroutine[Any, Any, bool]:
    """Cancel work, at once; what is returned waits until it has ended, but no longer than ``patience_s``.

    That comes to whether all of it has.
    """
    left = [work for work in running if not work.done()]
    for work in left:
        work.add_done_callback(_forget)
        work.cancel()
    return _ended(left, patience_s)


async def _ended(left: list[asyncio.Future[Any]], patience_s: float) -> bool:
    if not left:
        return True
    _, pending = await asyncio.wait(left, timeout=patience_s)
    return not pending


def _forget(work: asyncio.Future[Any]) -> None:
    """Nobody will ask what became of it; asyncio would complain of that at the end of the process."""
    if not work.cancelled():
        work.exception()
