from __future__ import annotations

import random
from datetime import UTC, datetime

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
from tfgrpo.tasks.models.retry import FailedAttempt, Refusal, RetryPolicy, classify, reset_after, retry_after

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
