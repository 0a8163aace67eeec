"""Limit the load of one server: sizes of bodies and batches, concurrent gradings, waiting requests.

Bytes of bodies count from their arrival until their request is answered; an announced length costs none.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tfgrpo.pipelines.server.replies import bad_body

M = TypeVar("M", bound=BaseModel)

MEBIBYTE: Final = 2**20
RETRY_AFTER_S: Final = 1
"""Seconds in ``Retry-After``."""
_JSON: Final = re.compile(r"application/(.*\+)?json")


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

    async def received(self, slot: QueueSlot, size: int, limit: asyncio.Timeout) -> None:
        """Count bytes that have arrived, and wait until more may be read; the client's time limit is extended by the wait."""
        slot.size += size
        self._bytes += size
        while self._full(slot):
            loop, until = asyncio.get_running_loop(), limit.when() or 0.0
            started = loop.time()
            limit.reschedule(None)
            await self._changed.wait()
            limit.reschedule(until + loop.time() - started)

    def _full(self, slot: QueueSlot) -> bool:
        """Return whether reading this body must wait.

        When only incomplete bodies are in memory, the first of them continues: otherwise all would wait for each other.
        """
        if self._bytes <= self._limits.max_held:
            return False
        first = next(iter(self._receiving), None) is slot
        return not first or self._bytes > sum(each.size for each in self._receiving)

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
        self._changed.set()  # for those who wait now; later ones wait for the next change
        self._changed = asyncio.Event()


@dataclass(eq=False, slots=True)
class QueueSlot:
    """The slot of one request."""

    queue: GradeQueue
    size: int = 0
    """Bytes of its body that have arrived."""
    active: bool = False
    """Whether it is being graded."""


def bounded_endpoint(
    model: type[M],
    handle: Callable[[M], Awaitable[Response]],
    max_body: int,
    within_s: float,
    queue: GradeQueue | None = None,
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that reads a body within limits of size and time, and with a ``queue`` in its turn."""
    parsing = asyncio.Lock()

    async def endpoint(request: Request) -> Response:
        try:
            async with nullcontext() if queue is None else queue.slot() as slot:
                raw = await _body(request, max_body, within_s, slot)
                async with parsing:  # other tasks may run between the parsing of large bodies
                    await asyncio.sleep(0)
                return await handle(_validated(model, raw, request.headers.get("content-type", "")))
        except asyncio.CancelledError:  # the server ends, and the client still waits for an answer
            raise HTTPException(503, "the server is being stopped; come again") from None
        except ClientDisconnect:
            raise HTTPException(400, "the body did not arrive") from None

    return endpoint


async def _body(request: Request, max_body: int, within_s: float, slot: QueueSlot | None) -> bytes:
    """Return the whole body, when it is its turn. Raise ``HTTPException``: 413 if too large, 408 if late."""
    too_large = HTTPException(413, f"the body is larger than {max_body} bytes")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > max_body:  # Python refuses to convert more than 4,300 digits
        raise too_large
    read = bytearray()
    try:
        async with asyncio.timeout(within_s) as limit:
            async for chunk in request.stream():
                read += chunk
                if len(read) > max_body:
                    raise too_large
                if slot is not None:
                    await slot.queue.received(slot, len(chunk), limit)
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {within_s:g} seconds") from None
    if slot is not None:
        await slot.queue.enter(slot)
    return bytes(read)


def _validated(model: type[M], raw: bytes, content_type: str) -> M:
    """Read a body. Raise ``HTTPException`` 422 with the problems that FastAPI would name; only JSON is parsed."""
    if not raw:
        raise bad_body({"type": "missing", "loc": (), "msg": "Field required", "input": None})
    kind = content_type.partition(";")[0].strip().lower()
    try:
        value = json.loads(raw) if _JSON.fullmatch(kind) else raw
        return model.model_validate(value, from_attributes=True)
    except ValidationError as error:
        raise bad_body(*error.errors(include_url=False)) from None
    except (ValueError, RecursionError) as error:  # also bytes that are no text, and more digits than Python converts
        position = getattr(error, "pos", 0)
        raise bad_body({"type": "json_invalid", "loc": (position,), "msg": "JSON decode error", "input": {}}) from None
