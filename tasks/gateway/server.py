"""HTTP server of the gateway: who may call, which protocol, and errors in its form."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import traceback
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from tfgrpo.stores.errors import ActorError, BudgetRefused, ModelReplyMalformed, TfgrpoError
from tfgrpo.tasks.gateway.call import MAX_BODY, Call, ClientGone, GatewayRefusal, Upstream, is_key_of, returned_headers
from tfgrpo.tasks.gateway.dialects import PROTOCOLS, Document
from tfgrpo.tasks.gateway.session import Caller, RolloutSession, outgoing
from tfgrpo.tasks.models.chat import ChatClient
from tfgrpo.tasks.models.transport import ENCODINGS, TRANSPORT_ERRORS, decoded, encoding_of, exchange
from tfgrpo.tasks.runtime.runtime import ENDING, AttemptContext

_ROLLOUT: Final = re.compile(r"/r/([\w-]+)(?=/|$)")
_METHOD: Final = re.compile(r"(?:/openai/deployments/[^/]+|/openai)?(?:/v1)*(/.*)?")
# Never the way to another method of the endpoint, called with its key: ``/models/../files``, or ``..;`` for some servers.
_MODELS: Final = re.compile(r"/models(?:/(?!\.{1,2}(?:/|$))[^/\\%?#;]+)*/?")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_COUNT: Final = "/messages/count_tokens"
_CLOSING_S: Final = 1.0
# Most seconds for the body of a request to arrive.
_BODY_S: Final = 60.0
# Seconds that calls have to end once they are cancelled.
_CANCELLED_S: Final = 0.5
# A header in the HTTP library's message on what it cannot parse.
_NAMED: Final = re.compile(r"b'([A-Za-z][\w-]{0,60}):")
_HOST: Final = "127.0.0.1"


class _Connection(RequestHandler):
    """A connection whose errors show nothing of what the client sent: it may be a key."""

    def log_exception(self, *_: Any, **kw: Any) -> None:
        """Log where an error was raised, and its type; none for what is no HTTP."""
        error = kw.get("exc_info")
        if isinstance(error, BaseException) and not isinstance(error, HttpProcessingError):
            where = "".join(traceback.format_tb(error.__traceback__))
            self.logger.error("unhandled error\n%s%s", where, type(error).__name__)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Return the error, in a form that all protocols share."""
        super().handle_error(request, status, exc, "")
        named = _NAMED.search(message or "")
        what = f"the header {named[1]}" if named is not None else "the request line or a header"
        text = "unexpected error" if status >= 500 else f"{what} is too long or no HTTP"
        response = _error("", GatewayRefusal(status, text), type="error")
        response.force_close()
        return response


MAX_REQUEST_MB: Final = 16
"""Megabytes of the largest request, decoded: all messages and pictures of a long conversation."""


