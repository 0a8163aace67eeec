"""What passes through unchanged, what is refused, and in which form."""

import asyncio
import gzip
import json
import tracemalloc
from itertools import cycle
from typing import Any

import httpx
import pytest
from aiohttp import web

from tests.support.agents import steps as kit
from tests.support.agents.endpoint import KEY, LESSONS, SYSTEM, chat_body, chat_events, message_body, response_body, stream
from tfgrpo.stores.errors import BudgetRefused, ModelAuthRefused
from tfgrpo.stores.ledger import Usage
from tfgrpo.tasks.gateway import call, server
from tfgrpo.tasks.runtime.runtime import AttemptContext

ASK = {"model": "m", "messages": [{"role": "user", "content": "3 + 4?"}]}


@pytest.mark.parametrize("status", [429, 202])
@pytest.mark.parametrize("path", ["/chat/completions", "/responses", "/messages"])
async def test_statuses_and_errors_of_the_endpoint_pass_unchanged(endpoint, session, agent, path, status):
    raw = b'{ "error":{"message":"slow down"  ,"type":"rate_limit_error"}}'
    headers = {"retry-after": "7", "x-ratelimit-reset": "9", "x-request-id": "req_1", "content-type": "application/json"}
    endpoint.answer = lambda request, _: web.Response(body=raw, status=status, headers=headers)
    reply = await agent.post(path, json=ASK)
    assert (reply.status_code, reply.content) == (status, raw)
    assert {name: reply.headers[name] for name in headers} == headers
    assert session.attempt.stopped_by is None


@pytest.mark.parametrize(("status", "kind"), [(401, ModelAuthRefused), (403, ModelAuthRefused), (402, BudgetRefused)])
async def test_a_refusal_that_concerns_the_whole_run_ends_the_attempt(endpoint, session, agent, status, kind):
    endpoint.answer = lambda request, _: web.json_response({"error": {"message": f"no: {KEY}"}}, status=status)
    reply = await agent.post("/chat/completions", json=ASK)
    assert reply.status_code == status
    assert KEY not in reply.text + str(session.attempt.stopped_by)
    assert isinstance(session.attempt.stopped_by, kind)


async def test_a_model_that_the_key_is_not_good_for_does_not_end_the_run(endpoint, session, agent):
    await agent.post("/chat/completions", json=ASK)
    endpoint.answer = lambda request, _: web.json_response({"error": {"message": "no access"}}, status=403)
    assert (await agent.post("/chat/completions", json={**ASK, "model": "small"})).status_code == 403
    assert session.attempt.stopped_by is None


async def test_a_redirect_does_not_lead_the_agent_away(endpoint, agent):
    endpoint.answer = lambda request, _: web.Response(status=308, headers={"location": "http://elsewhere.test/v1"})
    reply = await agent.post("/messages", json=ASK)
    assert reply.status_code == 502
    assert reply.json()["type"] == "error"
    assert "moved" in reply.json()["error"]["message"]


async def test_an_endpoint_that_is_not_there_costs_nothing(opened):
    runtime = opened.runtime("http://127.0.0.1:9/v1")
    reply = await (await opened.agent(await opened.session(runtime))).post("/chat/completions", json=ASK)
    assert (reply.status_code, reply.headers["x-should-retry"]) == (502, "true")
    assert runtime.ledger.totals().calls == 0


async def test_an_endpoint_that_does_not_answer_is_given_up_on(endpoint, opened):
    async def hang(request, raw):
        await asyncio.sleep(30)

    endpoint.answer = hang
    runtime = opened.runtime(endpoint.url, model={"timeout_s": 0.1})
    reply = await (await opened.agent(await opened.session(runtime))).post("/messages", json=ASK)
    assert (reply.status_code, reply.json()["error"]["type"]) == (504, "timeout_error")
    assert runtime.ledger.totals().lost_calls == 1


