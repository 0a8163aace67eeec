"""Read the bodies of requests within limits, and let a limited number at a time through to an app."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MEBIBYTE: Final = 2**20
RETRY_AFTER: Final = {"Retry-After": "1"}


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of the server."""

    max_batch: int = 16_384
    """Most samples, and most items to grade, of one request."""
    max_body: int = 32 * MEBIBYTE
    """Most bytes of a request's body."""
    concurrency: int = 256
    """Requests graded concurrently: many, so that requests for a slow grader do not delay others."""
    max_held: int = 512 * MEBIBYTE
    """Bytes of all bodies in memory; a request whose body would exceed them is answered with 503."""
    queue: int = 4096
    """Most waiting requests; further ones are answered with 503."""
    body_s: float = 30.0
    """Most seconds for a body to arrive."""
    refuse_lost: bool = False
    """Answer 503 to a request of whose items failing graders leave more than half ungraded."""


class BodyQueue:
    """Takes requests in order of arrival, a limited number at a time, and limits the bytes of their bodies in memory.

    Bytes count from their arrival until their request is answered; an announced length costs none.
    """

    def __init__(self, limits: ServerLimits, most: int) -> None:
        """``most``: bytes of one body."""
        self._limits, self._most = limits, most
        self._turns = asyncio.Semaphore(limits.concurrency)  # first in, first out
        self.held = 0
        """Bytes in memory."""
        self.present = 0
        """Requests that wait for their turn or have it."""

    @asynccontextmanager
    async def turn(self, request: Request) -> AsyncIterator[bytes]:
        """Yield the whole body of a request in its turn.

        Raise ``HTTPException``: 408 if it is late, 413 if it is too large or announced to be, 503 if too many wait.
        """
        body, limits = bytearray(), self._limits
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self._most:  # Python refuses to convert more than 4,300 digits
            raise self._too_large
        try:
            try:
                async with asyncio.timeout(limits.body_s):
                    async for chunk in request.stream():
                        body += chunk
                        self.held += len(chunk)
                        if len(body) > self._most:
                            raise self._too_large
                        if self.held > limits.max_held:
                            raise HTTPException(503, "other bodies take all memory; come again", RETRY_AFTER)
            except TimeoutError:
                raise HTTPException(408, f"the body did not arrive within {limits.body_s:g} seconds") from None
            if self.present >= limits.concurrency + limits.queue:
                waiting = f"{self.present} requests are waiting or being graded; come again"
                raise HTTPException(503, waiting, RETRY_AFTER)
            self.present += 1
            try:
                async with self._turns:
                    yield bytes(body)
            finally:
                self.present -= 1
        finally:
            self.held -= len(body)

    @property
    def _too_large(self) -> HTTPException:
        return HTTPException(413, f"the body is larger than {self._most} bytes")


def limited(app: ASGIApp, limits: ServerLimits, largest: Mapping[str, int]) -> ASGIApp:
    """Return an app whose POST requests to some paths have bodies of at most these bytes, each path with its own queue."""
    queues = {path: BodyQueue(limits, most) for path, most in largest.items()}

    async def bounded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in queues or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        try:
            async with queues[scope["path"]].turn(Request(scope, receive)) as body:

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


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response of compact UTF-8 JSON. Half surrogate pairs are escaped; NaN and infinity become null."""
    try:
        body = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:  # of either
        finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
        body = json.dumps(finite, separators=(",", ":")).encode()
    return Response(body, status, headers, "application/json")
