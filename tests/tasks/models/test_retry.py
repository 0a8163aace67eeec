from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.stores.errors import (
    ModelAuthRefused,
    ModelCallError,
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
    classify,
    hidden_status,
    read_refusal,
    reset_after,
    retry_after,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TRANSIENT = FailedAttempt(ModelServerFault("x"), retryable=True)


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_waits_are_jittered_within_a_doubling_bound(seed: int, attempt: int) -> None:
    wait = RetryPolicy(max_retries=6, base_s=0.5, cap_s=4.0).wait(attempt, TRANSIENT, 0.0, random.Random(seed))
    assert wait is not None
    assert 0.0 <= wait <= min(4.0, 0.5 * 2 ** (attempt - 1))


def test_the_waits_are_a_function_of_the_random_source() -> None:
    policy = RetryPolicy()
    waits = [policy.wait(3, TRANSIENT, 0.0, random.Random(seed)) for seed in (1, 1, 2)]
    assert waits[0] == waits[1] != waits[2]


def test_a_call_ends_after_the_retries_it_has() -> None:
    policy, rng = RetryPolicy(max_retries=2), random.Random(0)
    assert policy.wait(2, TRANSIENT, 0.0, rng) is not None
    assert policy.wait(3, TRANSIENT, 0.0, rng) is None
    assert RetryPolicy(max_retries=0).wait(1, TRANSIENT, 0.0, rng) is None
    assert policy.wait(1, FailedAttempt(ModelAuthRefused("x"), retryable=False), 0.0, rng) is None


def test_the_servers_wait_is_the_least_and_its_total_is_capped() -> None:
    policy, rng = RetryPolicy(base_s=0.5, max_wait_s=60.0), random.Random(0)
    slow = FailedAttempt(ModelRateLimited("x"), retryable=True, after_s=20.0)
    wait = policy.wait(1, slow, 0.0, rng)
    assert wait is not None
    assert 20.0 <= wait <= 20.5
    assert policy.wait(1, slow, 40.0, rng) == 20.0
    assert policy.wait(1, slow, 60.0, rng) is None
    assert policy.wait(5, TRANSIENT, 60.0, rng) == 0.0


@pytest.mark.parametrize("after_s", [60.1, 31_536_000.0])
def test_an_absurd_wait_is_cut_to_one_within_the_budget(after_s: float) -> None:
    policy, rng = RetryPolicy(base_s=0.5, cap_s=25.0, max_wait_s=60.0), random.Random(0)
    asked = FailedAttempt(ModelRateLimited("x"), retryable=True, after_s=after_s)
    waits: list[float] = []
    while (wait := policy.wait(len(waits) + 1, asked, sum(waits), rng)) is not None:
        waits.append(wait)
    assert len(waits) == 3
    assert all(25.0 <= wait <= 25.5 for wait in waits[:-1])
    assert sum(waits) == pytest.approx(60.0)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Fri, 02 Jan 2026 03:04:15 GMT"}, 10.0),
        ({"retry-after": "Fri, 02 Jan 2026 03:04:15 -0000"}, 10.0),
        ({"retry-after": "Fri, 02 Jan 2026 03:04:00 GMT"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
    ],
)
def test_retry_after_is_understood_in_each_of_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(httpx.Headers(headers), NOW) == seconds


@pytest.mark.parametrize(
    ("status", "kind", "again"),
    [
        (408, ModelTimeout, True),
        (409, ModelServerFault, True),
        (429, ModelRateLimited, True),
        (500, ModelServerFault, True),
        (503, ModelServerFault, True),
        (529, ModelServerFault, True),
        (401, ModelAuthRefused, False),
        (403, ModelAuthRefused, False),
        (400, ModelRequestRejected, False),
        (404, ModelRequestRejected, False),
        (422, ModelRequestRejected, False),
        (307, ModelRequestRejected, False),
    ],
)
def test_each_status_has_its_error_and_is_retryable_or_not(
    status: int, kind: type[ModelCallError], again: bool
) -> None:
    failed = classify(Refusal(status, "no"), "said", 2.0)
    assert type(failed.error) is kind
    assert str(failed.error) == "said"
    assert failed.retryable is again


def test_an_exhausted_quota_is_not_retried() -> None:
    assert not classify(Refusal(429, "no", "insufficient_quota"), "said", None).retryable


def test_a_403_is_about_the_key_until_that_has_worked_or_the_prompt_is_named() -> None:
    assert type(classify(Refusal(403, "no"), "said", None, answered=True).error) is ModelRequestRejected
    assert type(classify(Refusal(403, "your input was flagged"), "said", None).error) is ModelRequestRejected
    assert type(classify(Refusal(401, "flagged"), "said", None, answered=True).error) is ModelAuthRefused


def test_an_answer_that_could_not_be_parsed_is_retryable() -> None:
    failed = classify(Refusal(400, "no", "tool_use_failed"), "said", None)
    assert (type(failed.error), failed.retryable) == (ModelReplyMalformed, True)


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        (None, None),
        ("soon", None),
        ("30", 30.0),
        (str(int(NOW.timestamp()) + 42), 42.0),
        (str((int(NOW.timestamp()) + 42) * 1000), 42.0),
        (str(int(NOW.timestamp()) - 42), 0.0),
    ],
)
def test_the_end_of_a_rate_limit_may_be_a_time_or_a_duration(reset: str | None, seconds: float | None) -> None:
    assert reset_after({} if reset is None else {"x-ratelimit-reset": reset}, NOW) == seconds


