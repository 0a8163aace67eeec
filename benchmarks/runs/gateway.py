"""What the gateway adds to a call of an agent: its CPU, and the latency that the agent sees, over real sockets.

Endpoint, gateway and agents run in a process each. The endpoint answers a fixed time after the request, whole or as a stream
of evenly spaced events. Added latency is the difference of a percentile through the gateway and straight to the endpoint.
A relay that copies bytes, in the same process with the same HTTP library, says what this machine needs for that at the time.

``python -m benchmarks gateway``
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import aiohttp
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from benchmarks.table import Row
from tests.support.agents import steps
from tests.support.agents.endpoint import SYSTEM
from tfgrpo.stores.ledger import Budget, Ledger, Price
from tfgrpo.tasks.models.chat import ChatClient
from tfgrpo.tasks.models.endpoint import ApiKey, Endpoint
from tfgrpo.tasks.models.retry import RetryPolicy
from tfgrpo.tasks.models.transport import open_transport
from tfgrpo.tasks.runtime.runtime import AttemptContext, Gateway

CONCURRENT, ROUNDS, CALLS = 64, 3, 6
"""Agents at once, measurements, and calls of each agent in one."""
LATENCY_S, EVENTS, SPACING_S = 0.2, 25, 0.04
BAR_CPU_MS, BAR_P99_MS = 3.0, 10.0
_USAGE = {"prompt_tokens": 700, "completion_tokens": 25, "total_tokens": 725}
_HEAD = {"id": "cmpl-1", "object": "chat.completion", "created": 1, "model": "bench"}
_WHOLE = json.dumps(
    {**_HEAD, "choices": [{"index": 0, "message": {"role": "assistant", "content": "word " * 200}, "finish_reason": "stop"}],
     "usage": _USAGE}
).encode()  # fmt: skip


class KeepAlive(asyncio.Protocol):
    """Hands over the body of every POST of a connection and writes answers; as little of HTTP as that takes."""

    def __init__(self, answer: Callable[[KeepAlive, bytes], None]) -> None:
        self._answer = answer
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        assert isinstance(transport, asyncio.WriteTransport)  # noqa: S101 - narrows the type
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Have a request answered once it is whole."""
        self._unread += data
        head, blank, rest = self._unread.partition(b"\r\n\r\n")
        if not blank:
            return
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        if len(rest) >= length:
            body, self._unread = rest[:length], rest[length:]
            self._answer(self, body)

    def write(self, data: bytes) -> None:
        """Send a part of an answer, if anybody is still there."""
        if not self._transport.is_closing():
            self._transport.write(data)


def whole(content: bytes) -> bytes:
    """Return the response with a JSON document."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    return head.encode() + content


class Load(NamedTuple):
    """Agents at once, and calls of each."""

    agents: int = CONCURRENT
    calls: int = CALLS


class Round(NamedTuple):
    """Seconds of every call: to its first byte and to its last."""

    first_s: list[float]
    last_s: list[float]


def _events() -> list[bytes]:
    chunk = {**_HEAD, "object": "chat.completion.chunk", "usage": None}
    deltas = [{"index": 0, "delta": {"content": f"word{number} "}, "finish_reason": None} for number in range(EVENTS - 3)]
    values = [{**chunk, "choices": [delta]} for delta in deltas]
    values.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    values.append({**chunk, "choices": [], "usage": _USAGE})
    return [*(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values), b"data: [DONE]\n\n"]


def _answer(connection: KeepAlive, body: bytes, events: Sequence[bytes]) -> None:
    loop = asyncio.get_running_loop()
    if b'"stream": true' not in body and b'"stream":true' not in body:
        loop.call_later(LATENCY_S, connection.write, whole(_WHOLE))
        return
    start = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = [b"%x\r\n%b\r\n" % (len(event), event) for event in events]
    now = loop.time()
    for number, chunk in enumerate([start + chunks[0], *chunks[1:-1], chunks[-1] + b"0\r\n\r\n"], 1):
        loop.call_at(now + SPACING_S * number, connection.write, chunk)


def _serve(pipe: Connection) -> None:
    async def run() -> None:
        answer = partial(_answer, events=_events())
        server = await asyncio.get_running_loop().create_server(lambda: KeepAlive(answer), "127.0.0.1", 0, backlog=512)
        pipe.send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        await server.serve_forever()

    asyncio.run(run())


def _agents(pipe: Connection) -> None:
    """Run rounds of agents: get addresses, keys, a load and whether to stream; send a ``Round``."""
    while (work := pipe.recv()) is not None:
        pipe.send(asyncio.run(_round(*work)))


async def _round(ways: list[tuple[str, str]], calls: int, stream: bool) -> Round:
    measured = Round([], [])
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(_agent(session, way, calls, stream, measured) for way in ways))
    return measured


async def _agent(session: aiohttp.ClientSession, way: tuple[str, str], calls: int, stream: bool, into: Round) -> None:
    url, key = way
    takes_s = EVENTS * SPACING_S if stream else LATENCY_S
    await asyncio.sleep(random.Random(key + url).uniform(0.0, takes_s))  # agents do not all call at the same time
    for number in range(-1, calls):
        task = [{"role": "system", "content": "You are helpful. " * 100}, {"role": "user", "content": f"{key}: {number}?"}]
        body = {"model": "bench", "messages": task, "stream": stream, "max_tokens": 1000}
        began = time.perf_counter()
        async with session.post(f"{url}/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}) as reply:
            await reply.content.readany()
            first = time.perf_counter()
            await reply.read()
        if number >= 0:  # the first opens the connection
            into.first_s.append(first - began)
            into.last_s.append(time.perf_counter() - began)


async def _through_the_gateway(url: str, agents: Connection, folder: Path, load: Load, stream: bool) -> tuple[Round, float]:
    """Return what the agents measured, and milliseconds of CPU per call in this process."""
    client = ChatClient(
        Endpoint(url, ApiKey("bench-key-0123456789")),
        open_transport(concurrency=load.agents, trust_env=False),
        concurrency=load.agents,
        ledger=Ledger(Budget(max_tokens=10**12)),
        prices={"bench": Price(150, 600)},
        retry=RetryPolicy(),
        rng=random.Random(0),
    )
    runtime = replace(steps.runtime(lambda *_: "unused", folder), gateway=Gateway(client))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.aclose)
        stack.push_async_callback(runtime.aclose)
        sessions = [
            await stack.enter_async_context(runtime.gateway.session(AttemptContext(steps.spec(system=SYSTEM), index, runtime)))
            for index in range(load.agents)
        ]
        measured = await _measured([(session.base_url, session.api_key) for session in sessions], agents, load, stream)
    runtime.threads.shutdown()
    return measured


async def _through_a_bare_relay(url: str, agents: Connection, load: Load, stream: bool) -> tuple[Round, float]:
    """As ``_through_the_gateway``, through a server that copies bytes."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def copy(request: web.BaseRequest) -> web.StreamResponse:
            async with client.post(f"{url}/chat/completions", data=await request.read()) as reply:
                response = web.StreamResponse(headers={"content-type": reply.content_type})
                await response.prepare(request)
                async for chunk in reply.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response

        async with RawTestServer(copy) as server:
            ways = [(str(server.make_url("/v1")), f"k{number}") for number in range(load.agents)]
            return await _measured(ways, agents, load, stream)


