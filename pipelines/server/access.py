"""Decide who may call the server: clients with the bearer token, or without one, clients that address loopback."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tfgrpo.pipelines.server.replies import answer
from tfgrpo.pipelines.settings.addresses import is_loopback

_OPEN_PATHS: Final = frozenset({"/healthz"})
_HOST: Final = re.compile(r"\[([0-9a-f:.]+)\]|([^\[\]:@/\\?#]+)")
_PORT: Final = re.compile(r":[0-9]*$")
_REMEDY: Final = "ask for localhost, or start the server with --token-env"


def require_token(app: ASGIApp, token: str) -> ASGIApp:
    """Return the app behind a bearer token, except for ``/healthz``. Comparing takes constant time."""

    def refusal(path: str, headers: Headers) -> Response | None:
        kind, _, given = headers.get("authorization", "").partition(" ")
        # Headers are decoded as Latin-1: so the bytes are those that came. The token is ASCII.
        right = hmac.compare_digest(given.strip().encode("latin-1"), token.encode())
        if path in _OPEN_PATHS or (kind.lower() == "bearer" and right):
            return None
        return answer({"detail": "a valid bearer token is needed"}, 401, {"WWW-Authenticate": "Bearer"})

    return _guarded(app, refusal)


def require_local_host(app: ASGIApp) -> ASGIApp:
    """Return the app that answers 400 to requests for a host other than this machine's loopback.

    A web page in a browser here can reach a port of this machine under its own name, once that name resolves to
    loopback (DNS rebinding); the ``Host`` header shows it.
    """

    def refusal(_: str, headers: Headers) -> Response | None:
        header = headers.get("host", "").strip()
        if names_loopback(header):
            return None
        # HTTP/1.0 clients need not send the header; without it the server cannot know the host.
        reason = "the Host header names another machine" if header else "the request has no Host header"
        return answer({"detail": f"{reason}; {_REMEDY}"}, 400)

    return _guarded(app, refusal)


def names_loopback(header: str) -> bool:
    """Return whether a ``Host`` header names this machine."""
    host = _HOST.fullmatch(_PORT.sub("", header.strip().lower()))
    return host is not None and is_loopback(host[1] or host[2].removesuffix("."))


def _guarded(app: ASGIApp, refusal: Callable[[str, Headers], Response | None]) -> ASGIApp:
    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        refused = refusal(scope["path"], Headers(scope=scope)) if scope["type"] == "http" else None
        await (refused or app)(scope, receive, send)

    return guard
