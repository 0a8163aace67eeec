"""An answered call is never paid for twice: journalled by content and number, resumed and replayed in any order."""

import asyncio
import json

import pytest
from aiohttp import web

from tests.support.agents.endpoint import chat_body
from tfgrpo.flows.report.page import read_costs
from tfgrpo.stores.errors import ReplayMiss, StoreError
from tfgrpo.tasks.gateway import call
from tfgrpo.tasks.gateway.call import ClientGone


def ask(text):
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


def counts_up(endpoint):
    endpoint.answer = lambda request, raw: chat_body(f"answer {len(endpoint.asked)}")


async def said(opened, session, *texts):
    agent = await opened.agent(session)
    replies = await asyncio.gather(*(agent.post("/chat/completions", json=ask(text)) for text in texts))
    return [reply.json()["choices"][0]["message"]["content"] for reply in replies]


async def test_equal_requests_are_calls_of_their_own_and_resumed_in_order(endpoint, opened):
    counts_up(endpoint)
    for url in (endpoint.url, endpoint.url, None):
        session = await opened.session(opened.runtime(url))
        assert [(await said(opened, session, "again"))[0] for _ in range(3)] == ["answer 1", "answer 2", "answer 3"]
    assert len(endpoint.asked) == 3
    assert "again" not in (opened.folder / "journal.jsonl").read_text(), "requests are not journalled"


async def test_a_call_has_an_idempotency_key_that_its_repetitions_share(endpoint, opened):
    def answer(request, raw):
        return web.json_response({}, status=503) if len(endpoint.asked) in {1, 3} else chat_body("seven")

    endpoint.answer = answer
    for _ in range(2):  # the second time resumed
        agent = await opened.agent(await opened.session(opened.runtime(endpoint.url)))
        for _ in range(2):
            await agent.post("/chat/completions", json=ask("again"), headers={"Idempotency-Key": "the agent's"})
    keys = [asked.headers["idempotency-key"] for asked in endpoint.asked]
    assert [keys.index(key) for key in keys] == [0, 0, 2]
    assert "the agent's" not in keys
    endpoint.asked.clear()
    counts_up(endpoint)
    await said(opened, await opened.session(opened.runtime(endpoint.url)), "twins", "twins")
    assert len({asked.headers["idempotency-key"] for asked in endpoint.asked}) == 2


async def test_an_endpoint_that_refuses_idempotency_keys_gets_none_from_then_on(endpoint, opened, session):
    def answer(request, raw):
        words = {"error": {"message": "unexpected header idempotency-key"}}
        return web.json_response(words, status=400) if "Idempotency-Key" in request.headers else chat_body("seven")

    endpoint.answer = answer
    assert await said(opened, session, "first") + await said(opened, session, "second") == ["seven", "seven"]
    assert ["idempotency-key" in asked.headers for asked in endpoint.asked] == [True, False, False]


async def test_parallel_calls_are_replayed_by_content(endpoint, opened):
    endpoint.answer = lambda request, raw: chat_body(f"to {json.loads(raw)['messages'][-1]['content']}")
    texts = [f"q{number}" for number in range(12)]
    await said(opened, await opened.session(opened.runtime(endpoint.url)), *texts)
    replayed = await opened.session(opened.runtime(None))
    assert await said(opened, replayed, *reversed(texts)) == [f"to {text}" for text in reversed(texts)]
    assert len(replayed.attempt.calls) == len(endpoint.asked) == 12
    assert [frame.text for frame in replayed.attempt.frames] == [f"to {text}" for text in reversed(texts)]


async def test_reports_find_the_tokens_of_a_call_and_usage_that_was_not_believed_stays_unknown(endpoint, opened):
    absurd = {"prompt_tokens": 10_000_000, "completion_tokens": 5, "total_tokens": 10_000_005}
    usages = iter(({"prompt_tokens": 10, "completion_tokens": 5}, absurd))
    endpoint.answer = lambda request, raw: {**chat_body("seven"), "usage": next(usages)}
    for url in (endpoint.url, None):
        session = await opened.session(opened.runtime(url))
        await said(opened, session, "first", "second")
        assert sorted(call.prompt_tokens or 0 for call in session.attempt.calls) == [0, 10]
    cost = read_costs(session.runtime.context.paths)["gateway"]
    assert (cost.calls, cost.prompt, cost.completion, cost.without_usage) == (2, 10, 5, 1)


async def test_a_replay_of_another_request_ends_the_attempt(endpoint, opened):
    session = await opened.session(opened.runtime(None))
    reply = await (await opened.agent(session)).post("/chat/completions", json=ask("never asked"))
    assert (reply.status_code, reply.headers["x-should-retry"]) == (500, "false")
    assert isinstance(session.attempt.stopped_by, ReplayMiss)
    assert (await (await opened.agent(session)).get("/models")).status_code == 503


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_cannot_be_journalled_ends_the_attempt(endpoint, runtime, session, agent, monkeypatch, stream):
    def full(*_):
        raise StoreError("the disk is full")

    monkeypatch.setattr(runtime.journal, "append", full)
    reply = await agent.post("/chat/completions", json={**ask("?"), "stream": stream})
    assert reply.status_code == 500
    assert isinstance(session.attempt.stopped_by, StoreError)
    assert session.attempt.calls == []
    assert runtime.ledger.totals().tokens == 15
    assert (await agent.post("/chat/completions", json=ask("more"))).status_code == 500
    assert len(endpoint.asked) == 1


async def test_an_answer_in_another_encoding_is_replayed_byte_for_byte(endpoint, opened):
    raw = json.dumps(chat_body("café"), ensure_ascii=False).encode("utf-16")
    endpoint.answer = lambda request, body: web.Response(body=raw, content_type="application/json")
    for url in (endpoint.url, None):
        session = await opened.session(opened.runtime(url))
        reply = await (await opened.agent(session)).post("/chat/completions", json=ask("?"))
        assert reply.content == raw
        assert session.attempt.frames[0].text == "café"


async def test_a_failed_call_among_equal_ones_leaves_no_gap(endpoint, opened):
    both = asyncio.Event()

    async def second_only(request, raw):
        number = len(endpoint.asked)
        if number == 2:
            both.set()
        await both.wait()
        return chat_body("seven") if number == 2 else web.json_response({"error": {"message": "no"}}, status=500)

    endpoint.answer = second_only
    agent = await opened.agent(await opened.session(opened.runtime(endpoint.url)))
    replies = await asyncio.gather(*(agent.post("/chat/completions", json=ask("?")) for _ in range(2)))
    assert sorted(reply.status_code for reply in replies) == [200, 500]
    for url in (endpoint.url, None):
        resumed = await opened.session(opened.runtime(url))
        assert await said(opened, resumed, "?") == ["seven"]
    assert len(endpoint.asked) == 2


async def test_an_answer_that_did_not_arrive_is_given_to_the_next_attempt(endpoint, opened, session, agent):
    def gone():
        raise ClientGone
        yield

    counts_up(endpoint)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(call, "noticing_the_client", gone)
        await agent.post("/chat/completions", json=ask("?"))
    assert session.attempt.usage.calls == 1
    assert await said(opened, session, "?") == ["answer 1"]
    assert await said(opened, session, "?") == ["answer 2"]
    assert (session.attempt.usage.calls, len(session.attempt.frames)) == (2, 2)
