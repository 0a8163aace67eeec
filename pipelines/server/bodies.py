"""How is a request's body read? Bounded in size and time, and as JSON whatever it holds; its shape is checked elsewhere.

FastAPI reads bodies through the request that its route hands over; the routes made here hand over one that is bounded.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class BoundedRequest(Request):
    """A request whose body has a limit."""

    def __init__(self, request: Request, max_body: int, within_s: float, pace: asyncio.Lock) -> None:
        super().__init__(request.scope, request.receive)
        self._max_body, self._within_s, self._pace = max_body, within_s, pace

    @property
    def announced(self) -> int:
        """Bytes that the body says it has; as many as it may have when it does not say."""
        length = self.headers.get("content-length", "")
        return int(length[:20]) if length.isdecimal() else self._max_body

    async def body(self) -> bytes:
        """The whole body. Raises ``HTTPException``: 413 beyond the limit, 408 when it does not come in time."""
        if not hasattr(self, "_body"):
            if self.announced > self._max_body:
                raise self._too_large()
            try:
                async with asyncio.timeout(self._within_s):
                    self._body = await self._read()
            except TimeoutError:
                raise HTTPException(408, f"the body did not arrive within {self._within_s:g} seconds") from None
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

    async def _read(self) -> bytes:
        read = bytearray()
        async for chunk in self.stream():
            read += chunk
            if len(read) > self._max_body:
                raise self._too_large()
        return bytes(read)

    def _too_large(self) -> HTTPException:
        return HTTPException(413, f"the body is larger than {self._max_body} bytes")


def bounded_route(
    max_body: int, within_s: float, turn: Callable[[int], AbstractAsyncContextManager[None]] | None = None
) -> type[APIRoute]:
    """The class of routes whose bodies are bounded, and read only within ``turn`` when there is one.

    ``turn`` is told how many bytes the body will take.
    """
    pace = asyncio.Lock()

    class BoundedRoute(APIRoute):
        """A route with a limit on its bodies."""

        def get_route_handler(self) -> _Handler:
            handle = super().get_route_handler()

            async def bounded(request: Request) -> Response:
                bound = BoundedRequest(request, max_body, within_s, pace)
                taken = nullcontext() if turn is None or bound.announced > max_body else turn(bound.announced)
                try:
                    async with taken:
                        return await handle(bound)
                except asyncio.CancelledError:  # by the end of the server; the client still waits for an answer
                    raise HTTPException(503, "the server is being stopped; come again") from None

            return bounded

    return BoundedRoute
