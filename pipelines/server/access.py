"""Decide who may call the server: clients with the bearer token, or without one, clients that address loopback."""

from __future__ import annotations

import hmac
import re
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tfgrpo.pipelines.server.replies import answer
from tfgrpo.pipelines.settings.addresses import is_loopback

_OPEN_PATHS: Final = frozenset({"/healthz"})
_HOST: Final = re.compile(r"\[([0-9a-f:.]+)\]|([^\[\]:@/\\?#]+)")
_PORT: Final = re.compile(r":[0-9]*$")
_REMEDY: Final = "ask for localhost, or start the server with --token-env"


class BearerToken:
    """ASGI middleware that requires the token, except for ``/healthz``. Comparing takes constant time."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or answer 401."""
        if scope["type"] != "http" or scope["path"] in _OPEN_PATHS or self._admits(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        refused = answer({"detail": "a valid bearer token is needed"}, 401, {"WWW-Authenticate": "Bearer"})
        await refused(scope, receive, send)

    def _admits(self, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1"), self._token)


class LocalHosts:
    """ASGI middleware that answers 400 to requests for a host other than this machine's loopback.

    A web page in a browser here can reach a port of this machine under its own name, once that name resolves to
    loopback (DNS rebinding); the ``Host`` header shows it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or answer 400."""
        header = Headers(scope=scope).get("host", "").strip().lower() if scope["type"] == "http" else "localhost"
        host = _HOST.fullmatch(_PORT.sub("", header))
        if host is not None and is_loopback(host[1] or host[2].removesuffix(".")):
            await self._app(scope, receive, send)
            return
        # HTTP/1.0 clients need not send the header; without it the server cannot know the host.
        reason = "the Host header names another machine" if header else "the request has no Host header"
        await answer({"detail": f"{reason}; {_REMEDY}"}, 400)(scope, receive, send)
