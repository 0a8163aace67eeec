from __future__ import annotations

import asyncio
import dataclasses
import random
import traceback
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from tfgrpo.pipelines.settings.model import ModelSettings
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
from tfgrpo.stores.ledger.ledger import Ledger
from tfgrpo.stores.ledger.state import Budget, Price
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.tasks.models.base import ChatReply, ChatRequest, Message, TokenUsage
from tfgrpo.tasks.models.chat import ChatClient
from tfgrpo.tasks.models.endpoint import ApiKey, Endpoint
from tfgrpo.tasks.models.retry import RetryPolicy
from tfgrpo.tasks.models.transport import open_transport
from tfgrpo.tasks.models.wire import encode_request

SECRET = "sk-very-secret-0123456789"
KEY = CallKey(GroupKey(1, "train", "train", 0, "q1"), 0, 0, "rollout")
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
REQUEST = ChatRequest("m", (Message("user", "2+2?"),), 0.7, 64)
BOUND = len(encode_request(REQUEST, ModelSettings())) + 64


class Bench:
    """A chat client against the test server, with everything that can be looked at afterwards."""

    def __init__(self, root: str, **changes: Any) -> None:
        self.waits: list[float] = []
        self.ledger = Ledger(changes.pop("budget", Budget()))
        self.http = changes.pop("http", None) or open_transport(concurrency=8, trust_env=False)
        timeout_s = changes.pop("timeout_s", 5.0)
        self.client = ChatClient(
            Endpoint(root, ApiKey(SECRET), timeout_s=timeout_s),
            self.http,
            concurrency=changes.pop("cap", 8),
            ledger=self.ledger,
            prices={"m": Price(1000, 2000, 100)} if changes.pop("priced", True) else {},
            retry=changes.pop("retry", RetryPolicy(max_retries=3)),
            rng=random.Random(0),
            sleep=self._sleep,
            clock=lambda: NOW,
            timer=changes.pop("timer", iter(range(10_000)).__next__),
        )
        self.limiter = self.client.limiter
        assert not changes

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        assert self.limiter._in_flight == 0  # a waiting call has no slot

    async def ask(self, request: ChatRequest = REQUEST) -> ChatReply:
        return await self.client.complete(request, KEY)


@pytest.fixture
async def bench(server: Any) -> AsyncIterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(root: str | None = None, **changes: Any) -> Bench:
        made.append(Bench(root or server.root, **changes))
        return made[-1]

    yield make
    for one in made:
        assert one.limiter._in_flight == 0
        assert one.ledger.in_flight().calls == 0
        await one.client.aclose()


async def test_a_call_is_sent_answered_priced_and_settled(server: Any, bench: Any) -> None:
    use = bench()
    reply = await use.ask(dataclasses.replace(REQUEST, seed=5))
    assert reply == ChatReply(Message("assistant", "fine"), "stop", TokenUsage(10, 5), 1, 20_000 / 1e9, "m", "cmpl-1")
    (seen,) = server.seen
    assert (seen.method, seen.path) == ("POST", "/v1/chat/completions")
    assert seen.headers["authorization"] == f"Bearer {SECRET}"
    assert seen.json["seed"] == 5
    totals = use.ledger.totals()
    assert (totals.calls, totals.tokens, totals.nano_usd, totals.at_risk_tokens) == (1, 15, 20_000, 0)


async def test_connections_are_reused_across_calls(server: Any, bench: Any) -> None:
    server.delay_s = 0.001
    use = bench()
    await asyncio.gather(*(use.ask() for _ in range(200)))
    assert len(server.seen) == use.ledger.totals().calls == 200
    assert server.connections <= 8
    assert 2 <= server.most_in_flight <= 8


async def test_an_unknown_price_is_unknown_and_not_zero(server: Any, bench: Any) -> None:
    use = bench(priced=False)
    assert (await use.ask()).cost_usd is None
    assert use.ledger.totals().unknown_price_calls == 1


async def test_a_reply_without_usage_is_handed_out_and_stays_at_risk(
    server: Any, bench: Any, act: Any, reply_body: Any
) -> None:
    server.acts = [act(body=reply_body(usage=None))]
    use = bench()
    reply = await use.ask()
    assert (reply.usage, reply.cost_usd) == (None, None)
    totals = use.ledger.totals()
    assert (totals.calls, totals.tokens, totals.at_risk_tokens) == (1, 0, BOUND)


async def test_cached_tokens_have_their_own_price(server: Any, bench: Any, act: Any, reply_body: Any) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}}
    server.acts = [act(body=reply_body(usage=usage))]
    assert (await bench().ask()).cost_usd == pytest.approx((2 * 1000 + 8 * 100 + 5 * 2000) / 1e9)


