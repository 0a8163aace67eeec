"""How does the simulated model get onto a port? By uvicorn, with real resets and a shutdown that waits for nobody."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tfgrpo.pipelines.server import listening
from tfgrpo.pipelines.server.listening import Manner
from tfgrpo.tasks.models.simulated.service.app import simulated_app
from tfgrpo.tasks.models.simulated.service.breakage import ABORT
from tfgrpo.tasks.models.simulated.service.options import SimulatedOptions

_SHUTDOWN_S = 2
_LINGER_RESET = struct.pack("ii", 1, 0)
"""Socket option that makes closing a reset."""


class _Protocol(H11Protocol):
    """Lets the app reset the connection it is answering on."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        app = self.app

        def abort() -> None:
            if not transport.is_closing():
                connection = transport.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
                transport.abort()

        async def with_abort(scope: Scope, receive: Receive, send: Send) -> None:
            scope.setdefault("extensions", {})[ABORT] = abort
            await app(scope, receive, send)

        self.app = with_abort


def _on_port(options: SimulatedOptions) -> tuple[ASGIApp, Manner]:
    """The app, and a manner in which calls that hang are let go before the server shuts down."""
    app = simulated_app(options)
    return app, Manner(http=_Protocol, shutdown_s=_SHUTDOWN_S, let_go=app.state.closing.set)


async def serve(options: SimulatedOptions, host: str, port: int, ready: Callable[[str], Any] | None = None) -> None:
    """Serve until SIGINT or SIGTERM, then return. ``ready`` is told the base URL once requests are answered.

    ``SettingsError`` when the address cannot be had. ``port`` 0 takes a free one.
    """

    def told(url: str) -> None:
        if ready is not None:
            ready(f"{url}/v1")

    app, manner = _on_port(options)
    await listening.serve(app, host, port, told, manner)


def run_server(options: SimulatedOptions, host: str, port: int, ready: Callable[[str], Any] | None = None) -> None:
    """``serve`` for callers without an event loop."""
    asyncio.run(serve(options, host, port, ready))


@asynccontextmanager
async def running_server(options: SimulatedOptions, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """A server on this event loop for the length of a block; gives its base URL."""
    app, manner = _on_port(options)
    async with listening.running(app, host, port, manner) as url:
        yield f"{url}/v1"
