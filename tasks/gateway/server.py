"""HTTP server of the gateway: who may call, which protocol, and errors in its form."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from tfgrpo.stores.errors import ActorError, BudgetRefused, ModelReplyMalformed, ReplayMiss, StoreError, TfgrpoError
from tfgrpo.tasks.gateway.call import Call, GatewayRefusal, read_reply
from tfgrpo.tasks.gateway.chat import ChatDialect, EmbeddingsDialect
from tfgrpo.tasks.gateway.dialect import Dialect
from tfgrpo.tasks.gateway.messages import MessagesDialect
from tfgrpo.tasks.gateway.outgoing import outgoing
from tfgrpo.tasks.gateway.relay import ClientGone
from tfgrpo.tasks.gateway.responses import ResponsesDialect
from tfgrpo.tasks.gateway.session import Caller, Session
from tfgrpo.tasks.gateway.splice import Document
from tfgrpo.tasks.gateway.upstream import MAX_BODY, Upstream, keys_in, returned_headers, why_unreadable
from tfgrpo.tasks.models.base import ChatReply
from tfgrpo.tasks.models.transport import TRANSPORT_ERRORS, exchange

_DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.path: dialect for dialect in (ChatDialect(), ResponsesDialect(), MessagesDialect(), EmbeddingsDialect())
}
_ROLLOUT: Final = re.compile(r"/r/([\w-]+)(?=/|$)")
_METHOD: Final = re.compile(r"(?:/openai/deployments/[^/]+|/openai)?(?:/v1)*(/.*)?")
_MODELS: Final = re.compile(r"/models(?:/(?!\.{1,2}(?:/|$))[^/\\%?#]+)*/?")
"""Never the way to another method of the endpoint, which would be called with its key: ``/models/../files``."""
_COUNT: Final = "/messages/count_tokens"
_CLOSING_S: Final = 1.0
_HOST: Final = "127.0.0.1"


def read_answer(content_type: str, body: bytes) -> ChatReply | None:
    """Return what a journalled answer says, whichever protocol it is of; None for what cannot be read."""
    replies = (read_reply(dialect, content_type, body) for dialect in _DIALECTS.values())
    return next((reply for reply in replies if reply is not None), None)


class Server(ABC):
    """The server, on the running event loop."""

    def __init__(self, upstream: Upstream | None, closing_s: float = _CLOSING_S) -> None:
        """``closing_s``: seconds that calls in flight have to end when it closes."""
        self._upstream = upstream
        # A client that goes away cancels its handler, and with it the call at the endpoint. Idle connections are closed
        # long before the library's hour.
        server = web.Server(
            self._handle, request_factory=_request, handler_cancellation=True, access_log=None, keepalive_timeout=75.0
        )
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=closing_s)

    async def start(self, listening: socket.socket) -> str:
        """Listen on a bound socket; return the address."""
        await self._runner.setup()
        await web.SockSite(self._runner, listening, backlog=512).start()
        host, port = listening.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def aclose(self) -> None:
        """Stop listening, and end what is in flight."""
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except ClientGone:
            return web.Response()
        except GatewayRefusal as error:
            refusal = error
        except BudgetRefused as error:
            refusal = GatewayRefusal(402, "billing_error", str(error))
        except ActorError as error:
            refusal = GatewayRefusal(403, "permission_error", str(error))
        except TfgrpoError as error:
            refusal = GatewayRefusal(500, "api_error", f"{type(error).__name__}: {error}")
        if request.writer.output_size and request.transport is not None:
            # A stream that broke off: without its last chunk the client knows.
            request.transport.close()
        return _error(_DIALECTS["/messages" if "/messages" in request.path else "/chat/completions"], refusal)

    @abstractmethod
    def _admitted(self, request: web.BaseRequest) -> tuple[Caller, str]:
        """Return who calls, and the method's path. Raises ``GatewayRefusal``."""

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        session, path = self._admitted(request)
        session.running.add(request.task)
        try:
            if request.method == "POST" and (path in _DIALECTS or path == _COUNT):
                return await self._post(session, request, path)
            if request.method == "GET" and _MODELS.fullmatch(path):
                return await self._pass(request, path, None)
        finally:
            session.running.discard(request.task)
        if path in _DIALECTS and request.headers.get("upgrade", "").lower() == "websocket":
            # The one status at which Codex calls over HTTP at once; at others it tries again for seconds.
            raise GatewayRefusal(426, "invalid_request_error", f"the gateway has no WebSocket; it has POST {path}")
        accepted = f"POST {', '.join(_DIALECTS)} and {_COUNT}, and GET /models"
        raise GatewayRefusal(404, "not_found_error", f"the gateway has no {request.method} {path}; it has {accepted}")

    async def _post(self, session: Caller, request: web.BaseRequest, path: str) -> web.StreamResponse:
        # Sent with curl's long requests. The library answers it for an app, not for a server alone.
        if request.headers.get("expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # no part of an answer
        try:
            raw = await request.read()
        except web.HTTPRequestEntityTooLarge:
            text = f"the request has more than {MAX_BODY} bytes"
            raise GatewayRefusal(413, "request_too_large", text) from None
        except web.RequestPayloadError as error:
            text = f"the request cannot be decoded: {' '.join(str(error).split())}"
            raise GatewayRefusal(400, "invalid_request_error", text) from None
        dialect = _DIALECTS[path.removesuffix("/count_tokens")]
        lessons = request.headers.get("x-tfgrpo-lessons", "").lower() != "off"
        try:
            document = Document(raw)
        except ValueError as error:
            raise GatewayRefusal(400, "invalid_request_error", f"the request is not usable: {error}") from None
        out = outgoing(dialect, document, session.additions_for(dialect, document.value), lessons=lessons)
        if path == _COUNT:
            return await self._pass(request, path, out.raw)
        try:
            return await Call(session, request, out, self._upstream).respond()
        except (BudgetRefused, ReplayMiss, StoreError) as error:
            session.stop(error)
            raise

    async def _pass(self, request: web.BaseRequest, path: str, body: bytes | None) -> web.StreamResponse:
        """Pass on what is free of charge; it is not journalled."""
        if self._upstream is None:
            raise GatewayRefusal(503, "api_error", "a replay calls no endpoint")
        client = self._upstream.client
        try:
            forwarded = self._upstream.forwarded(request, path, body)
            received = await exchange(client.http, forwarded, client.endpoint.timeout_s, MAX_BODY)
            if unreadable := why_unreadable(received.headers):
                raise ModelReplyMalformed(unreadable)
        except (*TRANSPORT_ERRORS, ModelReplyMalformed) as error:
            text = f"no answer from {client.endpoint.display_url}: {type(error).__name__}"
            raise GatewayRefusal(502, "api_error", text, retry=True) from None
        content = client.endpoint.scrub(received.content)
        return web.Response(status=received.status, body=content, headers=returned_headers(received.headers))


class RolloutServer(Server):
    """Serves the rollouts of a run, each at an address of its own, on a free port of the loopback interface."""

    def __init__(self, sessions: Mapping[str, Session], upstream: Upstream | None) -> None:
        """``sessions``: those that are open, by the token in their path."""
        super().__init__(upstream)
        self._sessions = sessions
        self._hosts: frozenset[str] = frozenset()

    async def open(self) -> str:
        """Listen; return the address."""
        listening = socket.create_server((_HOST, 0), backlog=512)
        port = listening.getsockname()[1]
        self._hosts = frozenset({f"{_HOST}:{port}", f"localhost:{port}"})
        return await self.start(listening)

    def _admitted(self, request: web.BaseRequest) -> tuple[Caller, str]:
        """Return the session that path and key belong to, and the method's path."""
        match = _ROLLOUT.match(request.path)
        session = self._sessions.get(match[1]) if match is not None else None
        if match is None or session is None or request.host not in self._hosts:
            raise GatewayRefusal(403, "permission_error", "no rollout in progress has this address")
        if not is_key_of(request, session.api_key):
            raise GatewayRefusal(403, "permission_error", "the API key is not the one of this rollout's address")
        return session, method_path(request.path[match.end() :])


def method_path(path: str) -> str:
    """Return the path of a method without the prefixes of client libraries."""
    match = _METHOD.fullmatch(path)
    return (match[1] if match is not None else None) or "/"


def is_key_of(request: web.BaseRequest, key: str) -> bool:
    """Return whether a client sent this key. Comparing takes constant time."""
    return any(hmac.compare_digest(sent.encode("utf-8", "replace"), key.encode()) for sent in keys_in(request))


def _error(dialect: Dialect, error: GatewayRefusal) -> web.Response:
    body = json.dumps(dialect.error(error.kind, str(error)), ensure_ascii=False).encode("utf-8", "replace")
    headers = {"content-type": "application/json", "x-should-retry": "true" if error.retry else "false"}
    return web.Response(status=error.status, body=body, headers=headers)


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[None]) -> web.BaseRequest:
    """Build a request with room for long conversations; the library's limit is 1 MB."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)
