"""Decide whether a failed attempt is repeated, and after how long, from the error body that refused it.

Vendors shape such bodies differently: ``error`` as an object (OpenAI) or a text (Ollama), ``message`` without it (vLLM),
``detail`` (FastAPI), a list around it (Gemini), or a page of a proxy.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, Final

from tfgrpo.stores.clock import Clock
from tfgrpo.stores.errors import (
    BudgetRefused,
    ModelAuthRefused,
    ModelCallError,
    ModelNotFound,
    ModelRateLimited,
    ModelReplyMalformed,
    ModelRequestRejected,
    ModelServerFault,
    ModelTimeout,
)
from tfgrpo.stores.json_values import json_of, mapping_of
from tfgrpo.stores.packaged import packaged_yaml

# Seconds without an answer after which an endpoint is reported.
OUTAGE_S: Final = 5.0
# Statuses of an endpoint, or of the proxy in front of it, that may answer the same request later.
UNAVAILABLE: Final = frozenset({429, 502, 503, 504, 529})
# What calls do without once an endpoint has refused it: the header ``Idempotency-Key``, and a model's own reasoning with the
# tool calls that it made.
OMITTABLE: Final = ("idempotency_key", "reasoning")


# When it is first asked for: few runs meet a refusal.
@cache
def _vendors() -> Any:
    return packaged_yaml(__file__, "refusals.yaml")


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error body, read."""

    status: int
    message: str
    """For people; the whole body where no message can be found in it."""
    label: str = ""
    """Its code and type, for machines; empty without any."""
    flagged_input: bool = False
    """Marked as one that concerns the content of this prompt, not the account."""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """Message and label."""
        return f"{self.message} {self.label}"

    @property
    def no_credit(self) -> bool:
        """The account is empty."""
        return self.status == 402 or (self.status == 429 and self.says("no_credit"))

    @property
    def unreadable(self) -> bool:
        """The model answered, and the endpoint could not parse the answer."""
        return self.status == 400 and self.says("unreadable")

    @property
    def refused(self) -> str:
        """What of a request the endpoint takes none of, by its name in ``OMITTABLE``; empty for anything else."""
        return next((each for each in OMITTABLE if self.status in {400, 422} and self.says(each)), "")

    def says(self, kind: str) -> bool:
        """Whether it has words of vendors of one kind in ``refusals.yaml``."""
        return re.search(_vendors()[kind], self.words, re.IGNORECASE) is not None


def read_refusal(status: int, raw: bytes) -> Refusal:
    """Read the body of an error reply, or of an error behind a success status."""
    text = raw.decode("utf-8", "replace")
    body = json_of(text)
    body = mapping_of(body[0] if isinstance(body, list) and body else body)
    error = body.get("error", body)
    details = mapping_of(error)
    metadata = mapping_of(details.get("metadata"))
    messages = (details.get("message", details.get("detail")), error)
    return Refusal(
        status,
        message=next((each for each in messages if isinstance(each, str)), text),
        label=" ".join(str(details[name]) for name in ("code", "type") if isinstance(details.get(name), str | int)),
        flagged_input=bool(metadata.get("reasons") or metadata.get("flagged_input")),
        headers={str(name).lower(): str(value) for name, value in mapping_of(metadata.get("headers")).items()},
    )


def hidden_status(body: Mapping[str, Any]) -> int | None:
    """Return the status of an error behind a success status (OpenRouter); None for a real success."""
    code = mapping_of(body.get("error")).get("code") if not body.get("choices") else None
    if isinstance(code, str) and code.isascii() and code.isdigit():
        # No status is longer, and ``int`` refuses thousands of digits.
        code = int(code[:4])
    return code if isinstance(code, int) and 400 <= code < 600 else None


