"""Ask the Prefect server that the settings name whether it answers, within a limit; Prefect's own limits are minutes."""

from __future__ import annotations

import time
from typing import Final

import httpx
from prefect.client.orchestration import get_client

from tfgrpo.flows.orchestration.local_server import in_background

_AGAIN_S: Final = 0.5


def why_silent(limit_s: float) -> BaseException | None:
    """Ask the named server until it answers; return why it does not, or refuses, after the limit. None when all is well."""
    deadline, first = time.monotonic() + limit_s, None
    while (why := _why_silent(max(_AGAIN_S, deadline - time.monotonic()))) is not None:
        first = why if first is None or not isinstance(why, TimeoutError) else first  # the last try has no time left
        if is_refusal(why) or time.monotonic() > deadline:
            return first
        time.sleep(_AGAIN_S)
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


def _healthcheck() -> Exception | None:
    with get_client(sync_client=True) as client:
        return client.api_healthcheck()
