"""Faults break calls in the way they say, in process and over TCP, and a retry may succeed."""

from __future__ import annotations

import asyncio
import contextlib
import json

import httpx
import pytest

from tests.support.models.serving import running_server
from tests.support.models.simulated_calls import ask, in_process, request
from tfgrpo.pipelines.settings.model import FAULT_KINDS
from tfgrpo.tasks.models.simulated import SimulatedOptions, simulated_app
from tfgrpo.tasks.models.simulated.engine import choose_fault

TRANSPORTS = ("in process", "tcp")
GIVE_UP_S = {"hang": 0.3}
"""How long a call is waited for, where that is not long."""


@contextlib.asynccontextmanager
async def client_of(transport, **faults):
    if transport == "in process":
        async with in_process(faults=faults) as client:
            yield client
        return
    async with (
        running_server(SimulatedOptions(faults=faults)) as base_url,
        httpx.AsyncClient(base_url=base_url, trust_env=False) as client,
    ):
        yield client


async def outcome(client, body, give_up_s=20.0):
    """How a call ends, in a word."""
    try:
        async with asyncio.timeout(give_up_s):
            response = await client.post("/chat/completions", json=body)
    except TimeoutError:
        return "hang"
    except httpx.TransportError:
        return "reset"
    if response.status_code != 200:
        return {429: "rate_limit", 500: "server_error"}[response.status_code]
    try:
        choice = response.json()["choices"][0]
    except ValueError:
        return "bad_json"
    if not choice["message"]["content"]:
        return "empty"
    return "truncated" if choice["finish_reason"] == "length" else "fine"


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("kind", FAULT_KINDS)
async def test_each_fault_breaks_the_call_in_its_own_way(kind, transport):
    async with client_of(transport, **{kind: 1.0}) as client:
        assert await outcome(client, request(), GIVE_UP_S.get(kind, 20.0)) == kind


async def test_a_rate_limited_answer_has_retry_after():
    async with client_of("in process", rate_limit=1.0) as client:
        response = await client.post("/chat/completions", json=request())
    assert int(response.headers["retry-after"]) >= 1
    assert response.json()["error"]["type"] == "rate_limit_error"


async def test_a_truncated_answer_counts_its_own_tokens():
    async with client_of("in process", truncated=1.0) as client:
        answer = await ask(client, request())
    text = answer["choices"][0]["message"]["content"]
    assert answer["usage"]["completion_tokens"] == -(-len(text) // 4)


async def test_a_reset_breaks_the_connection_in_the_middle_of_the_answer():
    async with running_server(SimulatedOptions(faults={"reset": 1.0})) as base_url:
        url = httpx.URL(base_url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        body = httpx.Request("POST", f"{base_url}/chat/completions", json=request())
        head = "".join(f"{name}: {value}\r\n" for name, value in body.headers.items())
        writer.write(f"POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n".encode() + body.content)
        with pytest.raises(ConnectionResetError):
            await reader.read(-1)
        writer.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_faults_are_a_function_of_seed_request_and_count_and_a_retry_can_succeed(transport):
    shares = dict.fromkeys(("rate_limit", "server_error", "bad_json", "empty", "truncated"), 0.1)
    runs = []
    for _ in range(2):
        async with client_of(transport, **shares) as client:
            runs.append([[await outcome(client, request(seed=seed)) for _ in range(4)] for seed in range(12)])
    assert runs[0] == runs[1]
    assert any(tries[0] != "fine" and "fine" in tries for tries in runs[0])


def test_shares_are_kept():
    faults = dict.fromkeys(FAULT_KINDS, 0.1)
    drawn = [choose_fault(faults, 0, f"request {n}", 0) for n in range(4000)]
    for kind in FAULT_KINDS:
        assert 0.08 < drawn.count(kind) / 4000 < 0.12
    assert choose_fault({}, 0, "x", 0) is None


async def test_a_reset_in_process_is_half_an_answer_where_app_errors_are_suppressed():
    app = simulated_app(SimulatedOptions(faults={"reset": 1.0}))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://simulated/v1") as client:
        response = await client.post("/chat/completions", json=request())
    assert len(response.content) < int(response.headers["content-length"])


async def test_a_client_that_gives_up_frees_its_hanging_call():
    async with running_server(SimulatedOptions(faults={"hang": 1.0})) as base_url:
        before = len(asyncio.all_tasks())
        async with httpx.AsyncClient(base_url=base_url, trust_env=False) as client:
            assert await outcome(client, request(), GIVE_UP_S["hang"]) == "hang"
        for _ in range(500):
            if len(asyncio.all_tasks()) <= before:
                break
            await asyncio.sleep(0.01)
        assert len(asyncio.all_tasks()) <= before


async def test_a_closing_server_ends_a_hanging_call_without_an_answer():
    app = simulated_app(SimulatedOptions(faults={"hang": 1.0}))
    body, sent = json.dumps(request()).encode(), []
    messages = iter([{"type": "http.request", "body": body}, {"type": "http.request", "body": b""}])

    async def receive():
        for message in messages:
            return message
        return await asyncio.get_running_loop().create_future()

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [], "query_string": b""}
    call = asyncio.create_task(app(scope, receive, send))
    await asyncio.sleep(0.05)
    assert not call.done()
    app.state.closing.set()
    await asyncio.wait_for(call, 5)
    assert sent == []
