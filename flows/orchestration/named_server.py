"""Check that the Prefect server that the settings name answers within a limit; report its answer without any login."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Final, TypeVar

import httpx

from tfgrpo.rewarders.threads import RewarderThreads

T = TypeVar("T")
_LOGIN: Final = re.compile(r"//[^/\s]*@")


def without_login(text: str) -> str:
    """Text without the name and password of any address in it."""
    return _LOGIN.sub("//", text)


def first_line(error: BaseException) -> str:
    """An error as one line that may be shown."""
    return without_login(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")


_POLL_S: Final = 0.5


def why_silent(limit_s: float) -> BaseException | None:
    """Ask the named server until it answers; return why it does not, or refuses, after the limit. None when all is well.

    Prefect's own limits are minutes.
    """
    deadline, first = time.monotonic() + limit_s, None
    while (why := _why_silent(max(_POLL_S, deadline - time.monotonic()))) is not None:
        first = why if first is None or not isinstance(why, TimeoutError) else first  # the last try has no time left
        if is_refusal(why) or time.monotonic() > deadline:
            return first
        time.sleep(_POLL_S)
    return None


def is_refusal(why: BaseException) -> bool:
    """Whether asking again cannot help: the address is none, or the server answers that it does not let us in."""
    if isinstance(why, httpx.HTTPStatusError):
        return why.response.status_code < 500 and why.response.status_code != 429
    return isinstance(why, httpx.UnsupportedProtocol | httpx.InvalidURL)


def _why_silent(limit_s: float) -> BaseException | None:
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
