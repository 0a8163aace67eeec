"""TCP proxy of a Prefect server that can drop replies, stop answering or close."""

import contextlib
import re
import socket
import threading
from typing import Literal, Self
from urllib.parse import urlsplit

_CHUNK = 65_536
_FINAL = re.compile(rb'/set_state .*"type": ?"(COMPLETED|FAILED)"', re.DOTALL)


class PrefectProxy:
    """Forwards bytes, unless ``mode`` is set to a failure.

    ``silent``: accepts and never answers. ``gone``: refuses connections and has cut the open ones.
    ``losing``: the first reply to a request that reports a final state is dropped with its connection.
    """

    def __init__(self, api_url: str = "http://127.0.0.1:9/api") -> None:
        parts = urlsplit(api_url)
        self._server = (parts.hostname or "", parts.port or 0)
        self._mode: Literal["pass", "silent", "gone", "losing"] = "pass"
        self.lost = 0
        """Replies dropped."""
        self._open: set[socket.socket] = set()
        self._muted: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/api"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.become("gone")

    def become(self, mode: Literal["pass", "silent", "gone", "losing"]) -> None:
        """Change the mode, also for connections that are open."""
        self._mode = mode
        if mode == "gone":
            _cut(self._listener)
            for connection in list(self._open):
                _cut(connection)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.add(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            server = socket.create_connection(self._server) if self._mode != "silent" else None
            if server is not None:
                self._open.add(server)
                threading.Thread(target=self._answer, args=(server, client), daemon=True).start()
            request = b""
            while chunk := client.recv(_CHUNK):
                request = (request + chunk)[-_CHUNK:]
                if self._mode == "losing" and not self.lost and _FINAL.search(request):
                    self.lost += 1
                    self._muted.add(client)
                if self._mode != "silent" and server is not None:
                    server.sendall(chunk)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := server.recv(_CHUNK):
                if client in self._muted:
                    break
                if self._mode != "silent":
                    client.sendall(chunk)
        if self._mode != "silent":
            _cut(client)


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
