"""How long to wait, and what an error body means."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.stores.errors import (
    ModelAuthRefused,
    ModelRateLimited,
    ModelReplyMalformed,
    ModelRequestRejected,
    ModelServerFault,
    ModelTimeout,
)
from tfgrpo.tasks.models.retry import (
    FailedAttempt,
    Refusal,
    RetryPolicy,
    failure_of,
    hidden_status,
    read_refusal,
    reset_after,
    retry_after,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TRANSIENT = FailedAttempt(ModelServerFault("x"), retryable=True)


def asked_to_wait(seconds):
    return FailedAttempt(ModelRateLimited("x"), retryable=True, after_s=seconds)


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_waits_are_jittered_within_a_doubling_bound_and_a_function_of_the_random_source(seed, attempt):
    policy = RetryPolicy(max_retries=6, base_s=0.5, cap_s=4.0)
    wait = policy.wait(attempt, TRANSIENT, 0.0, random.Random(seed))
    assert 0.0 <= wait <= min(4.0, 0.5 * 2 ** (attempt - 1))
    assert wait == policy.wait(attempt, TRANSIENT, 0.0, random.Random(seed))


def test_a_call_ends_after_the_retries_it_has():
    policy, rng = RetryPolicy(max_retries=2), random.Random(0)
    assert policy.wait(2, TRANSIENT, 0.0, rng) is not None
    assert policy.wait(3, TRANSIENT, 0.0, rng) is None
    assert policy.wait(1, FailedAttempt(ModelAuthRefused("x"), retryable=False), 0.0, rng) is None


def test_the_servers_wait_is_the_least_jittered_and_its_total_is_capped():
    policy, rng = RetryPolicy(base_s=0.5, cap_s=25.0, max_wait_s=60.0), random.Random(0)
    waits = [policy.wait(1, asked_to_wait(20.0), 0.0, random.Random(seed)) for seed in range(8)]
    assert len(set(waits)) == 8
    assert all(20.0 <= wait <= 20.5 for wait in waits)
    assert policy.wait(1, asked_to_wait(20.0), 40.0, rng) == 20.0
    assert policy.wait(1, asked_to_wait(20.0), 60.0, rng) is None
    assert policy.wait(5, TRANSIENT, 60.0, rng) == 0.0
    absurd = []
    while (wait := policy.wait(len(absurd) + 1, asked_to_wait(31_536_000.0), sum(absurd), rng)) is not None:
        absurd.append(wait)
    assert len(absurd) == 3
    assert all(25.0 <= wait <= 25.5 for wait in absurd[:-1])
    assert sum(absurd) == pytest.approx(60.0)
    at_once = [RetryPolicy().wait(5, asked_to_wait(0.0), 0.0, rng) for _ in range(200)]
    assert max(at_once) > 6.0, "a server that always answers `now` is not asked without pause"


@pytest.mark.parametrize(("headers", "seconds"), [
    ({}, None), ({"Retry-After": "7"}, 7.0), ({"retry-after": " 0.5 "}, 0.5), ({"retry-after": "-3"}, 0.0),
    *(({"retry-after": value}, None) for value in ("nan", "inf", "-inf", "soon", "", "1e999", "Fri, 99 Foo 20xx")),
    ({"retry-after": "Fri, 02 Jan 2026 03:04:15 GMT"}, 10.0), ({"retry-after": "Fri, 02 Jan 2026 03:04:15 -0000"}, 10.0),
    ({"retry-after": "Fri, 02 Jan 2026 03:04:00 GMT"}, 0.0),
    # Relative to the server's own clock.
    ({"retry-after": "Thu, 01 Jan 2026 12:00:10 GMT", "date": "Thu, 01 Jan 2026 12:00:00 GMT"}, 10.0),
])  # fmt: skip
def test_retry_after_is_understood_in_each_of_its_forms(headers, seconds):
    assert retry_after(httpx.Headers(headers), NOW) == seconds


@pytest.mark.parametrize(("reset", "seconds"), [
    (None, None), ("soon", None), ("30", 30.0), (str(int(NOW.timestamp()) + 42), 42.0),
    (str((int(NOW.timestamp()) + 42) * 1000), 42.0), (str(int(NOW.timestamp()) - 42), 0.0),
])  # fmt: skip
def test_the_end_of_a_rate_limit_may_be_a_time_or_a_duration(reset, seconds):
    assert reset_after({} if reset is None else {"x-ratelimit-reset": reset}, NOW) == seconds


def refusal(status, **error):
    return read_refusal(status, json.dumps({"error": error}).encode())


@pytest.mark.parametrize(("refused", "answered", "kind", "again"), [
    (Refusal(408, ""), False, ModelTimeout, True), (Refusal(409, ""), False, ModelServerFault, True),
    (Refusal(429, ""), False, ModelRateLimited, True), (Refusal(529, ""), False, ModelServerFault, True),
    (Refusal(422, ""), False, ModelRequestRejected, False), (Refusal(307, ""), False, ModelRequestRejected, False),
    (Refusal(401, "flagged"), True, ModelAuthRefused, False), (Refusal(403, "no"), False, ModelAuthRefused, False),
    (Refusal(403, "no"), True, ModelRequestRejected, False),
    (refusal(403, message="Your model requires moderation and your input was flagged"), False, ModelRequestRejected, False),
    (refusal(403, message="no", metadata={"reasons": ["violence"]}), False, ModelRequestRejected, False),
    (refusal(403, message="no", code="content_policy_violation"), False, ModelRequestRejected, False),
    (refusal(403, message="Content violates usage guidelines."), False, ModelRequestRejected, False),
    (refusal(403, message="Country, region, or territory not supported"), False, ModelAuthRefused, False),
    *((refusal(429, message="Plan", **{name: code}), False, ModelRateLimited, False) for name in ("code", "type")
      for code in ("insufficient_quota", "billing_not_active", "exceeded_current_quota_error")),
    (refusal(429, message="Too many requests", code="rate_limit_exceeded"), False, ModelRateLimited, True),
    (refusal(400, message="Failed to call", code="tool_use_failed"), False, ModelReplyMalformed, True),
])  # fmt: skip
def test_each_refusal_has_its_error_and_is_retryable_or_not(refused, answered, kind, again):
    failed = failure_of(refused, "said", 2.0, answered=answered)
    assert (type(failed.error), str(failed.error), failed.retryable) == (kind, "said", again)


@pytest.mark.parametrize(("raw", "text"), [
    (b'{"error": {"message": "no such model", "code": 404}}', "no such model"),
    (b'{"error": "model not found"}', "model not found"), (b'{"message": "flat", "object": "error"}', "flat"),
    (b'{"detail": "Not Found"}', "Not Found"), (b'{"detail": [1]}', '{"detail": [1]}'),
    (b"<html>Bad gateway</html>", "<html>Bad gateway</html>"), (b"", ""), (b"[]", "[]"),
    (b'[{"error": {"code": 400, "message": "API key not valid"}}]', "API key not valid"),
    (b"[" * 100_000, "[" * 100_000),
])  # fmt: skip
def test_the_message_of_an_error_body_is_found(raw, text):
    assert read_refusal(400, raw).message == text


def test_an_error_status_behind_a_success_is_recognised():
    assert hidden_status({"error": {"code": "429"}}) == 429
    assert hidden_status({"error": {"code": 429}, "choices": [{}]}) is None
    assert hidden_status({"error": {"code": "rate"}}) is None
    assert hidden_status({"error": {"code": "9" * 5000}}) is None
