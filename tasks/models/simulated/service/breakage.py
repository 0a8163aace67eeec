"""How does a connection break? Answers that never come, and answers that end in the middle.

A server that can reset connections puts a function under ``ABORT`` into the scope's extensions; without it, as in
process, the break is raised as the error that an HTTP client would see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import httpx
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

ABORT: Final = "tfgrpo.abort"
"""Extension of the ASGI scope: a function that resets the connection."""


def _abort_of(scope: Scope) -> Callable[[], None] | None:
    abort: Callable[[], None] | None = scope.get("extensions", {}).get(ABORT)
    return abort


async def _gone(receive: Receive) -> None:
    """Return when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass


class HangingResponse(Response):
    """No answer, until the client gives up or the server shuts down."""

    def __init__(self, closing: asyncio.Event) -> None:
        super().__init__()
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Wait."""
        waits = [asyncio.ensure_future(_gone(receive)), asyncio.ensure_future(self._closing.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            abort = _abort_of(scope)
            if abort is not None:
                abort()
                await waits[0]
        finally:
            for wait in waits:
                wait.cancel()


class ResettingResponse(Response):
    """Half an answer, and then a reset."""

    def __init__(self, raw: bytes, headers: Mapping[str, str]) -> None:
        super().__init__(raw, headers=headers, media_type="application/json")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Announce the whole, send half, break."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": bytes(self.body[: len(self.body) // 2]), "more_body": True})
        abort = _abort_of(scope)
        if abort is None:
            raise httpx.ReadError("SIMULATED reset of the connection")
        abort()
        await _gone(receive)
