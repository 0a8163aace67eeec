"""Read request bodies with limits of size and time, and parse them as JSON.

FastAPI reads a body through the request that its route passes on; the routes here pass on a bounded one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from tfgrpo.pipelines.server.limits import GradeQueue, QueueSlot

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
