"""Caps hold for agents: reserved before a call leaves, refused in the agent's protocol, settled with what was used."""

import asyncio
import json

import pytest
from aiohttp import web

from tests.support.agents.endpoint import chat_body, message_body, response_body
from tfgrpo.stores.errors import BudgetRefused
from tfgrpo.stores.ledger import NANO, Budget, Price, Usage

ASK = {"model": "m", "messages": [{"role": "user", "content": "3 + 4?"}]}
BODIES = {"/chat/completions": chat_body("7"), "/responses": response_body("7"), "/messages": message_body("7")}


@pytest.mark.parametrize("path", BODIES)
async def test_a_call_above_the_cap_is_refused_in_the_agents_protocol(endpoint, opened, path):
    endpoint.answer = lambda request, raw: BODIES[path]
    session = await opened.session(opened.runtime(endpoint.url, budget=Budget(max_calls=2)))
    agent = await opened.agent(session)
    statuses = [(await agent.post(path, json=ASK)).status_code for _ in range(2)]
    reply = await agent.post(path, json=ASK)
    assert [*statuses, reply.status_code] == [200, 200, 402]
    assert reply.json()["error"]["type"] == "billing_error"
    assert "max_calls" in reply.json()["error"]["message"]
    assert (reply.json().get("type") == "error") == (path == "/messages")
    assert reply.headers["x-should-retry"] == "false"
    assert isinstance(session.attempt.stopped_by, BudgetRefused)
    assert len(endpoint.asked) == 2
    assert (await agent.post(path, json=ASK)).status_code == 402
    assert session.attempt.usage.calls == 2


async def test_a_model_without_a_price_is_not_called_under_a_cap_on_money(endpoint, opened):
    runtime = opened.runtime(endpoint.url, budget=Budget(max_usd=5.0), prices={"m": Price(1, 1)})
    agent = await opened.agent(await opened.session(runtime))
    assert (await agent.post("/chat/completions", json=ASK)).status_code == 200
    reply = await agent.post("/chat/completions", json={**ASK, "model": "other/model:7b"})
    assert reply.status_code == 402
    assert "no price for 'other/model:7b'" in reply.json()["error"]["message"]
    assert len(endpoint.asked) == 1


async def test_the_cap_holds_under_concurrency(endpoint, opened):
    runtime = opened.runtime(endpoint.url, budget=Budget(max_calls=5))
    sessions = [await opened.session(runtime, index) for index in range(4)]
    agents = [await opened.agent(session) for session in sessions]
    replies = await asyncio.gather(*(agent.post("/chat/completions", json=ASK) for agent in agents for _ in range(4)))
    assert sorted(reply.status_code for reply in replies) == [200] * 5 + [402] * 11
    assert len(endpoint.asked) == 5


async def test_tokens_are_reserved_by_the_requests_own_limit(endpoint, opened):
    runtime = opened.runtime(endpoint.url, budget=Budget(max_tokens=5_000), model={"max_tokens": 6_000})
    agent = await opened.agent(await opened.session(runtime))
    assert (await agent.post("/chat/completions", json={**ASK, "max_completion_tokens": 100})).status_code == 200
    refused = await opened.agent(await opened.session(runtime, 1))
    assert (await refused.post("/chat/completions", json=ASK)).status_code == 402


_PNG = "iVBORw0KGgo" * 40_000
_URL = f"data:image/png;base64,{_PNG}"
_NESTED = json.loads('{"a":' * 450 + json.dumps({"url": _URL}) + "}" * 450)
_IN_TOOL = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PNG}}


@pytest.mark.parametrize(("path", "content", "fits"), [
    ("/chat/completions", [{"type": "image_url", "image_url": {"url": _URL, "detail": "high"}}], True),
    ("/responses", [{"type": "input_image", "image_url": _URL}], True),
    ("/messages", [{"type": "tool_result", "tool_use_id": "c", "content": [_IN_TOOL]}], True),
    ("/chat/completions", [{"type": "image_url", "image_url": _NESTED}], True),
    ("/chat/completions", [{"type": "text", "text": _URL}], False),
    ("/messages", [{"type": "document", "source": {"media_type": "application/pdf", "data": _PNG}}], False),
])  # fmt: skip
async def test_an_image_is_reserved_as_an_image_and_not_as_its_bytes(endpoint, opened, path, content, fits):
    endpoint.answer = lambda request, raw: BODIES[path]
    agent = await opened.agent(await opened.session(opened.runtime(endpoint.url, budget=Budget(max_tokens=80_000))))
    turns = [{"role": "user", "content": content}]
    body = {"model": "m", "max_tokens": 100, ("input" if path == "/responses" else "messages"): turns}
    assert (await agent.post(path, json=body)).status_code == (200 if fits else 402)


async def test_the_cost_of_a_call_is_that_of_its_usage(endpoint, opened):
    runtime = opened.runtime(endpoint.url, prices={"m": Price.per_million(100.0, 200.0)})
    session = await opened.session(runtime)
    await (await opened.agent(session)).post("/chat/completions", json=ASK)
    assert session.attempt.usage == Usage(1, 10, 5, pytest.approx(0.002))
    assert session.attempt.frames[0].cost_usd == pytest.approx(0.002)
    assert runtime.ledger.totals().nano_usd == int(0.002 * NANO)


@pytest.mark.parametrize(
    ("usage", "known", "lost"), [(None, None, 1), ({"prompt_tokens": 10**9, "completion_tokens": 1}, None, 0)]
)
async def test_unknown_and_implausible_usage_is_unknown(endpoint, opened, usage, known, lost):
    endpoint.answer = lambda request, raw: {**chat_body("7"), "usage": usage}
    price = Price(10, 2_000)
    runtime = opened.runtime(endpoint.url, prices={"m": price})
    session = await opened.session(runtime)
    await (await opened.agent(session)).post("/chat/completions", json={**ASK, "max_tokens": 100})
    assert session.attempt.usage == Usage(1, None, None, None)
    totals = runtime.ledger.totals()
    assert (totals.lost_calls, totals.silent_calls, totals.implausible_usage) == (lost, lost, 1 - lost)
    # Either way the worst is counted: every byte a token of the prompt, and a completion to its limit.
    assert totals.nano_usd + totals.at_risk_nano == price.cost(len(endpoint.asked[0].raw), 100, 0)


async def test_a_refused_call_costs_nothing(endpoint, runtime, session, agent):
    endpoint.answer = lambda request, raw: web.json_response({"error": {"message": "too long"}}, status=400)
    assert (await agent.post("/chat/completions", json=ASK)).status_code == 400
    totals = runtime.ledger.totals()
    assert (totals.calls, totals.tokens, totals.lost_calls) == (1, 0, 0)
    assert session.attempt.stopped_by is None