class _Listener(web.Server):
    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class Server(ABC):
    """The server, on the running event loop."""

    def __init__(self, upstream: Upstream | None, closing_s: float = _CLOSING_S) -> None:
        """``closing_s``: seconds that calls in flight have to end when it closes."""
        self._upstream = upstream
        self._closing_s = closing_s
        self._handlers: set[asyncio.Task[Any]] = set()
        self._turn = asyncio.Lock()
        # A client that goes away cancels its handler, and with it the call at the endpoint. Idle connections are closed
        # long before the library's hour. Requests are decoded here, within their limit.
        server = _Listener(
            self._handle, handler_cancellation=True, access_log=None, keepalive_timeout=75.0, auto_decompress=False
        )
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=_CANCELLED_S)

    async def start(self, listening: socket.socket) -> str:
        """Listen on a bound socket; return the address."""
        await self._runner.setup()
        await web.SockSite(self._runner, listening, backlog=512).start()
        host, port = listening.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def aclose(self) -> None:
        """Stop listening, give calls in flight time to end, and cancel the others."""
        for site in list(self._runner.sites):
            await site.stop()
        if self._runner.server is not None:
            self._runner.server.pre_shutdown()  # connections without a call are closed, others after theirs
        if self._handlers:
            await asyncio.wait(self._handlers, timeout=self._closing_s)
        for handler in self._handlers:
            handler.cancel()
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if (handler := asyncio.current_task()) is not None:
            self._handlers.add(handler)
            handler.add_done_callback(self._handlers.discard)
        try:
            return await self._answer(request)
        except ClientGone:
            return web.Response()
        except GatewayRefusal as error:
            refusal = error
        except (BudgetRefused, ActorError) as error:
            refusal = GatewayRefusal(402 if isinstance(error, BudgetRefused) else 403, str(error))
        except TfgrpoError as error:
            refusal = GatewayRefusal(500, f"{type(error).__name__}: {error}")
        if request.writer.output_size and request.transport is not None:
            # A stream that broke off: without its last chunk the client knows.
            request.transport.close()
        return _error(request.path, refusal)

    @abstractmethod
    def _admitted(self, request: web.BaseRequest) -> tuple[Caller, str]:
        """Return who calls, and the method's path. Raises ``GatewayRefusal``."""

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if _CONTROL.search(request.path):
            raise GatewayRefusal(400, "the address has a control character")
        session, path = self._admitted(request)
        session.running.add(request.task)
        try:
            if request.method == "POST" and (path in PROTOCOLS or path == _COUNT):
                return await self._post(session, request, path)
            if request.method == "GET" and _MODELS.fullmatch(path):
                return await self._pass(request, path, None)
        finally:
            session.running.discard(request.task)
        if path in PROTOCOLS and request.headers.get("upgrade", "").lower() == "websocket":
            # The one status at which Codex calls over HTTP at once; at others it tries again for seconds.
            raise GatewayRefusal(426, f"the gateway has no WebSocket; it has POST {path}")
        accepted = f"POST {', '.join(PROTOCOLS)} and {_COUNT}, and GET /models"
        raise GatewayRefusal(404, f"the gateway has no {request.method} {path}; it has {accepted}")

    async def _post(self, session: Caller, request: web.BaseRequest, path: str) -> web.StreamResponse:
        # Sent with curl's long requests. The library answers it for an app, not for a server alone.
        if request.headers.get("expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # no part of an answer
        raw = await self._read(request)
        # One request in a turn of the event loop: before Python 3.12 the HTTP library writes in a task of its own, so that
        # of many which come at once none would leave before all are read and taught.
        await self._turn.acquire()
        asyncio.get_running_loop().call_soon(self._turn.release)
        dialect = PROTOCOLS[path.removesuffix("/count_tokens")]
        try:
            document = Document(raw)
        except ValueError as error:
            raise GatewayRefusal(400, f"the request is not usable: {error}") from None
        if dialect.stateful and document.value.get("background"):  # its answer could not be fetched, and would be paid for
            raise GatewayRefusal(400, "the gateway has no background responses; accepted: background false")
        additions = session.additions_for(dialect, document.value)
        lessons = request.headers.get("x-tfgrpo-lessons", "").lower() != "off"
        rewrite = partial(outgoing, dialect, document, additions, lessons=lessons)
        out = rewrite(refused=() if self._upstream is None else self._upstream.refused)
        if path == _COUNT:
            return await self._pass(request, path, out.raw)
        try:
            return await Call(session, request, out, self._upstream, rewrite).respond()
        except ENDING as error:
            session.stop(error)
            raise

    async def _read(self, request: web.BaseRequest) -> bytes:
        """Raise ``GatewayRefusal`` before more than the limit is in memory."""
        encoding, most = encoding_of(request.headers), MAX_REQUEST_MB << 20
        if encoding and encoding not in ENCODINGS:
            accepted = ", ".join(("identity", *ENCODINGS))
            raise GatewayRefusal(415, f"the request is encoded as {encoding}; accepted: {accepted}")
        too_large = f"the request has more than {MAX_REQUEST_MB} MB"  # a frame that holds its own error would keep the parts
        if (request.content_length or 0) > most:
            raise GatewayRefusal(413, too_large)
        size, parts = 0, list[bytes]()
        try:
            async with asyncio.timeout(_BODY_S):
                async for part in decoded(request.content.iter_any(), encoding, strict=True):
                    size += len(part)
                    parts.append(part)
                    if size > most:
                        raise GatewayRefusal(413, too_large)
        except TimeoutError:
            raise GatewayRefusal(408, f"the request did not arrive within {_BODY_S:g} seconds", retry=True) from None
        except (web.RequestPayloadError, zlib.error) as error:
            raise GatewayRefusal(400, f"the request cannot be decoded: {' '.join(str(error).split())}") from None
        return b"".join(parts)

    async def _pass(self, request: web.BaseRequest, path: str, body: bytes | None) -> web.StreamResponse:
        """Pass on what is free of charge; it is not journalled."""
        if self._upstream is None:
            raise GatewayRefusal(503, "a replay calls no endpoint")
        client = self._upstream.client
        try:
            forwarded = self._upstream.forwarded(request, path, body)
            received = await exchange(client.http, forwarded, client.endpoint.timeout_s, MAX_BODY)
        except (*TRANSPORT_ERRORS, ModelReplyMalformed) as error:
            cause = type(error).__name__
            raise GatewayRefusal(502, f"no answer from {client.endpoint.display_url}: {cause}", retry=True) from None
        scrub = client.endpoint.scrub
        headers = returned_headers(received.headers, scrub)
        return web.Response(status=received.status, body=scrub(received.content), headers=headers)


class RolloutServer(Server):
    """Serves the rollouts of a run, each at its own address, on a free port of the loopback interface."""

    def __init__(self, client: ChatClient | None) -> None:
        """``client``: None if no call may go to the endpoint."""
        super().__init__(None if client is None else Upstream(client))
        self._sessions: dict[str, RolloutSession] = {}
        """By the token in their path."""
        self._origin, self._hosts = "", frozenset[str]()

    async def open(self) -> None:
        """Listen."""
        listening = socket.create_server((_HOST, 0), backlog=512)
        port = listening.getsockname()[1]
        self._hosts = frozenset({f"{_HOST}:{port}", f"localhost:{port}"})
        self._origin = await self.start(listening)

    @contextmanager
    def session(self, attempt: AttemptContext) -> Iterator[RolloutSession]:
        """Serve one attempt while this is open."""
        session = RolloutSession(attempt, self._origin)
        self._sessions[session.token] = session
        try:
            yield session
        finally:
            del self._sessions[session.token]
            session.end()

    def _admitted(self, request: web.BaseRequest) -> tuple[Caller, str]:
        match = _ROLLOUT.match(request.path)
        session = self._sessions.get(match[1]) if match is not None else None
        if match is None or session is None or request.host not in self._hosts:
            raise GatewayRefusal(403, "no rollout in progress has this address")
        if not is_key_of(request, session.api_key):
            raise GatewayRefusal(403, "the API key is not the one that this attempt was given")
        return session, method_path(request.path[match.end() :])


def method_path(path: str) -> str:
    """Return the path of a method without the prefixes of client libraries."""
    match = _METHOD.fullmatch(path)
    return (match[1] if match is not None else None) or "/"


def _error(path: str, error: GatewayRefusal, **more: str) -> web.Response:
    details: dict[str, str | None] = {"message": str(error), "type": error.kind, "param": None, "code": error.kind}
    content = {"error": details, **more}
    if "/messages" in path:  # the form of Anthropic
        content = {"type": "error", "error": {"type": error.kind, "message": str(error)}}
    body = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
    headers = {"content-type": "application/json", "x-should-retry": "true" if error.retry else "false"}
    return web.Response(status=error.status, body=body, headers=headers)