async def test_headers_of_the_protocol_reach_the_endpoint_repeated_ones_too_and_keys_of_the_rollout_do_not(endpoint, session):
    own = [("x-api-key", session.api_key), ("x-tfgrpo-lessons", "off"), ("cookie", "a=b"), ("x-title", b"Caf\xe9")]
    versions = [("anthropic-version", "2023-06-01"), ("anthropic-beta", "a-1"), ("Anthropic-Beta", "b-2")]
    async with httpx.AsyncClient(base_url=session.root_url, trust_env=False) as agent:
        await agent.post("/v1/messages?beta[]=a&beta[]=b&api-version=1", json=ASK, headers=[*own, *versions])
    [asked] = endpoint.asked
    sent = {name.lower(): value for name, value in asked.headers.items()}
    assert (asked.path, asked.query, asked.body) == ("/v1/messages", "beta[]=a&beta[]=b", ASK)
    assert (sent["x-api-key"], sent["x-title"]) == (KEY, "Café")
    assert (sent["anthropic-version"], sent["anthropic-beta"]) == ("2023-06-01", "a-1, b-2")
    assert not {"authorization", "cookie", "x-tfgrpo-lessons"} & set(sent)
    assert session.api_key not in str(sent)


@pytest.mark.parametrize("path", [
    "/openai/deployments/gpt/chat/completions?api-version=2024-10-21",
    "/openai/v1/chat/completions?api-version=preview", "/v1/chat/completions", "/v1/v1/chat/completions",
    "/chat/completions",
])  # fmt: skip
async def test_every_form_of_address_leads_to_the_method(endpoint, session, path):
    async with httpx.AsyncClient(trust_env=False) as agent:
        reply = await agent.post(f"{session.root_url}{path}", json=ASK, headers={"api-key": session.api_key})
    assert reply.status_code == 200
    [asked] = endpoint.asked
    assert (asked.path, asked.query) == ("/v1/chat/completions", "")
    assert asked.headers["Authorization"] == f"Bearer {KEY}"


async def test_an_azure_endpoint_keeps_its_own_address_and_header(endpoint, opened):
    root = endpoint.url.removesuffix("/v1")
    session = await opened.session(opened.runtime(f"{root}/openai/deployments/mine?api-version=2025-01-01"))
    path = f"{session.root_url}/openai/deployments/theirs/chat/completions?api-version=2024-10-21"
    async with httpx.AsyncClient(trust_env=False) as agent:
        await agent.post(path, json=ASK, headers={"api-key": session.api_key})
    [asked] = endpoint.asked
    assert (asked.path, asked.query) == ("/openai/deployments/mine/chat/completions", "api-version=2025-01-01")
    assert asked.headers["api-key"] == KEY
    assert "Authorization" not in asked.headers


async def test_counting_tokens_is_passed_on_with_the_lessons_and_costs_nothing(endpoint, runtime, session, agent):
    endpoint.answer = lambda request, raw: {"input_tokens": 12}
    reply = await agent.post("/messages/count_tokens", json={**ASK, "system": "S"})
    assert reply.json() == {"input_tokens": 12}
    [asked] = endpoint.asked
    assert (asked.path, asked.body["system"]) == ("/v1/messages/count_tokens", f"S\n\n{LESSONS}")
    assert runtime.ledger.totals().calls == 0
    assert session.bypassed


@pytest.mark.parametrize(("method", "path", "raw", "status"), [
    ("POST", "/chat/completions", b"[]", 400),
    ("POST", "/messages", b"{", 400),
    ("POST", "/completions", b"{}", 404), ("GET", "/responses", b"", 404), ("GET", "/", b"", 404),
    ("GET", "/models/..%2f..%2fadmin", b"", 404), ("GET", "/models/a/%2e%2e/b", b"", 404),
    ("GET", "/models/%252e%252e%252fadmin", b"", 404), ("GET", "/models/a%3Fb%23c", b"", 404),
    ("GET", "/models/..;/files", b"", 404), ("GET", "/models/a/..%3Bx/files", b"", 404),
    ("GET", "/models/a%00b", b"", 400), ("POST", "/messages%0a", b"{}", 400),
])  # fmt: skip
async def test_what_the_gateway_cannot_pass_on_is_refused(endpoint, session, agent, method, path, raw, status):
    reply = await agent.request(method, path, content=raw)
    assert reply.status_code == status
    assert reply.json()["error"]["message"]
    assert endpoint.asked == []
    assert session.bypassed


