"""How is a request's body read? Bounded in size and time, and as JSON whatever it holds; its shape is checked elsewhere.

FastAPI reads bodies through the request that its route hands over; the routes made here hand over one that is bounded.
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

from tfgrpo.pipelines.server.limits import GradeTurns, Place

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class BoundedRequest(Request):
    """A request whose body has a limit."""

    def __init__(
        self, request: Request, max_body: int, within_s: float, pace: asyncio.Lock, place: Place | None
    ) -> None:
        super().__init__(request.scope, request.receive)
        self._max_body, self._within_s, self._pace, self._place = max_body, within_s, pace, place

    async def body(self) -> bytes:
        """The whole body, once it is its turn. Raises ``HTTPException``: 413 beyond the limit, 408 when it is late."""
        if not hasattr(self, "_body"):
            length = self.headers.get("content-length", "")
            if length.isdecimal() and int(length[:20]) > self._max_body:
                raise self._too_large()
            try:
                async with asyncio.timeout(self._within_s) as limit:
                    self._body = await self._read(limit)
            except TimeoutError:
                raise HTTPException(408, f"the body did not arrive within {self._within_s:g} seconds") from None
            if self._place is not None:
                await self._place.turns.enter(self._place)
        return self._body

    async def json(self) -> Any:
        """The body as JSON. Whatever is wrong with it is a ``JSONDecodeError``.

        Of many bodies that are there at once, one is read in a turn of the event loop, so that others come in between.
        """
        raw = await self.body()
        async with self._pace:
            await asyncio.sleep(0)
        try:
            return json.loads(raw)
        except json.JSONDecodeError:
            raise
        except UnicodeDecodeError as error:
            raise json.JSONDecodeError(f"no {error.encoding}", "", error.start) from None
        except RecursionError:
            raise json.JSONDecodeError("nested too deep", "", 0) from None
        except ValueError as error:  # more digits than Python turns into a number
            raise json.JSONDecodeError(str(error).split(";")[0], "", 0) from None

    async def _read(self, limit: asyncio.Timeout) -> bytes:
        read = bytearray()
        async for chunk in self.stream():
            read += chunk
            if len(read) > self._max_body:
                raise self._too_large()
            if self._place is not None:
                self._place.turns.add(self._place, len(chunk))
                await self._room(self._place, limit)
        return bytes(read)

    async def _room(self, place: Place, limit: asyncio.Timeout) -> None:
        """Wait until more may be read; that time is not the client's."""
        while place.turns.full(place):
            loop, until = asyncio.get_running_loop(), limit.when() or 0.0
            began = loop.time()
            limit.reschedule(None)
            await place.turns.change()
            limit.reschedule(until + loop.time() - began)

    def _too_large(self) -> HTTPException:
        return HTTPException(413, f"the body is larger than {self._max_body} bytes")


def bounded_route(max_body: int, within_s: float, turns: GradeTurns | None = None) -> type[APIRoute]:
    """The class of routes whose bodies are bounded, all together and in their turn when there are ``turns``."""
    pace = asyncio.Lock()

    class BoundedRoute(APIRoute):
        """A route with a limit on its bodies."""

        def get_route_handler(self) -> _Handler:
            handle = super().get_route_handler()

            async def bounded(request: Request) -> Response:
                try:
                    async with nullcontext() if turns is None else turns.place() as place:
                        return await handle(BoundedRequest(request, max_body, within_s, pace, place))
                except asyncio.CancelledError:  # by the end of the server; the client still waits for an answer
                    raise HTTPException(503, "the server is being stopped; come again") from None

            return bounded

    return BoundedRoute
