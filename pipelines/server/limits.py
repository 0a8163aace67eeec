"""Limit the load of one server: sizes of bodies and batches, concurrent gradings, waiting requests.

Bytes of bodies count from their arrival until their request is answered; an announced length costs none. FastAPI reads a
body through the request that its route passes on; the routes here pass on one with limits of size and time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

MEBIBYTE: Final = 2**20
RETRY_AFTER_S: Final = 1
"""Seconds in ``Retry-After``."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the server."""

    max_batch: int = 16_384
    """Most samples, and most items to grade, of one request."""
    max_body: int = 32 * MEBIBYTE
    """Most bytes of a request's body."""
    concurrency: int = 256
    """Requests graded concurrently: many, so that requests for a slow grader do not delay others."""
    max_held: int = 512 * MEBIBYTE
    """Bytes of all bodies in memory; beyond it reading waits. A single body is always read completely."""
    queue: int = 4096
    """Most waiting requests; further ones are answered with 503."""
    body_s: float = 30.0
    """Most seconds for a body to arrive."""
    max_lost_share: float = 1.0
    """Share of a request's items that failing graders may leave ungraded; beyond it the answer is 503."""


class GradeQueue:
    """Limits the bodies in memory, and grades requests in order of arrival, a limited number at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._turns = asyncio.Semaphore(limits.concurrency)  # first in, first out
        self._waiting = 0
        self._active = 0
        self._bytes = 0
        self._receiving: dict[QueueSlot, None] = {}
        self._changed = asyncio.Event()

    @property
    def present(self) -> int:
        """Requests that wait or are being graded."""
        return self._active + self._waiting

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[QueueSlot]:
        """Yield the slot of one request, whose body is about to arrive."""
        slot = QueueSlot(self)
        self._receiving[slot] = None
        try:
            yield slot
        finally:
            self._receiving.pop(slot, None)
            self._bytes -= slot.size
            if slot.active:
                self._active -= 1
                self._turns.release()
            self._notify()

    def full(self, slot: QueueSlot) -> bool:
        """Return whether reading this body must wait.

        When only incomplete bodies are in memory, the first of them continues: otherwise all would wait for each other.
        """
        if self._bytes <= self._limits.max_held:
            return False
        first = next(iter(self._receiving), None) is slot
        return not first or self._bytes > sum(each.size for each in self._receiving)

    async def changed(self) -> None:
        """Wait until a slot is released or its body is complete."""
        await self._changed.wait()

    def add(self, slot: QueueSlot, size: int) -> None:
        """Count bytes that have arrived."""
        slot.size += size
        self._bytes += size

    async def enter(self, slot: QueueSlot) -> None:
        """Wait for the turn of a complete body. Raise ``HTTPException`` 503 if too many wait."""
        self._receiving.pop(slot, None)
        self._notify()
        if self._waiting >= self._limits.queue and self._turns.locked():
            detail = f"{self.present} requests are waiting or being graded; come again"
            raise HTTPException(503, detail, {"Retry-After": str(RETRY_AFTER_S)})
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        slot.active = True
        self._active += 1

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class QueueSlot:
    """The slot of one request."""

    def __init__(self, queue: GradeQueue) -> None:
        self.queue = queue
        self.size = 0
        """Bytes of its body that have arrived."""
        self.active = False
        """Whether it is being graded."""


_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class _BoundedRequest(Request):
    """A request with limits on its body."""

    def __init__(
        self, request: Request, max_body: int, within_s: float, parse_lock: asyncio.Lock, slot: QueueSlot | None
    ) -> None:
        super().__init__(request.scope, request.receive)
        self._max_body, self._within_s, self._parse_lock, self._slot = max_body, within_s, parse_lock, slot

    async def body(self) -> bytes:
        """Return the whole body, when it is its turn. Raise ``HTTPException``: 413 if too large, 408 if late."""
        if not hasattr(self, "_body"):
            length = self.headers.get("content-length", "")
            if length.isdecimal() and int(length[:20]) > self._max_body:
                raise self._too_large()
            try:
                async with asyncio.timeout(self._within_s) as limit:
                    self._body = await self._read(limit)
            except TimeoutError:
                raise HTTPException(408, f"the body did not arrive within {self._within_s:g} seconds") from None
            if self._slot is not None:
                await self._slot.queue.enter(self._slot)
        return self._body

    async def json(self) -> Any:
        """Return the body as JSON. Raise ``JSONDecodeError`` for any fault of it, as FastAPI expects.

        The lock lets the event loop run other tasks between the parsing of large bodies.
        """
        raw = await self.body()
        async with self._parse_lock:
            await asyncio.sleep(0)
        try:
            return json.loads(raw)
        except json.JSONDecodeError:
            raise
        except UnicodeDecodeError as error:
            raise json.JSONDecodeError(f"no {error.encoding}", "", error.start) from None
        except RecursionError:
            raise json.JSONDecodeError("nested too deep", "", 0) from None
        except ValueError:  # the only one left: more digits than Python converts
            raise json.JSONDecodeError("a number with too many digits", "", 0) from None

    async def _read(self, limit: asyncio.Timeout) -> bytes:
        read = bytearray()
        async for chunk in self.stream():
            read += chunk
            if len(read) > self._max_body:
                raise self._too_large()
            if self._slot is not None:
                self._slot.queue.add(self._slot, len(chunk))
                await self._wait_for_memory(self._slot, limit)
        return bytes(read)

    async def _wait_for_memory(self, slot: QueueSlot, limit: asyncio.Timeout) -> None:
        """Wait until more may be read, and extend the client's time limit by the wait."""
        while slot.queue.full(slot):
            loop, until = asyncio.get_running_loop(), limit.when() or 0.0
            started = loop.time()
            limit.reschedule(None)
            await slot.queue.changed()
            limit.reschedule(until + loop.time() - started)

    def _too_large(self) -> HTTPException:
        return HTTPException(413, f"the body is larger than {self._max_body} bytes")


def bounded_route(max_body: int, within_s: float, queue: GradeQueue | None = None) -> type[APIRoute]:
    """Return a class of routes with bounded bodies, and with a ``queue`` also in their turn."""
    parse_lock = asyncio.Lock()

    class BoundedRoute(APIRoute):
        """A route with a limit on its bodies."""

        def get_route_handler(self) -> _Handler:
            handle = super().get_route_handler()

            async def bounded(request: Request) -> Response:
                try:
                    async with nullcontext() if queue is None else queue.slot() as slot:
                        return await handle(_BoundedRequest(request, max_body, within_s, parse_lock, slot))
                except asyncio.CancelledError:  # the server ends, and the client still waits for an answer
                    raise HTTPException(503, "the server is being stopped; come again") from None

            return bounded

    return BoundedRoute
