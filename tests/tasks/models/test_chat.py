from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import httpx
import pytest

from tests.support.models.chat_bench import BOUND, REQUEST, SECRET
from tfgrpo.stores.errors import BudgetRefused
from tfgrpo.stores.ledger.state import Budget, Price
from tfgrpo.tasks.models.base import ChatReply, Message, TokenUsage


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


async def test_any_httpx_transport_can_replace_the_network(bench: Any, reply_body: Any) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=reply_body("in process"))

    use = bench("http://nowhere.invalid/v1", http=httpx.MockTransport(answer))
    assert (await use.ask()).message.content == "in process"
    assert len(seen) == 1


async def test_the_price_of_the_longest_answer_is_reserved_before_sending(server: Any, bench: Any) -> None:
    most = (BOUND - 64) * 1000 + 64 * 2000  # of the bench's prices, in nano-dollars
    with pytest.raises(BudgetRefused, match="max_usd"):
        await bench(budget=Budget(max_usd=(most - 1) / 1e9)).ask()
    assert server.seen == []
    await bench(budget=Budget(max_usd=most / 1e9)).ask()
    assert len(server.seen) == 1
