"""HTTP server of the gateway in production: who may call, and the pages next to the protocols."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection
from typing import Final

import httpx
from aiohttp import web

from tfgrpo.pipelines.settings.addresses import names_loopback
from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.errors import ModelReplyMalformed
from tfgrpo.stores.frozen_json import json_of, mapping_of
from tfgrpo.stores.ledger import Ledger
from tfgrpo.stores.numeric import is_number
from tfgrpo.tasks.gateway.call import GatewayRefusal
from tfgrpo.tasks.gateway.live.traffic import LiveClient, Traffic
from tfgrpo.tasks.gateway.server import Server, is_key_of, method_path
from tfgrpo.tasks.gateway.session import Caller
from tfgrpo.tasks.gateway.upstream import MAX_BODY, Upstream
from tfgrpo.tasks.models.chat import AdaptiveLimiter, ChatClient
from tfgrpo.tasks.models.endpoint import TRANSPORT_ERRORS, exchange

_CLOSING_S: Final = 30.0
_PROBE_S: Final = 5.0
"""Seconds that an endpoint has to answer whether it is there."""
_PROBED_S: Final = 5.0
"""Seconds for which its answer holds."""
_TASK: Final = re.compile(r"/t/([A-Za-z0-9][\w.-]*)(?=/)")


class _SteadyLimiter(AdaptiveLimiter):
    """Leaves the pace to the clients: what one of them is refused, with its own key, slows down no other."""

    def pushed_back(self, started: int) -> None:
        """Do nothing."""


class LiveServer(Server):
    """Serves clients in production.

    Without keys only clients that address loopback are served, and their own keys go to the endpoint. With some,
    clients send one of them as their key, and the endpoint's own key goes there.
    """

    def __init__(
        self,
        client: ChatClient,
        served: Callable[[str], Traffic | None],
        keys: Callable[[], Collection[str]] | None,
        now: Clock = utc_now,
    ) -> None:
        """``served`` returns a task by name, the one without its own path for "", and None for one that there is not."""
        super().__init__(Upstream(client, callers_keys=keys is None), _CLOSING_S)
        client.limiter = _SteadyLimiter(client.concurrency)
        self._client, self._served, self._keys, self._now = client, served, keys, now
        self._tasks: dict[str, Traffic] = {}
        self._day = now().date()
        self._probed = (-_PROBED_S, "")

    async def aclose(self) -> None:
        """Stop, and keep what waits to be kept."""
        await super().aclose()
        for task in self._tasks.values():
            task.decide()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        name, path = _placed(request.path)
        if request.method == "GET" and path in {"/healthz", "/readyz"}:
            return await self._state(path)
        if request.method == "GET" and path in {"/metrics", "/meta"}:
            self._check(request)
            task = self._task(name)
            if path == "/meta":
                return web.json_response(task.facts())
            samples = (sample for each in self._tasks.values() for sample in each.samples())
            return web.Response(text="".join(f"{sample}\n" for sample in samples))
        if request.method == "POST" and path == "/outcome":
            self._check(request)
            return _outcome(self._task(name), await self._read(request))
        return await super()._answer(request)

    def _admitted(self, request: web.BaseRequest) -> tuple[Caller, str]:
        self._check(request)
        if (today := self._now().date()) != self._day:  # caps are of a day
            self._day, self._client.ledger = today, Ledger(self._client.ledger.budget)
        name, path = _placed(request.path)
        return LiveClient(self._task(name), request, self._client.endpoint.scrub), method_path(path)

    async def _state(self, path: str) -> web.Response:
        found = {"endpoint": "", "library": ""}
        if path == "/readyz":
            found = {"endpoint": await self._endpoint_problem(), "library": self._task("").served().get("problem", "")}
        ready = not any(found.values())
        return web.json_response({"status": "ok" if ready else "not ready", **found}, status=200 if ready else 503)

    def _task(self, name: str) -> Traffic:
        if name not in self._tasks:
            if (found := self._served(name)) is None:
                raise GatewayRefusal(404, "not_found_error", "no lessons of a task of this name are in force")
            self._tasks[name] = found
        return self._tasks[name]

    async def _endpoint_problem(self) -> str:
        """Return why the endpoint cannot be reached; empty if it answers, which a refusal does, too. Asks seldom."""
        at, problem = self._probed
        if time.monotonic() - at >= _PROBED_S:
            client, problem = self._client, ""
            request = httpx.Request("GET", client.endpoint.url("/models"), headers=client.endpoint.headers())
            try:
                status = (await exchange(client.http, request, _PROBE_S, MAX_BODY)).status
                problem = f"status {status}" if status >= 500 else ""
            except (*TRANSPORT_ERRORS, ModelReplyMalformed) as error:
                problem = type(error).__name__
            self._probed = time.monotonic(), problem
        return problem

    def _check(self, request: web.BaseRequest) -> None:
        if self._keys is not None:
            if not any(is_key_of(request, key) for key in self._keys()):
                raise GatewayRefusal(401, "authentication_error", "the API key is none of the gateway's")
        elif not names_loopback(request.headers.get("host", "")):
            # A web page may reach loopback under its own name (DNS rebinding).
            raise GatewayRefusal(403, "permission_error", "the Host header names another machine; see --token-env")


def _placed(path: str) -> tuple[str, str]:
    match = _TASK.match(path)
    return ("", path) if match is None else (match[1], path[match.end() :])


def _outcome(traffic: Traffic, raw: bytes) -> web.Response:
    given = mapping_of(json_of(raw))
    conversation, score = given.get("conversation"), given.get("score")
    worth = float(score) if score is not None and is_number(score, allow_nan=False) else -1.0
    if not isinstance(conversation, str) or not 0 <= worth <= 1:
        accepted = '{"conversation": the id of x-tfgrpo-conversation, or its name, "score": 0 to 1}'
        raise GatewayRefusal(400, "invalid_request_error", f"an outcome is {accepted}")
    if (new := traffic.outcome(conversation, worth)) is None:
        raise GatewayRefusal(
            404, "not_found_error", "no such conversation; its id is in the header x-tfgrpo-conversation"
        )
    return web.json_response({"kept": new})