async def test_a_call_after_the_end_of_its_rollout_is_refused(endpoint, opened):
    runtime = opened.runtime(endpoint.url)
    attempt = AttemptContext(kit.spec(system=SYSTEM), 0, runtime)
    async with attempt.runtime.gateway.session(attempt) as session:
        agent = await opened.agent(session)
        attempt.end()
        reply = await agent.post("/chat/completions", json=ASK)
        assert (reply.status_code, reply.json()["error"]["message"]) == (403, "the attempt is over")
    assert (await agent.post("/chat/completions", json=ASK)).status_code == 403
    assert endpoint.asked == []


async def test_the_end_of_a_rollout_cancels_its_calls(endpoint, opened):
    started = asyncio.Event()

    async def hang(request, raw):
        started.set()
        await asyncio.sleep(30)

    endpoint.answer = hang
    runtime = opened.runtime(endpoint.url)
    attempt = AttemptContext(kit.spec(), 0, runtime)
    async with attempt.runtime.gateway.session(attempt) as session:
        call = asyncio.ensure_future((await opened.agent(session)).post("/chat/completions", json=ASK))
        await started.wait()
    await asyncio.wait_for(endpoint.gone.wait(), 5)
    with pytest.raises(httpx.HTTPError):
        await call
    assert runtime.ledger.read()[1].calls == 0


async def test_of_requests_that_come_at_once_the_first_has_left_before_the_last_is_taught(endpoint, opened, monkeypatch):
    session, left = await opened.session(opened.runtime(endpoint.url)), list[int]()
    taught, address = server.outgoing, httpx.URL(session.base_url)
    monkeypatch.setattr(server, "outgoing", lambda *a, **kw: (left.append(len(endpoint.asked)), taught(*a, **kw))[1])
    head = f"POST {address.path}/chat/completions HTTP/1.1\r\nHost: {address.netloc.decode()}\r\nContent-Length: "
    body = json.dumps(ASK)
    head += f"{len(body)}\r\nAuthorization: Bearer {session.api_key}\r\n\r\n"
    for _ in range(2):  # the first time opens connections to the endpoint
        clients = [await asyncio.open_connection(address.host, address.port) for _ in range(12)]
        for _, writer in clients:
            writer.write(f"{head}{body}".encode())
        for reader, writer in clients:
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            writer.close()
    assert left[-1] > left[12]


async def test_another_host_name_is_refused(session, agent):
    reply = await agent.post("/chat/completions", json=ASK, headers={"host": "rebound.example"})
    assert reply.status_code == 403
    local = session.base_url.replace("127.0.0.1", "localhost")
    assert (await agent.post(f"{local}/chat/completions", json=ASK)).status_code == 200


async def test_long_and_compressed_requests_are_read(endpoint, agent):
    long = {"model": "m", "messages": [{"role": "user", "content": "word " * 600_000}]}
    raw = gzip.compress(json.dumps(long).encode())
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    assert (await agent.post("/chat/completions", content=raw, headers=headers)).status_code == 200
    assert endpoint.asked[0].body["messages"][1:] == long["messages"]


