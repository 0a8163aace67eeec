"""HTTP server of the gateway in production: who may call, and the pages ``/meta`` and ``/healthz``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from aiohttp import web

from tfgrpo.pipelines.settings.addresses import names_loopback
from tfgrpo.tasks.gateway.call import GatewayRefusal
from tfgrpo.tasks.gateway.live.client import LiveClient
from tfgrpo.tasks.gateway.live.traffic import Traffic
from tfgrpo.tasks.gateway.server import Server, is_key_of, method_path
from tfgrpo.tasks.gateway.session import Caller
from tfgrpo.tasks.gateway.upstream import Upstream
from tfgrpo.tasks.models.chat import AdaptiveLimiter, ChatClient

_CLOSING_S: Final = 30.0


class _SteadyLimiter(AdaptiveLimiter):
    """Leaves the pace to the clients: what one of them is refused, with its own key, slows down no other."""

    def pushed_back(self, started: int) -> None:
        """Do nothing."""


class LiveServer(Server):
    """Serves clients in production.

    Without a token only clients that address loopback are served, and their own keys go to the endpoint. With one,
    clients send the token as their key, and the endpoint's own key goes there.
    """

    def __init__(
        self,
        client: ChatClient,
        traffic: Traffic,
        facts: Callable[[], Mapping[str, Any]],
        token: str | None,
        max_request_mb: int = 16,
    ) -> None:
        """``facts`` returns what ``/meta`` shows beside the counts."""
        super().__init__(Upstream(client, callers_keys=token is None), max_request_mb, _CLOSING_S)
        client.limiter = _SteadyLimiter(client.concurrency)
        self._scrub = client.endpoint.scrub
        self._traffic = traffic
        self._facts = facts
        self._token = token

    async def aclose(self) -> None:
        """Stop, and keep what waits to be kept."""
        await super().aclose()
        self._traffic.decide()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET" and request.path == "/healthz":
            return web.json_response({"status": "ok"})
        if request.method == "GET" and request.path == "/meta":
            self._check(request)
            return web.json_response({**self._facts(), **self._traffic.facts()})
        return await super()._answer(request)

    def _admitted(self, request: web.BaseRequest) -> tuple[Caller, str]:
        """Return the client and the method's path."""
        self._check(request)
        return LiveClient(self._traffic, request, self._scrub), method_path(request.path)

    def _check(self, request: web.BaseRequest) -> None:
        if self._token is not None:
            if not is_key_of(request, self._token):
                raise GatewayRefusal(401, "authentication_error", "the API key is not the gateway's token")
        elif not names_loopback(request.headers.get("host", "")):
            # A web page may reach loopback under its own name (DNS rebinding).
            raise GatewayRefusal(403, "permission_error", "the Host header names another machine; see --token-env")
