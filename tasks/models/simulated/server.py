"""Serve the simulated model on a port by uvicorn, with real connection resets and a shutdown that ends calls that hang."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tfgrpo.pipelines.server import listening
from tfgrpo.pipelines.server.listening import ServerOptions
from tfgrpo.tasks.models.simulated.app import ABORT, simulated_app
from tfgrpo.tasks.models.simulated.engine import SimulatedOptions

_SHUTDOWN_S = 2
_LINGER_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with a timeout of zero: closing the socket sends a reset."""


class _Protocol(H11Protocol):
    """Adds the function to the scope that resets the connection."""

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


def on_port(options: SimulatedOptions) -> tuple[ASGIApp, ServerOptions]:
    """Return the app, and how to serve it: calls that hang end before the server shuts down."""
    app = simulated_app(options)
    return app, ServerOptions(http=_Protocol, shutdown_s=_SHUTDOWN_S, on_shutdown=app.state.closing.set)


def run_server(options: SimulatedOptions, host: str, port: int, ready: Callable[[str], Any]) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP, then return. ``ready`` gets the base URL once requests are answered.

    Raise ``SettingsError`` when the address is not available. ``port`` 0 takes a free one.
    """
    app, manner = on_port(options)
    asyncio.run(listening.serve(app, host, port, lambda url: ready(f"{url}/v1"), manner))
