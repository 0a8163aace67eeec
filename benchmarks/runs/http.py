"""CPU per model call of the client, and wall time against the ideal, over real sockets.

The server runs in a process of its own and answers each request after a fixed latency. No bar of its own: these rows say
how much of a run's cost per call is the client's, and how much the journal's.

``python -m benchmarks.runs.http``
"""

from __future__ import annotations

import asyncio
import json
import math
import multiprocessing
import random
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.table import Row, table
from tfgrpo.stores.ledger.ledger import Ledger
from tfgrpo.stores.ledger.state import Budget, Price
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.runs.journal import CallKey, Journal
from tfgrpo.tasks.models.base import ChatModel, ChatRequest, Message
from tfgrpo.tasks.models.chat import ChatClient
from tfgrpo.tasks.models.endpoint import ApiKey, Endpoint
from tfgrpo.tasks.models.journaled import JournaledModel
from tfgrpo.tasks.models.retry import RetryPolicy
from tfgrpo.tasks.models.transport import open_transport

REPLY = json.dumps(
    {
        "id": "cmpl-1",
        "model": "bench",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "word " * 200}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 700, "completion_tokens": 200, "total_tokens": 900},
    }
).encode()
SYSTEM = "You solve one task at a time and state the answer on the last line. " * 40


class Load(NamedTuple):
    """How much is asked, and how fast the server could be at best."""

    calls: int
    in_flight: int
    latency_s: float

    @property
    def ideal_s(self) -> float:
        """Wall time if nothing but the server's latency took any."""
        return math.ceil(self.calls / self.in_flight) * self.latency_s


LOAD, ROUNDS = Load(calls=1500, in_flight=64, latency_s=0.2), 3


class Round(NamedTuple):
    """One measurement."""

    cpu_ms_per_call: float
    wall_over_ideal: float


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


def _serve(port_out: Connection, latency_s: float) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()

        def late(connection: KeepAlive, _body: bytes) -> None:
            loop.call_later(latency_s, connection.write, whole(REPLY))

        server = await loop.create_server(lambda: KeepAlive(late), "127.0.0.1", 0)
        port_out.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def _request(number: int) -> ChatRequest:
    messages = (Message("system", SYSTEM), Message("user", f"Task {number}: what is {number} + 1?"))
    return ChatRequest("bench", messages, temperature=0.7, max_tokens=1024, seed=number)


async def _measure(port: int, load: Load, journal: Journal | None) -> Round:
    client = ChatClient(
        Endpoint(f"http://127.0.0.1:{port}/v1", ApiKey("bench-key")),
        open_transport(concurrency=load.in_flight, trust_env=False),
        concurrency=load.in_flight,
        ledger=Ledger(Budget(max_tokens=10**12)),
        prices={"bench": Price(150, 600)},
        retry=RetryPolicy(),
        rng=random.Random(0),
    )
    model: ChatModel = client if journal is None else JournaledModel(client, journal)
    await asyncio.gather(*(_ask(model, -1 - number) for number in range(load.in_flight)))  # connections open
    started, busy = time.perf_counter(), time.process_time()
    await asyncio.gather(*(_ask(model, number) for number in range(load.calls)))
    wall, cpu = time.perf_counter() - started, time.process_time() - busy
    await client.aclose()
    return Round(cpu / load.calls * 1e3, wall / load.ideal_s)


async def _ask(model: ChatModel, number: int) -> None:
    await model.complete(_request(number), CallKey(GroupKey(1, "train", "group", 0, f"q{number}"), 0, 0, "rollout"))


def _rounds(port: int, load: Load, count: int, *, journalled: bool) -> list[Round]:
    if not journalled:
        return [asyncio.run(_measure(port, load, None)) for _ in range(count)]
    rounds = []
    with TemporaryDirectory() as folder:
        for number in range(count):
            with Journal(Path(folder) / f"{number}.jsonl") as journal:
                rounds.append(asyncio.run(_measure(port, load, journal)))
    return rounds


def measure(load: Load = LOAD, rounds: int = ROUNDS) -> list[Row]:
    """With and without the journal in front."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(theirs, load.latency_s), daemon=True)
    server.start()
    try:
        port = mine.recv()
        return [
            _row(name, load, _rounds(port, load, rounds, journalled=journalled))
            for name, journalled in (("client", False), ("client and journal", True))
        ]
    finally:
        server.terminate()
        server.join()


def _row(name: str, load: Load, rounds: list[Round]) -> Row:
    cpu = statistics.median(one.cpu_ms_per_call for one in rounds)
    wall = statistics.median(one.wall_over_ideal for one in rounds)
    note = f"{load.calls} calls, {load.in_flight} in flight; wall {wall:.2f} x the ideal"
    return Row(f"http: {name}, CPU per call", cpu, "ms", note=note)


def main() -> None:
    """Print the table."""
    print(table(measure()))


if __name__ == "__main__":
    main()
