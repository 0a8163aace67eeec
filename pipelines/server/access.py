"""Who may ask? Whoever sends the bearer token, when there is one; what they may ask is not decided here."""

from __future__ import annotations

import hmac
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from pipelines.server.replies import answer

OPEN_PATHS: Final = frozenset({"/healthz"})
"""Answered without a token."""


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