def vendor_hint(status: int, words: str) -> str:
    """Return a hint to append to the refusal, with a separator in front; empty when there is none."""
    advice: str = _vendors()["advice_by_status"].get(status, "")
    if status in {400, 422}:
        matching = (row for row in _vendors()["advice_by_words"] if re.search(row["words"], words, re.IGNORECASE | re.DOTALL))
        advice = next((row["advice"] for row in matching), "")
    return f"; {advice}" if advice else ""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt without a usable answer."""

    error: ModelCallError | BudgetRefused
    retryable: bool
    after_s: float | None = None
    unavailable: bool = False
    """Whether the endpoint could not be reached, or is overloaded or starting. A rate limit concerns this account alone."""
    refused: str = ""
    """What it may succeed without, one of ``OMITTABLE``; empty for nothing."""


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
    unavailable_s: float = 0.0
    """Seconds for which an unavailable endpoint is asked again, however many attempts that takes."""

    def wait(self, attempt: int, failed: FailedAttempt, waited_s: float, rng: random.Random) -> float | None:
        """Return seconds to wait after attempt number ``attempt`` (from 1), or None when the call has failed for good."""
        patience_s = self.unavailable_s if failed.unavailable else 0.0
        if not failed.retryable or (attempt > self.max_retries and waited_s >= patience_s):
            return None
        left = max(patience_s, self.max_wait_s if attempt <= self.max_retries else 0.0) - waited_s
        # 2.0 ** 1024 is an OverflowError.
        wait = rng.uniform(0.0, min(self.cap_s, self.base_s * 2.0 ** min(attempt - 1, 32)))
        if failed.after_s is not None:
            if left <= 0.0:
                return None
            named = failed.after_s if failed.after_s <= left else self.cap_s
            # At least the backoff: a server that always answers "now" must not be asked without pause.
            wait = max(wait, named + rng.uniform(0.0, self.base_s))
        return max(0.0, min(wait, left))


class Outages:
    """Endpoints that calls wait for: one is reported to ``say`` when it has been silent for a while, and its next answer."""

    def __init__(self) -> None:
        self.say: Callable[[str], object] = lambda _: None
        self._since: dict[str, datetime] = {}
        self._reported: set[str] = set()

    def silent(self, url: str, patience_s: float, now: datetime) -> None:
        """Note an attempt that an endpoint did not take, and that is repeated for ``patience_s``."""
        since = self._since.setdefault(url, now)
        # A few lost connections are no outage.
        if url not in self._reported and (now - since).total_seconds() >= OUTAGE_S:
            self._reported.add(url)
            again = f"calls are asked again for up to {patience_s:g} s"
            self.say(f"warning: endpoint {url} has not answered since {since:%H:%M} UTC; {again}")

    def answered(self, url: str, clock: Clock) -> None:
        """Note an answer."""
        since = self._since.pop(url, None)
        if since is not None and url in self._reported:
            self._reported.remove(url)
            self.say(f"the endpoint answers again, after {(clock() - since).total_seconds():.0f} s")


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds of ``retry-after``, a number or an HTTP date; None without it. A time in the past means now."""
    value = headers.get("retry-after")
    seconds, date = _seconds(value), _date(value)
    if seconds is not None or date is None:
        return seconds
    # Relative to the server's own date: the clocks may differ by more than the wait.
    return max(0.0, (date - (_date(headers.get("date")) or now)).total_seconds())


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
    """Return seconds until a rate limit is lifted, by ``x-ratelimit-reset``. None without such a header."""
    value = _seconds(headers.get("x-ratelimit-reset"))
    # OpenRouter gives milliseconds since 1970, others seconds since then, others again the seconds that are left.
    if value is None or value < 1e9:
        return value
    return max(0.0, (value / 1000.0 if value >= 1e12 else value) - now.timestamp())


def failure_of(refusal: Refusal, text: str, after_s: float | None, *, answered: bool = False) -> FailedAttempt:
    """Return the failure that a refusal is. ``text`` is the message, without secrets.

    ``answered``: the model has answered other calls of this client, so a 403 concerns the content of this one.
    """
    status = refusal.status
    if status == 429:
        return FailedAttempt(ModelRateLimited(text), retryable=not refusal.no_credit, after_s=after_s)
    if status == 408:
        return FailedAttempt(ModelTimeout(text), retryable=True, after_s=after_s)
    # 409: a lock that was not to be had in time; OpenAI's SDKs repeat it, too.
    if status == 409 or status >= 500:
        return FailedAttempt(ModelServerFault(text), True, after_s, unavailable=status in UNAVAILABLE)
    if status == 401 or (status == 403 and not (answered or refusal.flagged_input or refusal.says("flagged"))):
        return FailedAttempt(ModelAuthRefused(text), retryable=False)
    if refusal.unreadable:
        return FailedAttempt(ModelReplyMalformed(text), retryable=True)
    kind = ModelNotFound if status == 404 and not answered else ModelRequestRejected
    return FailedAttempt(kind(text), retryable=False, refused=refusal.refused)
