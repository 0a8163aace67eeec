"""A call that fails: retried or not, raised as its type, and charged for what it may have cost."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

import httpx
import pytest

from tests.support.models.chat_bench import BOUND, SECRET
from tfgrpo.stores.errors import (
    BudgetRefused,
    ModelAuthRefused,
    ModelCallError,
    ModelRateLimited,
    ModelReplyMalformed,
    ModelRequestRejected,
    ModelServerFault,
    ModelTimeout,
    ModelUnreachable,
    TfgrpoError,
)
from tfgrpo.tasks.models.base import ChatReply
from tfgrpo.tasks.models.retry import RetryPolicy


@pytest.mark.parametrize(
    ("status", "kind"), [(429, ModelRateLimited), (500, ModelServerFault), (409, ModelServerFault), (408, ModelTimeout)]
)
async def test_a_persistent_failure_is_raised_as_its_type_after_the_last_retry(
    server: Any, bench: Any, act: Any, status: int, kind: type[ModelCallError]
) -> None:
    server.otherwise = lambda seen: act(status=status, body={"error": {"message": "busy"}})
    use = bench()
    with pytest.raises(kind, match=f"{status} from http.*: busy"):
        await use.ask()
    assert len(server.seen) == use.ledger.totals().calls == 4
    assert len(use.waits) == 3


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, {"error": {"message": f"Incorrect API key: {SECRET}"}}, ModelAuthRefused),
        (403, f"no access with {SECRET}".encode(), ModelAuthRefused),
        (400, b"x" * 10_000 + SECRET.encode(), ModelRequestRejected),
        (404, b"", ModelRequestRejected),
        (302, b"", ModelRequestRejected),
        (429, {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}, BudgetRefused),
        (402, {"error": {"message": "no credit"}}, BudgetRefused),
    ],
)
async def test_a_permanent_failure_is_sent_once_and_shows_no_key(
    server: Any, bench: Any, act: Any, status: int, body: Any, kind: type[TfgrpoError]
) -> None:
    server.otherwise = lambda seen: act(status=status, body=body)
    use = bench()
    with pytest.raises(kind) as caught:
        await use.ask()
    assert len(server.seen) == 1
    assert use.ledger.totals().at_risk_tokens == 0
    assert len(str(caught.value)) < 400
    assert SECRET not in "".join(traceback.format_exception(caught.value)) + repr(use.client)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize("ending", ["hang", "trickle"])
async def test_the_time_limit_covers_the_whole_exchange(server: Any, bench: Any, act: Any, ending: str) -> None:
    server.acts = [act(ending=ending)]
    use = bench(timeout_s=0.2, retry=RetryPolicy(max_retries=0))
    with pytest.raises(ModelTimeout, match=r"within 0\.2 s"):
        await use.ask()
    totals = use.ledger.totals()
    assert (totals.calls, totals.at_risk_tokens) == (1, BOUND)
    assert (await use.ask()).message.content == "fine"


@pytest.mark.parametrize("ending", ["drop", "torn"])
async def test_a_broken_connection_is_retried_and_what_it_may_have_cost_is_kept(
    server: Any, bench: Any, act: Any, ending: str
) -> None:
    server.acts = [act(ending=ending)]
    use = bench()
    assert (await use.ask()).attempts == 2
    totals = use.ledger.totals()
    assert (totals.calls, totals.tokens, totals.at_risk_tokens) == (2, 15, BOUND)
    server.otherwise = lambda seen: act(ending=ending)
    with pytest.raises(ModelUnreachable, match="broke"):
        await use.ask()
    assert len(server.seen) == use.ledger.totals().calls == 6


@pytest.mark.parametrize(
    "body", [b'{"choices": [', b"", b"<html>", b"[1]", b"\xff\xfe", b"[" * 100_000, {"choices": []}, b"\x00"]
)
async def test_a_malformed_body_is_retried_and_stays_at_risk(server: Any, bench: Any, act: Any, body: Any) -> None:
    server.acts = [act(body=body)]
    use = bench()
    assert (await use.ask()).attempts == 2
    assert use.ledger.totals().at_risk_tokens == BOUND
    server.otherwise = lambda seen: act(body=body)
    with pytest.raises(ModelReplyMalformed):
        await use.ask()
    assert len(server.seen) == use.ledger.totals().calls == 6


async def test_an_empty_reply_is_malformed_but_its_usage_is_paid(
    server: Any, bench: Any, act: Any, reply_body: Any
) -> None:
    server.acts = [act(body=reply_body(""))]
    use = bench()
    assert (await use.ask()).attempts == 2
    totals = use.ledger.totals()
    assert (totals.calls, totals.tokens, totals.at_risk_tokens) == (2, 30, 0)


async def test_an_empty_reply_at_the_token_limit_is_not_retried(
    server: Any, bench: Any, act: Any, reply_body: Any
) -> None:
    choice = {"message": {"content": ""}, "finish_reason": "length"}
    server.otherwise = lambda seen: act(body=reply_body(choices=[choice]))
    with pytest.raises(ModelReplyMalformed, match="length"):
        await bench().ask()
    assert len(server.seen) == 1


async def test_an_unreachable_port_costs_nothing_and_is_no_call(bench: Any, closed_port: int) -> None:
    use = bench(f"http://127.0.0.1:{closed_port}/v1")
    with pytest.raises(ModelUnreachable, match="no connection") as caught:
        await use.ask()
    assert len(use.waits) == 3
    totals = use.ledger.totals()
    assert (totals.calls, totals.at_risk_tokens) == (0, 0)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


async def test_the_ledger_counts_the_calls_the_server_saw_under_faults_of_every_kind(
    server: Any, bench: Any, act: Any, reply_body: Any
) -> None:
    kinds = [
        act(),
        act(status=429),
        act(status=503),
        act(ending="drop"),
        act(ending="torn"),
        act(body=b"{"),
        act(body=reply_body("")),
    ]
    server.acts = kinds * 15
    use = bench(retry=RetryPolicy(max_retries=4))
    use.client.sleep = lambda seconds: asyncio.sleep(0)
    results = await asyncio.gather(*(use.ask() for _ in range(60)), return_exceptions=True)
    assert {type(result) for result in results} <= {
        ChatReply, ModelRateLimited, ModelServerFault, ModelUnreachable, ModelReplyMalformed,
    }  # fmt: skip
    assert len(server.seen) == use.ledger.totals().calls


@pytest.mark.parametrize("kind", [httpx.ConnectError, httpx.ConnectTimeout])
async def test_a_custom_transport_that_never_connects_costs_nothing(
    bench: Any, kind: type[httpx.TransportError]
) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise kind("", request=request)

    use = bench("http://nowhere.invalid/v1", http=httpx.MockTransport(refuse))
    with pytest.raises(ModelUnreachable, match=f"no connection to http://nowhere.invalid/v1: {kind.__name__}"):
        await use.ask()
    assert use.ledger.totals().calls == 0


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (200, {"error": {"code": 502, "message": "Provider returned error"}}, ModelServerFault),
        (400, {"error": {"code": "tool_use_failed", "message": "Failed to call a function."}}, ModelReplyMalformed),
    ],
)
async def test_a_refusal_after_a_model_may_have_answered_stays_at_risk(
    server: Any, act: Any, bench: Any, status: int, body: Any, error: type[ModelCallError]
) -> None:
    use = bench(retry=RetryPolicy(max_retries=0))
    server.acts = [act(status=status, body=body)]
    with pytest.raises(error):
        await use.ask()
    totals = use.ledger.totals()
    assert (totals.calls, totals.lost_calls, totals.at_risk_tokens) == (1, 1, BOUND)


@pytest.mark.parametrize("status", [429, 503, 529])
async def test_an_overloaded_endpoint_gets_fewer_calls(server: Any, act: Any, bench: Any, status: int) -> None:
    use = bench(cap=8, retry=RetryPolicy(max_retries=0))
    server.acts = [act(status=status, body={})]
    with pytest.raises(ModelCallError):
        await use.ask()
    assert use.limiter.limit == 4
