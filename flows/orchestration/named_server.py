"""Check that the Prefect server that the settings name answers within a limit; report its answer without any login."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Final, TypeVar

from tfgrpo.rewarders.threads import RewarderThreads

T = TypeVar("T")
_LOGIN: Final = re.compile(r"//[^/\s]*@")


def without_login(text: str) -> str:
    """Text without the name and password of any address in it."""
    return _LOGIN.sub("//", text)


def first_line(error: BaseException) -> str:
    """An error as one line that may be shown."""
    return without_login(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")


def why_silent(limit_s: float) -> BaseException | None:
    """Why the named server does not answer, or refuses; None when all is well. Prefect's own limits are minutes."""
    answer = in_background(_healthcheck)
    try:
        return answer.exception(limit_s) or answer.result()
    except TimeoutError:
        return TimeoutError(f"no answer within {limit_s:.3g} s")


def in_background(work: Callable[[], T]) -> Future[T]:
    """Do work in a daemon thread, which the end of the process does not wait for, and which has no event loop yet."""
    return RewarderThreads(1).submit(copy_context().run, work)


def _healthcheck() -> Exception | None:
    from prefect.client.orchestration import get_client  # noqa: PLC0415 - not for those who use a thread only

    with get_client(sync_client=True) as client:
        return client.api_healthcheck()
