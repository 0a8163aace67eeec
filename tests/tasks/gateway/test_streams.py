"""Streams pass event by event, are measured and journalled before they end, and their breaks are what they are."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
import pytest
from aiohttp import web

from tests.support.agents.endpoint import KEY, begin, chat_events, event, message_events, response_events, stream
from tests.support.waiting import eventually
from tfgrpo.stores.ledger import Usage
from tfgrpo.tasks.gateway import call

CALLS = [("call_1", "add", '{"left": 1}')]
Events = Callable[[dict[str, Any]], list[bytes]]
DIALECTS: dict[str, Events] = {
    "/chat/completions": lambda body: chat_events("one two é", body, CALLS),
    "/responses": lambda body: response_events("one two é", CALLS),
    "/messages": lambda body: message_events("one two é", CALLS),
}
ASK = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "3 + 4?"}]}


def streams(endpoint, parts, pause_s=0.0):
    async def answer(request, raw):
        return await stream(request, parts(endpoint.asked[-1].body), pause_s=pause_s)

    endpoint.answer = answer


@pytest.mark.parametrize("cut", [1, 7])
@pytest.mark.parametrize("path", DIALECTS)
async def test_a_stream_reaches_the_agent_byte_for_byte(endpoint, session, agent, path, cut):
    def in_pieces(body):
        whole = b"".join(DIALECTS[path](body))
        return [whole[at : at + cut] for at in range(0, len(whole), cut)] if cut > 1 else DIALECTS[path](body)

    streams(endpoint, in_pieces)

    reply = await agent.post(path, json=ASK)

    sent = DIALECTS[path](endpoint.asked[0].body)
    hidden = [each for each in sent if path == "/chat/completions" and b'"choices": []' in each]
    assert len(hidden) == (path == "/chat/completions")
    assert reply.content == b"".join(each for each in sent if each not in hidden)
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert session.attempt.usage == Usage(1, 10, 5, None)
    [frame] = session.attempt.frames
    assert frame.text.endswith('→ add({"left": 1})')
    assert frame.text.replace(" ", "").startswith("onetwoé\n")


@pytest.mark.parametrize("path", DIALECTS)
async def test_a_resumed_attempt_gets_the_same_stream_from_the_journal(endpoint, opened, path):
    streams(endpoint, DIALECTS[path])
    replies, frames = [], []
    for url in (endpoint.url, endpoint.url, None):
        runtime = opened.runtime(url)
        session = await opened.session(runtime)
        replies.append(await (await opened.agent(session)).post(path, json=ASK))
        assert session.attempt.usage == Usage(1, 10, 5, None)
        assert session.attempt.stopped_by is None
        frames.append(session.attempt.frames)
    assert frames[0] == frames[1] == frames[2]
    assert len(endpoint.asked) == 1
    assert len({reply.content for reply in replies}) == 1


@pytest.mark.parametrize(("path", "last"), [("/messages", "message_stop"), ("/responses", "response.completed")])
async def test_what_looks_like_the_last_event_within_another_ends_no_stream(endpoint, session, agent, path, last):
    def parts(body):
        first, *more = DIALECTS[path](body)
        return [first, event({"type": "ping", "of": {"type": last}, "text": f'"type":"{last}"'}), *more]

    streams(endpoint, parts, pause_s=0.01)
    reply = await agent.post(path, json=ASK)
    assert reply.content == b"".join(parts({}))
    assert session.attempt.usage == Usage(1, 10, 5, None)


async def test_the_answer_is_journalled_before_the_agent_sees_its_end(endpoint, opened, agent):
    streams(endpoint, DIALECTS["/messages"], pause_s=0.01)
    journal = opened.folder / "journal.jsonl"
    async with agent.stream("POST", "/messages", json=ASK) as reply:
        seen = b""
        async for chunk in reply.aiter_bytes():
            seen += chunk
            journalled = b"/gateway/0#" in journal.read_bytes()
            assert journalled or b"message_stop" not in seen
            assert not journalled or b"message_delta" in seen
        assert journalled


async def test_a_silent_endpoint_is_bridged_by_comments(endpoint, opened, session, agent, monkeypatch):
    monkeypatch.setattr(call, "SILENCE_S", 0.02)
    streams(endpoint, DIALECTS["/chat/completions"], pause_s=0.05)
    reply = await agent.post("/chat/completions", json=ASK)
    blocks = reply.content.split(b"\n\n")
    assert sum(block.startswith(b": ") for block in blocks) >= len(blocks) // 3
    assert all(block.startswith((b": ", b"data: ")) or not block for block in blocks)
    assert "waiting for the model" not in (opened.folder / "journal.jsonl").read_text()
    assert session.attempt.usage == Usage(1, 10, 5, None)


async def test_an_agent_that_goes_away_cancels_the_endpoint(endpoint, opened, runtime, session, agent):
    def endless(body):
        return [*DIALECTS["/responses"](body)[:2], *[b": and on\n\n"] * 10_000]

    streams(endpoint, endless, pause_s=0.01)
    async with agent.stream("POST", "/responses", json=ASK) as reply:
        async for _ in reply.aiter_bytes():
            break
    await asyncio.wait_for(endpoint.gone.wait(), 30)
    await eventually(lambda: runtime.ledger.totals().lost_calls)
    totals = runtime.ledger.totals()
    assert (totals.calls, totals.lost_calls) == (1, 1)
    assert runtime.ledger.read()[1].calls == 0
    assert session.attempt.calls == []
    assert "/gateway/" not in (opened.folder / "journal.jsonl").read_text()


@pytest.mark.parametrize(("path", "broken"), [*((path, False) for path in DIALECTS), ("/messages", True)])
async def test_an_agent_that_leaves_after_the_last_event_has_its_answer(endpoint, session, agent, path, broken):
    async def ends_late(request, raw):
        response = await begin(request, b"".join(DIALECTS[path](endpoint.asked[-1].body)))
        await asyncio.sleep(0.02 if broken else 0.3)
        if broken and request.transport is not None:
            request.transport.abort()
        return response

    endpoint.answer = ends_late
    for asked in (1, 2):
        async with agent.stream("POST", path, json=ASK) as reply:
            async for line in reply.aiter_lines():
                if "[DONE]" in line or "response.completed" in line or "message_stop" in line:
                    break
        await eventually(lambda asked=asked: session.attempt.usage.calls >= asked)
        assert len(endpoint.asked) == session.attempt.usage.calls == asked
    assert (await agent.post(path, json={**ASK, "model": "m-2"})).is_success


async def test_a_stream_that_breaks_off_breaks_off_for_the_agent(endpoint, opened, runtime, session, agent):
    path = "/chat/completions"

    async def breaks(request, raw):
        response = await begin(request, b"".join(DIALECTS[path]({})[:2]))
        await asyncio.sleep(0.05)
        assert request.transport is not None
        request.transport.abort()
        return response

    endpoint.answer = breaks
    with pytest.raises(httpx.RemoteProtocolError):
        await agent.post(path, json=ASK)
    assert runtime.ledger.totals().lost_calls == 1

    streams(endpoint, DIALECTS[path])  # the client's next attempt is the same call
    assert (await agent.post(path, json=ASK)).status_code == 200
    assert (opened.folder / "journal.jsonl").read_text().count("/gateway/0#") == 1
    assert len(session.attempt.calls) == 1


@pytest.mark.parametrize("path", DIALECTS)
async def test_a_stream_without_its_last_event_is_no_answer(endpoint, opened, runtime, session, agent, path):
    streams(endpoint, lambda body: DIALECTS[path](body)[:2])
    reply = await agent.post(path, json=ASK)
    assert reply.content == b"".join(DIALECTS[path](endpoint.asked[0].body)[:2])
    assert session.attempt.calls == []
    assert "/gateway/" not in (opened.folder / "journal.jsonl").read_text()
    assert runtime.ledger.totals().lost_calls == 1


async def test_a_key_that_the_endpoint_echoes_reaches_neither_agent_nor_journal(endpoint, opened, session, agent):
    streams(endpoint, lambda body: chat_events(f"your key is {KEY} indeed", body))
    reply = await agent.post("/chat/completions", json=ASK)
    assert "***" in reply.text
    assert KEY not in reply.text
    assert KEY not in (opened.folder / "journal.jsonl").read_text()
    assert KEY not in str(session.attempt.frames)


async def test_a_stream_that_begins_late_may_last_and_one_that_falls_silent_is_given_up(endpoint, opened):
    whole = chat_events(" ".join("abcdefgh"), {})

    async def late(request, raw):
        await asyncio.sleep(0.7)
        return await stream(request, whole, pause_s=0.1)

    endpoint.answer = late
    runtime = opened.runtime(endpoint.url, model={"timeout_s": 1.2})
    session = await opened.session(runtime)
    agent = await opened.agent(session)
    assert (await agent.post("/chat/completions", json=ASK)).content == b"".join(whole)

    async def hangs(request, raw):
        await begin(request, b"".join(whole[:3]))
        await asyncio.sleep(30)

    endpoint.answer = hangs
    with pytest.raises(httpx.RemoteProtocolError):
        await agent.post("/chat/completions", json={**ASK, "n": 1})
    assert runtime.ledger.totals().lost_calls == 2  # none of them reported usage


@pytest.mark.parametrize("event_end", [b"\n\n", b""])
async def test_a_stream_without_end_is_broken_off_at_the_largest_size(
    endpoint, runtime, session, agent, monkeypatch, event_end
):
    monkeypatch.setattr(call, "MAX_BODY", 1 << 18)

    async def endless(request, raw):
        response = await begin(request)
        with suppress(ConnectionError):
            while True:
                await response.write(b"data: " + b"x" * 4096 + event_end)
        return response

    endpoint.answer = endless
    with pytest.raises(httpx.RemoteProtocolError):
        await agent.post("/chat/completions", json=ASK)
    assert session.attempt.calls == []
    assert runtime.ledger.totals().lost_calls == 1


@pytest.mark.parametrize("named", ["Text/Event-Stream", "text/plain; charset=utf-8", None])
@pytest.mark.parametrize("ends", [b"data: [DONE]\r\n\r\n", b"data: [DONE]", b""])
async def test_a_stream_in_another_spelling_is_a_stream(endpoint, opened, named, ends):
    """By any name, or none; without its last event, or without the blank line of that which is the last."""

    async def answer(request, raw):
        response = web.StreamResponse(headers={"content-type": named} if named else {})
        await response.prepare(request)
        events = [part.replace(b"\n", b"\r\n") for part in chat_events("one two", endpoint.asked[-1].body)[:-1]]
        for piece in b"".join([*events, ends]) if ends else b"".join(events).rstrip(b"\r\n"):
            await response.write(bytes([piece]))
        return response

    endpoint.answer = answer
    for url in (endpoint.url, None):
        session = await opened.session(opened.runtime(url))
        reply = await (await opened.agent(session)).post("/chat/completions", json=ASK)
        assert reply.content.endswith(ends or b'"stop"}]}\r\n\r\n')
        assert b'"choices": []' not in reply.content
        assert session.attempt.usage == Usage(1, 10, 5, None)


async def test_an_agent_that_reads_slowly_slows_the_endpoint_down(endpoint, session, agent):
    part, sent = b"data: " + b"x" * 65_530 + b"\n\n", 0

    async def answer(request, raw):
        nonlocal sent
        response = await begin(request)
        for _ in range(480):
            await response.write(part)
            sent += 1
        await response.write(b"".join(DIALECTS["/messages"]({})))
        return response

    endpoint.answer = answer
    async with agent.stream("POST", "/messages", json=ASK) as reply:
        await asyncio.sleep(0.5)
        waiting = sent
        seen = [chunk async for chunk in reply.aiter_bytes()]
    assert waiting < 400  # the kernel's buffers hold several megabytes
    assert b"".join(seen) == part * 480 + b"".join(DIALECTS["/messages"]({}))
    assert session.attempt.usage == Usage(1, 10, 5, None)


@pytest.mark.parametrize("more", ["", "connection: keep-alive\r\n"])
async def test_an_agent_of_an_older_protocol_gets_the_events_without_chunk_sizes(endpoint, session, more):
    streams(endpoint, DIALECTS["/messages"], pause_s=0.01)
    url, body = httpx.URL(session.root_url), json.dumps(ASK).encode()
    reader, writer = await asyncio.open_connection(url.host, url.port)
    head = f"POST {url.path}/v1/messages HTTP/1.0\r\nhost: {url.host}:{url.port}\r\nx-api-key: {session.api_key}\r\n"
    writer.write(f"{head}{more}content-length: {len(body)}\r\n\r\n".encode() + body)
    _, _, received = (await asyncio.wait_for(reader.read(), 10)).partition(b"\r\n\r\n")
    writer.close()
    assert received == b"".join(DIALECTS["/messages"]({}))
