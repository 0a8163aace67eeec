"""A real HTTP server on its own port that is scripted call by call."""

import asyncio
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.models.chat_bench import Bench


def completion(text: str | None = "fine", **changes: Any) -> dict[str, Any]:
    """A complete, ordinary reply; ``changes`` replace top-level keys."""
    body = {
        "id": "cmpl-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }
    return {**body, **changes}


_ENDLESS = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class Act:
    """What the server does with one request."""

    status: int = 200
    body: bytes | dict[str, Any] = field(default_factory=completion)
    headers: dict[str, str] = field(default_factory=dict)
    ending: str = "whole"
    """``whole``; ``hang`` and ``trickle`` answer never or slowly; ``drop`` and ``torn`` hang up early; ``raw``: the body
    alone, without a head; ``endless``: a body that never ends."""


@dataclass
class Seen:
    """One request as received."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    def __init__(self) -> None:
        self.acts: list[Act] = []
        self.otherwise: Callable[[Seen], Act] = lambda seen: Act()
        self.seen: list[Seen] = []
        self.asked = asyncio.Event()
        self.connections = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.sent = 0
        """Bytes of endless bodies."""
        self.delay_s = 0.0
        self.root = ""
        self._tasks: set[asyncio.Task[None]] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while seen := await self._read(reader):
                self.seen.append(seen)
                self.asked.set()
                self.in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self.in_flight)
                try:
                    if not await self._answer(self.acts.pop(0) if self.acts else self.otherwise(seen), writer):
                        break
                finally:
                    self.in_flight -= 1
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> Seen | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        method, path, _ = first.split(" ")
        return Seen(method, path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))

    async def _answer(self, act: Act, writer: asyncio.StreamWriter) -> bool:
        """True when the connection stays open."""
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if act.ending == "drop":
            return False
        if act.ending == "hang":
            await asyncio.sleep(60)
        body = act.body if isinstance(act.body, bytes) else json.dumps(act.body).encode()
        if act.ending in ("raw", "endless"):
            writer.write(body if act.ending == "raw" else _ENDLESS)
            while act.ending == "endless":
                writer.write(b"100000\r\n" + b" " * (1 << 20) + b"\r\n")
                await writer.drain()
                self.sent += 1 << 20
            await writer.drain()
            return False
        headers = {"content-type": "application/json", "content-length": str(len(body)), **act.headers}
        lines = [f"HTTP/1.1 {act.status} X", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        if act.ending == "torn":
            writer.write(body[: len(body) // 2])
            await writer.drain()
            return False
        if act.ending == "trickle":
            for index in range(len(body)):
                writer.write(body[index : index + 1])
                await writer.drain()
                await asyncio.sleep(0.02)
        else:
            writer.write(body)
        await writer.drain()
        return True


@pytest.fixture
async def server():
    made = Server()
    listener = await asyncio.start_server(made.handle, "127.0.0.1", 0)
    made.root = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    yield made
    listener.close()
    await made.close()
    await listener.wait_closed()


@pytest.fixture
def act():
    return Act


@pytest.fixture
def closed_port():
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
async def bench(server):
    made: list[Bench] = []

    def make(root: str | None = None, **changes: Any) -> Bench:
        made.append(Bench(root or server.root, **changes))
        return made[-1]

    yield make
    for one in made:
        assert one.limiter._in_flight == 0
        assert one.ledger.read()[1].calls == 0
        await one.client.aclose()