def test_callers_with_the_same_retry_after_do_not_retry_together() -> None:
    told = FailedAttempt(ModelRateLimited("x"), retryable=True, after_s=20.0)
    waits = [RetryPolicy(base_s=0.5).wait(1, told, 0.0, random.Random(seed)) for seed in range(8)]
    assert len(set(waits)) == 8
    assert all(wait is not None and 20.0 <= wait <= 20.5 for wait in waits)


def refusal(status: int, **error: Any) -> Any:
    return read_refusal(status, json.dumps({"error": error}).encode())


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'{"error": {"message": "no such model", "code": 404}}', "no such model"),
        (b'{"error": "model not found"}', "model not found"),
        (b'{"message": "flat", "object": "error"}', "flat"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b'{"detail": [1]}', '{"detail": [1]}'),
        (b"<html>Bad gateway</html>", "<html>Bad gateway</html>"),
        (b"", ""),
        (
            b'[{"error": {"code": 400, "message": "API key not valid", "status": "INVALID_ARGUMENT"}}]',
            "API key not valid",
        ),
        (b"[]", "[]"),
        (b"[" * 100_000, "[" * 100_000),
    ],
)
def test_the_message_of_an_error_body_is_found(raw: bytes, text: str) -> None:
    assert read_refusal(400, raw).message == text


@pytest.mark.parametrize(
    ("said", "flagged"),
    [
        ({"message": "Your chosen model requires moderation and your input was flagged"}, True),
        ({"message": "no", "metadata": {"reasons": ["violence"], "flagged_input": "…"}}, True),
        ({"message": "no", "code": "content_policy_violation"}, True),
        ({"message": "Content violates usage guidelines."}, True),
        ({"message": "Country, region, or territory not supported"}, False),
    ],
)
def test_a_flagged_prompt_is_distinguished_from_a_refused_key(said: Any, flagged: bool) -> None:
    failed = classify(refusal(403, **said), "said", None)
    assert (type(failed.error) is ModelRequestRejected) is flagged


@pytest.mark.parametrize("code", ["insufficient_quota", "billing_not_active", "exceeded_current_quota_error"])
def test_an_empty_account_is_recognised_by_code_or_type(code: str) -> None:
    assert refusal(429, message="Check your plan", code=code).no_credit
    assert refusal(429, message="Check your plan", type=code, code=None).no_credit
    assert not refusal(429, message="Too many requests", code="rate_limit_exceeded").no_credit


def test_an_answer_that_the_endpoint_could_not_parse_is_recognised() -> None:
    assert refusal(
        400, message="Failed to call a function.", code="tool_use_failed", failed_generation="<f>"
    ).unreadable
    assert not refusal(500, message="x", code="tool_use_failed").unreadable


def test_headers_within_a_body_are_looked_up_in_lower_case() -> None:
    assert refusal(429, message="x", metadata={"headers": {"X-RateLimit-Reset": 17}}).headers == {
        "x-ratelimit-reset": "17"
    }


def test_an_error_status_behind_a_success_is_recognised() -> None:
    assert hidden_status({"error": {"code": "429"}}) == 429
    assert hidden_status({"error": {"code": 429}, "choices": [{}]}) is None
    assert hidden_status({"error": {"code": "rate"}}) is None