async def _measured(ways: list[tuple[str, str]], agents: Connection, load: Load, stream: bool) -> tuple[Round, float]:
    busy = time.process_time()
    agents.send((ways, load.calls, stream))
    measured: Round = await asyncio.to_thread(agents.recv)
    return measured, (time.process_time() - busy) / (load.agents * (load.calls + 1)) * 1e3


def measure(load: Load = Load(), rounds: int = ROUNDS) -> list[Row]:  # noqa: B008 - frozen
    """Whole replies and streams, straight and through the gateway."""
    context = multiprocessing.get_context("spawn")
    (url_in, url_out), (agents, their_end) = context.Pipe(), context.Pipe()
    processes = [
        context.Process(target=_serve, args=(url_out,), daemon=True),
        context.Process(target=_agents, args=(their_end,), daemon=True),
    ]
    for process in processes:
        process.start()
    gc.freeze()  # as the commands do: a look at all that the imports have made takes 60 ms
    their_end.close()  # so that the end of that process is noticed here
    try:
        url = url_in.recv()
        return [row for stream in (False, True) for row in _rows(url, agents, load, rounds, stream)]
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _rows(url: str, agents: Connection, load: Load, rounds: int, stream: bool) -> list[Row]:
    kind = "streams" if stream else "whole replies"
    cpu_ms, bare_ms, added_ms, first_ms, medians = [], [], [], [], []
    for _ in range(rounds):
        agents.send(([(url, f"k{number}") for number in range(load.agents)], load.calls, stream))
        straight: Round = agents.recv()
        with TemporaryDirectory() as folder:
            through, spent = asyncio.run(_through_the_gateway(url, agents, Path(folder), load, stream))
        cpu_ms.append(spent)
        bare_ms.append(asyncio.run(_through_a_bare_relay(url, agents, load, stream))[1])
        added_ms.append(_p99(through.last_s) - _p99(straight.last_s))
        first_ms.append(_p99(through.first_s) - _p99(straight.first_s))
        medians.append((statistics.median(through.last_s) - statistics.median(straight.last_s)) * 1e3)
    note = f"{load.agents} at once, {load.agents * load.calls} calls" + (f" of {EVENTS} events" if stream else "")
    middle = f"to the last byte; median {statistics.median(medians):.1f} ms; {note}"
    return [
        Row(f"gateway: {kind}, CPU per call", statistics.median(cpu_ms), "ms", BAR_CPU_MS, note),
        Row(f"gateway: {kind}, CPU of a bare relay", statistics.median(bare_ms), "ms", None, "copies bytes with aiohttp"),
        Row(f"gateway: {kind}, added latency, p99", statistics.median(added_ms), "ms", BAR_P99_MS, middle),
        Row(f"gateway: {kind}, added to the first byte, p99", statistics.median(first_ms), "ms", BAR_P99_MS),
    ]


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[98] * 1e3