async def test_a_client_that_waits_for_leave_to_send_its_body_gets_it(endpoint, session):
    address = httpx.URL(session.base_url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    for body in (json.dumps(ASK).encode(), b"{"):
        head = f"POST {address.path}/chat/completions HTTP/1.1\r\nHost: {address.netloc.decode()}\r\n"
        head += f"Authorization: Bearer {session.api_key}\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode())
        async with asyncio.timeout(5):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200" if body != b"{" else b"HTTP/1.1 400")
        await reader.readexactly(int(answer.lower().partition(b"content-length: ")[2].split()[0]))
    writer.close()
    await writer.wait_closed()
    assert "expect" not in {name.lower() for name in endpoint.asked[0].headers}


async def test_a_body_that_does_not_arrive_is_given_up(endpoint, session, monkeypatch):
    monkeypatch.setattr(server, "_BODY_S", 0.2)
    address = httpx.URL(session.base_url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    head = f"POST {address.path}/messages HTTP/1.1\r\nHost: {address.netloc.decode()}\r\n"
    writer.write(f"{head}Authorization: Bearer {session.api_key}\r\nContent-Length: 100\r\n\r\n{{".encode())
    async with asyncio.timeout(10):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 408")
    writer.close()
    assert endpoint.asked == []


@pytest.mark.parametrize(("coding", "raw", "status"), [
    ("gzip", b"{}", 400), ("gzip", gzip.compress(b"{}", mtime=0)[:-3], 400),
    ("gzip", gzip.compress(b"{}", mtime=0) * 2, 400), ("zstd", b"{}", 415), ("br", b"{}", 415),
    ("gzip, gzip", b"{}", 415),
])  # fmt: skip
async def test_a_request_that_cannot_be_decoded_is_refused(endpoint, agent, coding, raw, status):
    reply = await agent.post("/messages", content=raw, headers={"content-encoding": coding})
    assert (reply.status_code, reply.json()["error"]["type"]) == (status, "invalid_request_error")
    assert endpoint.asked == []


@pytest.mark.parametrize("compressed", [True, False])
async def test_a_request_above_the_limit_is_refused_before_it_is_in_memory(endpoint, agent, compressed):
    raw = gzip.compress(json.dumps({**ASK, "user": "a" * (60 << 20)}).encode(), 1) if compressed else b" " * (20 << 20)

    async def parts():
        for start in range(0, len(raw), 1 << 16):
            yield raw[start : start + (1 << 16)]

    tracemalloc.start()
    try:
        coding = {"content-encoding": "gzip"} if compressed else {}
        reply = await agent.post("/chat/completions", content=parts(), headers=coding)  # no length says how much comes
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (reply.status_code, reply.json()["error"]["type"]) == (413, "request_too_large")
    assert peak < 48 << 20
    assert endpoint.asked == []


@pytest.mark.parametrize(("line", "named"), [
    ("Authorization: Bearer sk-1234567890abcdef\x01", "the header Authorization"),
    ("x-api-key: sk-1234567890abcdef\x00", "the header x-api-key"),
    ("x-api-key: sk-1234567890abcdef" + "a" * 9_000, "a header"), ("sk-1234567890abcdef no header", "a header"),
])  # fmt: skip
async def test_of_a_malformed_request_only_the_header_is_named(endpoint, opened, caplog, line, named):
    address = httpx.URL((await opened.session(opened.runtime(endpoint.url))).base_url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    head = f"POST {address.path}/messages HTTP/1.1\r\nHost: {address.netloc.decode()}\r\n{line}\r\n\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(10):
        status, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b" 400 " in status
    error = json.loads(body)
    assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
    assert named in error["error"]["message"]
    assert "sk-123" not in body.decode() + caplog.text
    assert "Traceback" not in caplog.text


async def test_a_background_response_is_refused_before_it_is_paid_for(endpoint, runtime, agent):
    reply = await agent.post("/responses", json={"model": "m", "input": "hi", "background": True})
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")
    assert "background" in reply.json()["error"]["message"]
    assert (endpoint.asked, runtime.ledger.totals().calls) == ([], 0)
    endpoint.answer = lambda request, raw: response_body("seven")
    assert (await agent.post("/responses", json={"model": "m", "input": "hi", "background": False})).is_success


def refusing(endpoint, *, stream_options=0, system=0, words="System role not supported"):
    """Answer as an endpoint that refuses what it does not know with these statuses."""

    def answer(request, raw):
        body = json.loads(raw)
        if stream_options and "stream_options" in body:
            detail = [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]
            return web.json_response({"detail": detail}, status=stream_options)
        if system and any(message["role"] == "system" for message in body["messages"]):
            return web.json_response({"error": {"message": words}}, status=system)
        return stream(request, chat_events("seven", body)) if body.get("stream") else chat_body("seven")

    endpoint.answer = answer


@pytest.mark.parametrize(("refuses", "tries"), [
    ({"stream_options": 422}, 2), ({"system": 400}, 2),
    ({"system": 400, "words": "Developer instruction is not enabled for models/gemma-3"}, 2),
    ({"stream_options": 400, "system": 422}, 3),
])  # fmt: skip
async def test_what_the_gateway_added_and_the_endpoint_refuses_is_left_out_once_and_for_all(endpoint, opened, refuses, tries):
    refusing(endpoint, **refuses)
    runtime = opened.runtime(endpoint.url)
    for index, asked in enumerate((tries, tries + 1)):
        session = await opened.session(runtime, index)
        reply = await (await opened.agent(session)).post("/chat/completions", json={**ASK, "stream": True})
        assert reply.status_code == 200
        assert "[DONE]" in reply.text
        assert len(endpoint.asked) == asked
        [frame] = session.attempt.frames
        assert (frame.text, frame.added is not None) == ("seven", True)
    sent = endpoint.asked[-1].body
    assert ("stream_options" in sent) is ("stream_options" not in refuses)
    first = sent["messages"][0]
    assert LESSONS in first["content"]
    assert first["role"] == ("user" if "system" in refuses else "system")
    resumed = await opened.session(opened.runtime(endpoint.url))
    assert (await (await opened.agent(resumed)).post("/chat/completions", json={**ASK, "stream": True})).is_success
    assert len(endpoint.asked) == tries + 1, "the journal knows the call by what the agent asked"


async def test_a_refusal_of_what_the_agent_sent_itself_is_its_answer(endpoint, agent):
    refusing(endpoint, stream_options=400, system=400)
    own = {"stream": True, "stream_options": {"include_usage": True}}
    system = {"messages": [{"role": "system", "content": "S"}, *ASK["messages"]]}
    for body in ({**ASK, **own}, {**ASK, **system}):
        assert (await agent.post("/chat/completions", json=body)).status_code == 400
    assert len(endpoint.asked) == 2
    endpoint.answer = lambda request, raw: web.json_response({"error": {"message": "no such model"}}, status=400)
    assert (await agent.post("/chat/completions", json={**ASK, "stream": True})).status_code == 400
    assert len(endpoint.asked) == 3


async def test_a_call_without_tools_beside_an_agents_own_gets_no_lessons(endpoint, agent):
    tools = {"tools": [{"type": "function", "function": {"name": "add"}}]}
    result = {"role": "tool", "tool_call_id": "c", "content": "7"}
    bodies = ({**ASK, **tools}, {**ASK, "max_tokens": 20}, {**ASK, "messages": [*ASK["messages"], result]})
    for body in bodies:
        await agent.post("/chat/completions", json=body)
    assert ["<lessons>" in str(asked.body) for asked in endpoint.asked] == [True, False, True]


async def test_what_is_for_others_on_the_way_is_not_for_the_endpoint(endpoint, agent):
    hop = ("proxy-authorization", "proxy-connection", "te", "x-of-this-hop", "keep-alive")
    keys = ("x-goog-api-key", "helicone-auth", "cf-aig-authorization", "x-amz-security-token", "x-auth-token")
    here = ("x-forwarded-for", "x-forwarded-host", "forwarded", "x-real-ip", "via")
    meant = ("idempotency-key", "openai-organization", "x-stainless-retry-count", "session-id")
    sent = {**dict.fromkeys((*hop, *keys, *here, *meant), "x"), "connection": "keep-alive, X-Of-This-Hop"}
    headers = {"x-of-their-hop": "y", "proxy-authenticate": "y", "connection": "x-of-their-hop"}
    endpoint.answer = lambda request, raw: web.Response(body=b"{}", headers={**headers, "x-echo": f"Bearer {KEY}"})
    for method, path in (("POST", "/chat/completions"), ("GET", "/models")):
        reply = await agent.request(method, path, headers=sent, json=ASK if method == "POST" else None)
        arrived = {name.lower() for name in endpoint.asked[-1].headers}
        assert arrived.issuperset(meant)
        assert arrived.isdisjoint((*hop, *keys, *here))
        assert reply.headers["x-echo"] == "Bearer ***"
        assert {"x-of-their-hop", "proxy-authenticate"}.isdisjoint(reply.headers)


@pytest.mark.parametrize("coding", ["gzip", "GZIP", "gzip, identity", ""])
async def test_a_reply_in_an_encoding_that_is_known_is_readable(endpoint, session, agent, coding):
    raw = json.dumps(chat_body("seven")).encode()
    raw = gzip.compress(raw) if coding else raw
    headers = {"content-encoding": coding, "content-type": "application/json"}
    endpoint.answer = lambda request, _: web.Response(body=raw, headers=headers)
    reply = await agent.post("/chat/completions", json=ASK)
    assert reply.json() == chat_body("seven")
    assert session.attempt.frames[0].text == "seven"


async def test_embeddings_are_measured_and_get_no_lessons(endpoint, session, agent):
    usage = {"prompt_tokens": 8, "total_tokens": 8}
    endpoint.answer = lambda request, raw: {"object": "list", "model": "e", "data": [{"embedding": [0.5]}], "usage": usage}
    await agent.post("/embeddings", json={"model": "e", "input": "words"})
    assert endpoint.asked[0].body == {"model": "e", "input": "words"}
    assert session.attempt.usage == Usage(1, 8, 0, None)


@pytest.mark.parametrize("key", ["Café".encode(), b"Caf\xe9"])
async def test_what_is_not_ascii_is_no_key(agent, key):
    assert (await agent.post("/messages", json=ASK, headers={"authorization": key})).status_code == 403


async def test_a_reply_in_an_encoding_that_was_not_asked_for_is_refused_and_an_error_keeps_its_status(endpoint, runtime, agent):
    headers = {"content-encoding": "gzip, br", "retry-after": "7"}
    endpoint.answer = lambda request, _: web.Response(body=b"\x8b?", headers=headers)
    reply = await agent.post("/chat/completions", json=ASK)
    assert (reply.status_code, reply.headers["x-should-retry"]) == (502, "false")
    assert "encoded as gzip, br" in reply.json()["error"]["message"]
    assert runtime.ledger.totals().lost_calls == 1
    assert (await agent.get("/models")).status_code == 502
    endpoint.answer = lambda request, _: web.Response(body=b"\x8b?", status=429, headers=headers)
    reply = await agent.post("/responses", json=ASK)
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "7")
    assert reply.text == "the reply is encoded as gzip, br, which was not asked for"


@pytest.mark.parametrize("encodings", [1, 2])
@pytest.mark.parametrize("path", ["/chat/completions", "/models"])
async def test_a_reply_that_unfolds_to_more_than_the_limit_is_refused_before_it_is_in_memory(
    endpoint, agent, path, encodings, monkeypatch
):
    for module in (server, call):
        monkeypatch.setattr(module, "MAX_BODY", 4 << 20)
    raw = gzip.compress(b" " * (64 << 20), 1)
    raw = gzip.compress(raw) if encodings > 1 else raw
    endpoint.answer = lambda request, _: web.Response(body=raw, headers={"content-encoding": ", ".join(["gzip"] * encodings)})
    tracemalloc.start()
    try:
        reply = await agent.request("GET" if path == "/models" else "POST", path, json=ASK)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (reply.status_code, peak < 16 << 20) == (502, True)


ODD: tuple[Any, ...] = (None, 0, "x", [], [0], [[]], {}, {"x": []}, [{"type": []}], [{"index": {}, "type": {}}])
REPLIED = ("choices", "usage", "error", "model", "id", "status", "output", "content", "type", "stop_reason", "data")
ASKED = ("model", "messages", "input", "n", "tools", "stream", "stream_options", "system", "instructions", "max_tokens")
WHOLE = {"/responses": response_body("7"), "/messages": message_body("7")}


@pytest.mark.parametrize("path", ["/chat/completions", "/responses", "/messages", "/embeddings"])
async def test_what_no_client_and_no_endpoint_should_send_passes_unchanged(endpoint, session, agent, path):
    asked = [{**ASK, name: odd} for name in ASKED for odd in ODD]
    replied = [{**WHOLE.get(path, chat_body("7")), name: odd} for name in REPLIED for odd in ODD]
    for body, answer in zip(cycle(asked), replied):
        endpoint.answer = lambda request, raw, answer=answer: answer
        reply = await agent.post(path, json=body)
        assert (reply.status_code, reply.json()) == (200, answer)
    assert session.attempt.stopped_by is None
