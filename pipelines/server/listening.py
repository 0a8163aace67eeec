"""How does an app get onto a port? By uvicorn, on a socket that is bound before anything is promised.

Signals and the end are the caller's: it stops the server, and the server lets go of its connections in bounded time.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from tfgrpo.stores.errors import SettingsError

_BACKLOG: Final = 2048
_KEEP_ALIVE_S: Final = 30
_PORT_REFUSED: Final = (errno.EADDRINUSE, errno.EACCES)


@dataclass(frozen=True, slots=True)
class Manner:
    """How a server treats its connections."""

    http: Any = "h11"
    """Protocol that uvicorn speaks, by name or as a class."""
    shutdown_s: int = 5
    """Most seconds that requests get to end once the server is told to."""
    let_go: Callable[[], None] | None = None
    """Called first when it shuts down, to free requests that would wait for ever."""


_PLAIN: Final = Manner()


class _Server(uvicorn.Server):
    """Leaves signals to its caller and says when it answers."""

    def __init__(self, config: uvicorn.Config, let_go: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._let_go = let_go
        self.ready = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._let_go is not None:
            self._let_go()
        await super().shutdown(sockets)


async def serve(app: ASGIApp, host: str, port: int, ready: Callable[[str], None], manner: Manner = _PLAIN) -> None:
    """Serve until SIGINT or SIGTERM, then return. ``ready`` is told the URL once requests are answered.

    ``SettingsError`` when the address cannot be had. ``port`` 0 takes a free one. Needs the main thread.
    """
    async with _started(app, host, port, manner) as (server, url, done):
        # Not the loop's own handlers: those would take the wakeup descriptor, which ``second_signal`` needs.
        before = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            ready(url)
            await done
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@asynccontextmanager
async def running(app: ASGIApp, host: str = "127.0.0.1", port: int = 0, manner: Manner = _PLAIN) -> AsyncIterator[str]:
    """A server on this event loop for the length of a block; gives its URL."""
    async with _started(app, host, port, manner) as (_, url, _done):
        yield url


@asynccontextmanager
async def _started(
    app: ASGIApp, host: str, port: int, manner: Manner
) -> AsyncIterator[tuple[_Server, str, asyncio.Task[None]]]:
    with bound_socket(host, port) as listening:
        config = uvicorn.Config(
            app,
            http=manner.http,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=manner.shutdown_s,
        )
        server = _Server(config, manner.let_go)
        done = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            await server.ready.wait()
            yield server, _url_of(listening), done
        finally:
            server.should_exit = True
            await done


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that has the address, not listening yet. ``SettingsError`` when it cannot be had; port 0 takes a free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "no such address"
        if getattr(error, "errno", None) in _PORT_REFUSED:
            raise SettingsError.one("--port", f"{port} ({reason})", f"a free port of {host}") from error
        raise SettingsError.one("--host", f"{host} ({reason})", "an address this machine has") from error
    return bound


def _url_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
