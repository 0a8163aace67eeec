"""When is a failed attempt made again, and after how long? Backoff with full jitter that listens to the server.

Decides only: the waiting and the sending are ``tfgrpo.tasks.models.chat``'s. Knows nothing of repairs of answers that arrived
but say the wrong thing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from tfgrpo.stores.errors import (
    BudgetRefused,
    ModelAuthRefused,
    ModelCallError,
    ModelRateLimited,
    ModelReplyMalformed,
    ModelRequestRejected,
    ModelServerFault,
    ModelTimeout,
)
from tfgrpo.tasks.models.refusals import Refusal

_EARLIEST_S = 1e9
"""A number of seconds from here on is a moment, in 2001 or later; below it, it is a span."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An attempt that brought no usable answer."""

    error: ModelCallError | BudgetRefused
    again: bool
    """Whether another attempt could bring one."""
    after_s: float | None = None
    """Seconds the server asked to wait."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with full jitter (Brooker, AWS Architecture Blog, 2015).

    Attempt ``n`` is followed by a wait drawn uniformly from ``[0, min(cap_s, base_s * 2**(n-1))]``. Where the server
    names a time, that time is the least wait, with up to ``base_s`` added so that callers do not all come back at once;
    a server that always says "now" does not end the backoff.
    """

    max_retries: int = 5
    base_s: float = 0.5
    cap_s: float = 30.0
    max_wait_s: float = 180.0
    """Most seconds all waits of one call may add up to. A server that asks for more is asked again after ``cap_s``."""

    def wait(self, attempt: int, fault: Fault, waited_s: float, rng: random.Random) -> float | None:
        """Seconds to wait after attempt number ``attempt`` (from 1), or None when the call has failed for good."""
        if not fault.again or attempt > self.max_retries:
            return None
        left = self.max_wait_s - waited_s
        wait = rng.uniform(0.0, min(self.cap_s, self.base_s * 2.0 ** min(attempt - 1, 32)))
        if fault.after_s is not None:
            if left <= 0.0:
                return None
            named = fault.after_s if fault.after_s <= left else self.cap_s
            wait = max(wait, named + rng.uniform(0.0, self.base_s))
        return min(wait, left)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds the server asks to wait: ``retry-after-ms``, or ``retry-after`` as seconds or HTTP date. None if neither.

    ``headers`` must look names up in any case. A time in the past means now. A date is taken relative to the server's own
    ``date`` where it sends one: the clocks may differ by more than the wait.
    """
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000.0
    value = headers.get("retry-after")
    seconds = _seconds(value)
    if seconds is not None or value is None:
        return seconds
    date = _date(value)
    return None if date is None else max(0.0, (date - (_date(headers.get("date")) or now)).total_seconds())


def _date(text: str | None) -> datetime | None:
    try:
        date = parsedate_to_datetime(text) if text is not None else None
    except (ValueError, OverflowError):
        return None
    return date.replace(tzinfo=UTC) if date is not None and date.tzinfo is None else date


def _seconds(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None


def reset_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds until the limit that refused a call is lifted, by ``x-ratelimit-reset``. None without such a header.

    OpenRouter gives the moment in milliseconds since 1970, others in seconds, others again the seconds that are left.
    """
    value = _seconds(headers.get("x-ratelimit-reset"))
    if value is None or value < _EARLIEST_S:
        return value
    moment = value / 1000.0 if value >= 1000.0 * _EARLIEST_S else value
    return max(0.0, moment - now.timestamp())


def fault_of(refusal: Refusal, text: str, after_s: float | None, *, answered: bool = False) -> Fault:
    """What a refusal means for the call. ``text`` is already fit for a message.

    ``answered``: the model has answered other calls of this client, so a 403 is about what this one says.
    """
    status = refusal.status
    if status == 429:
        return Fault(ModelRateLimited(text), again=not refusal.spent, after_s=after_s)
    if status == 408:
        return Fault(ModelTimeout(text), again=True, after_s=after_s)
    if status == 409 or status >= 500:
        return Fault(ModelServerFault(text), again=True, after_s=after_s)
    if status == 401 or (status == 403 and not answered and not refusal.flagged):
        return Fault(ModelAuthRefused(text), again=False)
    if refusal.slip:
        return Fault(ModelReplyMalformed(text), again=True)
    return Fault(ModelRequestRejected(text), again=False)
