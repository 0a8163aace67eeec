"""Refused calls: retried or not, and with which advice to the operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.models.calls import NOW, client
from tfgrpo.stores.errors import BudgetRefused, ModelAuthRefused, ModelCallError, ModelRequestRejected, ModelServerFault
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.tasks.models.base import ChatReply, ChatRequest, Message
from tfgrpo.tasks.models.retry import hint_of

KEY = CallKey(GroupKey(1, "train", "train", 0, "q1"), 0, 0, "rollout")
REQUEST = ChatRequest("m", (Message("user", "2+2?"),), 0.7, 64, seed=7)


async def ask(
    server: Any, *requests: ChatRequest, retries: int = 0, waits: list[float] | None = None
) -> Sequence[ChatReply | ModelCallError | BudgetRefused]:
    """What one client gets, request by request."""

    use = client(server.root, retries, waits)
    came: list[ChatReply | ModelCallError | BudgetRefused] = []
    for request in requests or (REQUEST,):
        try:
            came.append(await use.complete(request, KEY))
        except (ModelCallError, BudgetRefused) as error:
            came.append(error)
    await use.aclose()
    return came


def refused(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", **more}}


@pytest.mark.parametrize(
    ("status", "body", "advice"),
    [
        (
            400,
            refused("Unsupported value: 'temperature' does not support 0.7 with this model.", param="temperature"),
            "model.send_temperature: false",
        ),
        (
            400,
            refused(
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
            ),
            "model.max_tokens_field: max_completion_tokens",
        ),
        (
            400,
            refused("Unrecognized request argument supplied: max_completion_tokens"),
            "model.max_tokens_field: max_tokens",
        ),
        (
            400,
            refused(
                "'max_tokens' or 'max_completion_tokens' is too large: 9. This model's maximum context length is 8."
            ),
            "lower model.max_tokens",
        ),
        (
            422,
            {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs"}]},
            "model.send_seed: false",
        ),
        (400, refused("You are not allowed to request logprobs from this model."), "model.logprobs: false"),
        (
            400,
            refused("Invalid parameter: 'response_format' of type 'json_schema' is not supported"),
            "model.structured",
        ),
        (
            400,
            refused("request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it"),
            "lower model.max_tokens",
        ),
        (400, refused("Please reduce the length of the messages."), "lower model.max_tokens"),
        (400, refused("too much", code="context_length_exceeded"), "lower model.max_tokens"),
        (
            400,
            refused(
                "'messages.2' : for 'role:assistant' ... property 'reasoning' is unsupported, did you mean 'role'?"
            ),
            "model.send_reasoning: false",
        ),
        (
            400,
            refused("Missing reasoning_content field in the assistant message at message index 2"),
            "reasoning: true",
        ),
        (400, refused("registry.ollama.ai/library/gemma:2b does not support tools"), "takes no tools"),
        (
            400,
            {
                "object": "error",
                "message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser',
            },
            "takes no tools",
        ),
        (404, {"error": {"code": "404", "message": "Resource not found"}}, "check the base URL"),
        (405, {"detail": "Method Not Allowed"}, "check the base URL"),
        (400, refused("The response was filtered", code="content_filter"), ""),
    ],
)
async def test_a_refused_request_names_the_setting_that_helps(
    server: Any, act: Any, status: int, body: Any, advice: str
) -> None:
    server.acts = [act(status=status, body=body)]
    (error,) = await ask(server, retries=3)
    assert isinstance(error, ModelRequestRejected)
    assert advice in str(error)
    assert str(error).startswith(f"{status} from {server.root}: ")
    assert len(server.seen) == 1


def test_a_hint_comes_only_with_the_statuses_that_refuse_a_request() -> None:
    assert hint_of(500, "temperature") == ""
    assert hint_of(400, "no idea") == ""


async def test_a_prompt_that_is_flagged_costs_its_rollout_and_not_the_run(server: Any, act: Any) -> None:
    server.acts = [act(status=403, body=refused("Your chosen model requires moderation and your input was flagged"))]
    (error,) = await ask(server, retries=3)
    assert type(error) is ModelRequestRejected


async def test_a_403_after_an_answer_is_about_the_request_and_before_it_about_the_key(server: Any, act: Any) -> None:
    server.acts = [act(status=403, body=b"Forbidden"), act(), act(status=403, body=b"Forbidden")]
    first, answer, last = await ask(server, REQUEST, REQUEST, REQUEST)
    assert type(first) is ModelAuthRefused
    assert isinstance(answer, ChatReply)
    assert type(last) is ModelRequestRejected


async def test_the_header_x_should_retry_decides(server: Any, act: Any) -> None:
    server.acts = [act(status=500, headers={"x-should-retry": "false"})]
    (error,) = await ask(server, retries=3)
    assert (type(error), len(server.seen)) == (ModelServerFault, 1)
    server.acts = [act(status=400, headers={"x-should-retry": "true"})]
    (answer,) = await ask(server, retries=3)
    assert isinstance(answer, ChatReply)


@pytest.mark.parametrize("within", [False, True])
async def test_without_retry_after_the_end_of_the_rate_limit_is_awaited(server: Any, act: Any, within: bool) -> None:
    reset = {"X-RateLimit-Reset": str((int(NOW.timestamp()) + 40) * 1000)}
    metadata = {"metadata": {"headers": reset}} if within else {}
    headers = {} if within else reset
    server.acts = [act(status=429, body=refused("Rate limit exceeded", **metadata), headers=headers)]
    waits: list[float] = []
    (answer,) = await ask(server, retries=3, waits=waits)
    assert isinstance(answer, ChatReply)
    assert 40.0 <= waits[0] <= 41.0


async def test_an_empty_account_is_not_retried(server: Any, act: Any) -> None:
    for asked, (status, code) in enumerate([(429, "billing_not_active"), (402, "402")], start=1):
        server.acts = [act(status=status, body=refused("Your account is not active", code=code))]
        (error,) = await ask(server, retries=3)
        assert (type(error), len(server.seen)) == (BudgetRefused, asked)
        assert f"{status} from {server.root}: Your account is not active" in str(error)


async def test_an_answer_that_the_endpoint_could_not_parse_is_retried(server: Any, act: Any) -> None:
    server.acts = [act(status=400, body=refused("Failed to call a function.", code="tool_use_failed"))]
    (answer,) = await ask(server, retries=3)
    assert isinstance(answer, ChatReply)
    assert answer.attempts == 2