async def test_a_text_cut_off_at_the_limit_is_returned_as_such(
    server: Any, bench: Any, act: Any, reply_body: Any
) -> None:
    choice = {"message": {"content": "half a"}, "finish_reason": "length"}
    server.acts = [act(body=reply_body(choices=[choice]))]
    reply = await bench().ask()
    assert (reply.message.content, reply.finish_reason) == ("half a", "length")


async def test_retry_after_is_honoured_and_nothing_is_charged_for_a_429(server: Any, bench: Any, act: Any) -> None:
    server.acts = [
        act(status=429, headers={"retry-after": "7"}),
        act(status=429, headers={"retry-after": "Fri, 02 Jan 2026 03:04:15 GMT"}),
        act(status=429, headers={"retry-after-ms": "1500"}),
    ]
    use = bench()
    reply = await use.ask()
    assert reply.attempts == 4
    assert reply.latency_s == 1  # of the last attempt alone
    assert [least <= wait <= least + 0.5 for least, wait in zip((7, 10, 1.5), use.waits, strict=True)] == [True] * 3
    totals = use.ledger.totals()
    assert (totals.calls, totals.tokens, totals.at_risk_tokens) == (4, 15, 0)
    assert len(server.seen) == 4
    assert use.limiter.limit < 8


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


async def test_usage_far_above_what_a_request_could_use_is_unknown_flagged_and_settled_at_the_bound(
    server: Any, bench: Any, act: Any, reply_body: Any
) -> None:
    said = {"prompt_tokens": 2_000_000_000, "completion_tokens": 5, "total_tokens": 2_000_000_005}
    server.acts = [act(body=reply_body(usage=said))]
    use = bench()
    reply = await use.ask()
    assert (reply.usage, reply.cost_usd) == (None, None)
    totals = use.ledger.totals()
    assert (totals.calls, totals.tokens, totals.implausible_usage) == (1, BOUND, 1)
    assert totals.nano_usd == Price(1000, 2000, 100).cost(BOUND - 64, 64)
    assert use.ledger.in_flight().calls == 0


async def test_usage_that_an_endpoint_may_have_added_to_a_request_is_counted_as_it_is(
    server: Any, bench: Any, act: Any, reply_body: Any
) -> None:
    server.acts = [
        act(body=reply_body(usage={"prompt_tokens": 90_000, "completion_tokens": 5, "total_tokens": 90_005}))
    ]
    use = bench()
    assert (await use.ask()).usage == TokenUsage(90_000, 5)
    totals = use.ledger.totals()
    assert (totals.tokens, totals.implausible_usage, totals.overruns) == (90_005, 0, 1)


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
    ("body", "lost"),
    [(b'{"choices": [', True), (b"<html>", True), ({"choices": []}, True), (b"\x00", True)],
)
async def test_a_malformed_body_is_retried_and_stays_at_risk(
    server: Any, bench: Any, act: Any, body: Any, lost: bool
) -> None:
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


async def test_a_cancelled_call_gives_back_its_slot_and_its_reservation_stays_at_risk(
    server: Any, bench: Any, act: Any
) -> None:
    server.acts = [act(ending="hang")]
    use = bench(cap=1)
    call = asyncio.create_task(use.ask())
    await server.asked.wait()
    waiting = asyncio.create_task(use.ask())
    await asyncio.sleep(0)
    waiting.cancel()
    call.cancel()
    results = await asyncio.gather(call, waiting, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError] * 2
    totals = use.ledger.totals()
    assert (totals.calls, totals.at_risk_tokens) == (1, BOUND)
    assert (await use.ask()).message.content == "fine"


async def test_a_refused_budget_sends_no_request(server: Any, bench: Any) -> None:
    use = bench(budget=Budget(max_tokens=BOUND - 1))
    with pytest.raises(BudgetRefused):
        await use.ask()
    assert server.seen == []


async def test_retries_are_reserved_like_any_call(server: Any, bench: Any, act: Any) -> None:
    server.otherwise = lambda seen: act(status=500)
    use = bench(budget=Budget(max_calls=2))
    with pytest.raises(BudgetRefused):
        await use.ask()
    assert len(server.seen) == 2


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


async def test_any_httpx_transport_can_replace_the_network(bench: Any, reply_body: Any) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=reply_body("in process"))

    use = bench("http://nowhere.invalid/v1", http=httpx.MockTransport(answer))
    assert (await use.ask()).message.content == "in process"
    assert len(seen) == 1


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


async def test_the_price_of_the_longest_answer_is_reserved_before_sending(server: Any, bench: Any) -> None:
    most = (BOUND - 64) * 1000 + 64 * 2000  # of the bench's prices, in nano-dollars
    with pytest.raises(BudgetRefused, match="max_usd"):
        await bench(budget=Budget(max_usd=(most - 1) / 1e9)).ask()
    assert server.seen == []
    await bench(budget=Budget(max_usd=most / 1e9)).ask()
    assert len(server.seen) == 1
