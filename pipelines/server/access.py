"""Decide who may ask: whoever sends the bearer token, or without one, whoever calls this machine by a name of its own."""

from __future__ import annotations

import hmac
import re
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tfgrpo.pipelines.server.replies import answer
from tfgrpo.pipelines.settings.addresses import is_loopback

OPEN_PATHS: Final = frozenset({"/healthz"})
"""Answered without a token."""
_HOST: Final = re.compile(r"\[([0-9a-f:.]+)\]|([^\[\]:@/\\?#]+)")
_PORT: Final = re.compile(r":[0-9]*$")


class BearerToken:
    """An ASGI app in front of another that asks for the token. Comparing takes the same time wherever the texts differ."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or answer 401."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._admits(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        refused = answer({"detail": "a valid bearer token is needed"}, 401, {"WWW-Authenticate": "Bearer"})
        await refused(scope, receive, send)

    def _admits(self, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1"), self._token)


class LocalHosts:
    """An ASGI app in front of another that answers 400 to requests for a host that is not this machine's loopback.

    A page in a browser here can reach a port of this machine under a name of its own, once it has that name resolve to
    loopback (DNS rebinding); the ``Host`` header tells.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or refuse."""
        if scope["type"] != "http" or is_local(Headers(scope=scope).get("host", "")):
            await self._app(scope, receive, send)
            return
        told = "the Host header names another machine; ask for localhost, or start the server with --token-env"
        await answer({"detail": told}, 400)(scope, receive, send)


def is_local(header: str) -> bool:
    """Whether a ``Host`` header names loopback."""
    host = _HOST.fullmatch(_PORT.sub("", header.strip().lower()))
    return host is not None and is_loopback(host[1] or host[2].removesuffix("."))
