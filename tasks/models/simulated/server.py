"""How does the simulated model get onto a port? By uvicorn, with real resets and a shutdown that waits for nobody."""

from __future__ import annotations

import asyncio
import signal
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from stores.errors import SettingsError
from tasks.models.simulated.app import simulated_app
from tasks.models.simulated.breakage import ABORT
from tasks.models.simulated.options import SimulatedOptions

_SHUTDOWN_S = 2
_BACKLOG = 2048
_KEEP_ALIVE_S = 30
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


class _Server(uvicorn.Server):
    """Leaves signals to its caller, and lets go of calls that hang before it shuts down."""

    def __init__(self, config: uvicorn.Config, closing: asyncio.Event) -> None:
        super().__init__(config)
        self._closing = closing
        self.ready = asyncio.Event()
        """Set once requests are answered."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._closing.set()
        await super().shutdown(sockets)


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's delay off only on sockets whose protocol is given; each answer would wait 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise SettingsError.one(
            "--port", f"{host}:{port} ({error.strerror})", "an address this machine has and a free port"
        ) from error
    return bound


def base_url_of(bound: socket.socket) -> str:
    """The root that clients are given, ending in ``/v1``."""
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def _server(options: SimulatedOptions) -> _Server:
    app = simulated_app(options)
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )
    return _Server(config, app.state.closing)


async def serve(options: SimulatedOptions, host: str, port: int, ready: Callable[[str], Any] | None = None) -> None:
    """Serve until SIGINT or SIGTERM, then return. ``ready`` is told the base URL once requests are answered.

    ``SettingsError`` when the address cannot be had. ``port`` 0 takes a free one.
    """
    loop = asyncio.get_running_loop()
    async with _started(_server(options), host, port) as (server, base_url, done):
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, server.handle_exit, number, None)
        try:
            if ready is not None:
                ready(base_url)
            await done
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def run_server(options: SimulatedOptions, host: str, port: int, ready: Callable[[str], Any] | None = None) -> None:
    """``serve`` for callers without an event loop."""
    asyncio.run(serve(options, host, port, ready))


@asynccontextmanager
async def running_server(options: SimulatedOptions, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """A server on this event loop for the length of a block; gives its base URL."""
    async with _started(_server(options), host, port) as (_, base_url, _done):
        yield base_url


@asynccontextmanager
async def _started(server: _Server, host: str, port: int) -> AsyncIterator[tuple[_Server, str, asyncio.Task[None]]]:
    bound = _bound(host, port)
    done = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        await server.ready.wait()
        yield server, base_url_of(bound), done
    finally:
        server.should_exit = True
        await done
        bound.close()
