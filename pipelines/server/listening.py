"""Serve an app by uvicorn on a socket that is bound first. The server ends its connections in bounded time."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from tfgrpo.stores.errors import SettingsError

_BACKLOG: Final = 2048
_KEEP_ALIVE_S: Final = 30
# Seconds in which the headers of a connection's request have to come.
_HEADERS_S: Final = 20.0
_PORT_REFUSED: Final = (errno.EADDRINUSE, errno.EACCES)


class _Protocol(H11Protocol):
    """Closes a connection whose headers come too slowly, for which uvicorn waits without end."""

    _overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.trailing_data[0]:  # a part of the next request came with the last one
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._overdue is not None:
            self._overdue.cancel()

    def _watch(self) -> None:
        waits = repr(self.conn.their_state) == "IDLE"  # of h11, which is uvicorn's
        if waits and self._overdue is None:
            self._overdue = self.loop.call_later(_HEADERS_S, self.transport.close)
        elif not waits and self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None


class _Server(uvicorn.Server):
    """Takes the signals that it is given, without raising them again at the end, and sets ``ready`` when it answers."""

    def __init__(self, config: uvicorn.Config, signals: Sequence[signal.Signals], on_signal: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._signals, self._on_signal = signals, on_signal
        self.ready = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Not the loop's own handlers: those would take the wakeup descriptor, which counts signals (``flows``).
        before = {number: signal.signal(number, self.handle_exit) for number in self._signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._on_signal is not None:
            self._on_signal()
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


async def serve(
    app: ASGIApp, host: str, port: int, ready: Callable[[str], None], on_signal: Callable[[], None] | None = None
) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP; ``ready`` gets the URL once requests are answered. Needs the main thread.

    ``on_signal`` is called by the handler of such a signal. Raise ``SettingsError`` if the address is not available. ``port``
    0 takes a free one.
    """
    async with running(app, host, port, signals=ending_signals(), on_signal=on_signal) as (url, done):
        ready(url)
        await done


@asynccontextmanager
async def running(
    app: ASGIApp,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    shutdown_s: int = 5,
    signals: Sequence[signal.Signals] = (),
    on_signal: Callable[[], None] | None = None,
) -> AsyncIterator[tuple[str, asyncio.Task[None]]]:
    """Serve on this event loop for the length of a block; yield the URL, and the task that ends with the server.

    ``shutdown_s``: most seconds for requests to end at a shutdown.
    """
    with bound_socket(host, port) as listening:
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
            timeout_graceful_shutdown=shutdown_s,
        )
        server = _Server(config, signals, on_signal)
        done = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            await server.ready.wait()
            address, number = listening.getsockname()[:2]
            yield f"http://{f'[{address}]' if ':' in address else address}:{number}", done
        finally:
            server.should_exit = True
            await done


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end a server gracefully: that of a closed terminal too, unless it is ignored, as by ``nohup``."""
    hangup = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGINT, signal.SIGTERM, *hangup)


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address. Raise ``SettingsError`` if it is not available; port 0 takes a free one."""
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
