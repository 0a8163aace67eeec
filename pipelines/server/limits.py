"""Read the bodies of requests within limits, and let a limited number at a time through to an app.

Bytes of bodies count from their arrival until their request is answered; an announced length costs none.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MEBIBYTE: Final = 2**20
RETRY_AFTER: Final = {"Retry-After": "1"}


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
    """Bytes of all bodies in memory; beyond it bodies are read one after another."""
    queue: int = 4096
    """Most waiting requests; further ones are answered with 503."""
    body_s: float = 30.0
    """Most seconds for a body to arrive."""
    max_lost_share: float = 1.0
    """Share of a request's items that failing graders may leave ungraded; beyond it the answer is 503."""


class BodyQueue:
    """Takes requests in order of arrival, a limited number at a time, and limits the bytes of their bodies in memory."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._turns = asyncio.Semaphore(limits.concurrency)  # first in, first out
        self._alone = asyncio.Lock()
        self._released = asyncio.Event()
        self.held = self._complete = 0
        """Bytes in memory, and those of bodies that have arrived completely."""
        self.present = 0
        """Requests that wait for their turn or have it."""

    @asynccontextmanager
    async def turn(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the whole body of a request in its turn. Raise ``HTTPException``: 408 if it is late, 503 if too many wait."""
        body, complete, is_alone, limits = bytearray(), 0, False, self._limits
        try:
            try:
                async with asyncio.timeout(limits.body_s) as limit, AsyncExitStack() as alone:
                    async for chunk in chunks:
                        body += chunk
                        self.held += len(chunk)
                        if self.held > limits.max_held and not is_alone:
                            await self._until_alone(alone, limit)
                            is_alone = True
            except TimeoutError:
                raise HTTPException(408, f"the body did not arrive within {limits.body_s:g} seconds") from None
            complete = len(body)
            self._complete += complete
            if self.present >= limits.concurrency + limits.queue:
                raise HTTPException(
                    503, f"{self.present} requests are waiting or being graded; come again", RETRY_AFTER
                )
            self.present += 1
            try:
                async with self._turns:
                    yield bytes(body)
            finally:
                self.present -= 1
        finally:
            self.held -= len(body)
            self._complete -= complete
            self._released.set()  # for the one that waits now; it waits for the next one again
            self._released = asyncio.Event()

    async def _until_alone(self, alone: AsyncExitStack, limit: asyncio.Timeout) -> None:
        """Wait until this body may be read to its end, while others that would exceed the limit wait.

        Only complete bodies are waited for: incomplete ones may never end. The client gets the time back.
        """
        loop, until = asyncio.get_running_loop(), limit.when() or 0.0
        began = loop.time()
        limit.reschedule(None)
        await alone.enter_async_context(self._alone)
        while self.held > self._limits.max_held and self._complete:
            await self._released.wait()
        limit.reschedule(until + loop.time() - began)


def limited(app: ASGIApp, limits: Limits, largest: Mapping[str, int]) -> ASGIApp:
    """Return an app whose POST requests to some paths have bodies of at most these bytes, each path with its own queue."""
    queues = {path: (BodyQueue(limits), most) for path, most in largest.items()}

    async def bounded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in queues or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        queue, most = queues[scope["path"]]
        try:
            async with queue.turn(_chunks(Request(scope, receive), most)) as body:

                async def whole() -> Message:
                    return {"type": "http.request", "body": body}

                await app(scope, whole, send)
        except HTTPException as error:
            await answer({"detail": error.detail}, error.status_code, error.headers)(scope, receive, send)
        except ClientDisconnect:
            await answer({"detail": "the body did not arrive"}, 400)(scope, receive, send)
        except asyncio.CancelledError:  # the server ends, and the client still waits for an answer
            await answer({"detail": "the server is being stopped; come again"}, 503)(scope, receive, send)

    return bounded


async def _chunks(request: Request, most: int) -> AsyncIterator[bytes]:
    """Yield a body as it arrives. Raise ``HTTPException`` 413 for one that is too large, or is announced to be."""
    too_large = HTTPException(413, f"the body is larger than {most} bytes")
    length, size = request.headers.get("content-length", ""), 0
    if length.isdecimal() and int(length[:20]) > most:  # Python refuses to convert more than 4,300 digits
        raise too_large
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise too_large
        yield chunk


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response of compact UTF-8 JSON. Half surrogate pairs are escaped; NaN and infinity become null."""
    try:
        body = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:  # of either
        finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
        body = json.dumps(finite, separators=(",", ":")).encode()
    return Response(body, status, headers, "application/json")
