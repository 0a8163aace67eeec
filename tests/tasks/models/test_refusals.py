from __future__ import annotations

import json
from typing import Any

import pytest

from tfgrpo.tasks.models.retry import hidden_status, read_refusal


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
    assert refusal(403, **said).flagged is flagged


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
