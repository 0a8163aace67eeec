"""Decide whether a failed attempt is repeated, and after how long: backoff with full jitter that heeds the server."""

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
"""A number of seconds from here on is a point in time, in 2001 or later; below it, a duration."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt without a usable answer."""

    error: ModelCallError | BudgetRefused
    retryable: bool
    """Whether another attempt may succeed."""
    after_s: float | None = None
    """Seconds that the server asked to wait."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with full jitter (Brooker, AWS Architecture Blog, 2015).

    Attempt ``n`` is followed by a wait drawn uniformly from ``[0, min(cap_s, base_s * 2**(n-1))]``. A time that the server
    names is the least wait, with up to ``base_s`` added so that callers do not all come back at once.
    """

    max_retries: int = 5
    base_s: float = 0.5
    cap_s: float = 30.0
    max_wait_s: float = 180.0
    """Most seconds for all waits of one call together. A server that asks for more is asked again after ``cap_s``."""

    def wait(self, attempt: int, failed: FailedAttempt, waited_s: float, rng: random.Random) -> float | None:
        """Return seconds to wait after attempt number ``attempt`` (from 1), or None when the call has failed for good."""
        if not failed.retryable or attempt > self.max_retries:
            return None
        left = self.max_wait_s - waited_s
        wait = rng.uniform(0.0, min(self.cap_s, self.base_s * 2.0 ** min(attempt - 1, 32)))
        if failed.after_s is not None:
            if left <= 0.0:
                return None
            named = failed.after_s if failed.after_s <= left else self.cap_s
            # At least the backoff: a server that always answers "now" must not be asked without pause.
            wait = max(wait, named + rng.uniform(0.0, self.base_s))
        return min(wait, left)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds of ``retry-after-ms``, or of ``retry-after`` as seconds or HTTP date. None if neither is there.

    ``headers`` must look names up in any case. A time in the past means now.
    """
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000.0
    value = headers.get("retry-after")
    seconds = _seconds(value)
    if seconds is not None or value is None:
        return seconds
    # Relative to the server's own date: the clocks may differ by more than the wait.
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
    """Return seconds until a rate limit is lifted, by ``x-ratelimit-reset``. None without such a header.

    OpenRouter gives a time in milliseconds since 1970, others in seconds, others again the seconds that are left.
    """
    value = _seconds(headers.get("x-ratelimit-reset"))
    if value is None or value < _EARLIEST_S:
        return value
    reset = value / 1000.0 if value >= 1000.0 * _EARLIEST_S else value
    return max(0.0, reset - now.timestamp())


def classify(refusal: Refusal, text: str, after_s: float | None, *, answered: bool = False) -> FailedAttempt:
    """Return the failure that a refusal is. ``text`` is the message, without secrets.

    ``answered``: the model has answered other calls of this client, so a 403 concerns the content of this one.
    """
    status = refusal.status
    if status == 429:
        return FailedAttempt(ModelRateLimited(text), retryable=not refusal.no_credit, after_s=after_s)
    if status == 408:
        return FailedAttempt(ModelTimeout(text), retryable=True, after_s=after_s)
    if status == 409 or status >= 500:
        return FailedAttempt(ModelServerFault(text), retryable=True, after_s=after_s)
    if status == 401 or (status == 403 and not answered and not refusal.flagged):
        return FailedAttempt(ModelAuthRefused(text), retryable=False)
    if refusal.unreadable:
        return FailedAttempt(ModelReplyMalformed(text), retryable=True)
    return FailedAttempt(ModelRequestRejected(text), retryable=False)
