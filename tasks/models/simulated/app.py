"""ASGI app of the simulated model: chat completions, responses and messages, every answer labelled, faults on request."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, NamedTuple

import httpx
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tfgrpo.tasks.models.simulated.dialects import ChatDialect, encoded, framed
from tfgrpo.tasks.models.simulated.embeddings import embedded
from tfgrpo.tasks.models.simulated.engine import LABEL, Engine, SimulatedOptions, digest_of, prompt_tokens
from tfgrpo.tasks.models.simulated.protocol import MODEL_NAME, ChatBody, error_body, refusal

ABORT: Final = "tfgrpo.abort"
"""Extension of the ASGI scope: a function that resets the connection.

A server that can reset connections adds it; in process there is none, and a reset is raised as the error that an HTTP
client would see.
"""
_RETRY_AFTER_S: Final = 1
_HEADERS: Final = {"x-simulated": LABEL}
_MODEL: Final = {"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": LABEL}
_STREAM: Final = "text/event-stream"


def _dialect_of(path: str) -> ChatDialect:
    # Imported when asked for: most runs speak one dialect, and schemas take time to build.
    if "/messages" in path:
        from tfgrpo.tasks.models.simulated.messages import MessagesDialect  # noqa: PLC0415

        return MessagesDialect()
    if path.endswith("/responses"):
        from tfgrpo.tasks.models.simulated.responses import ResponsesDialect  # noqa: PLC0415

        return ResponsesDialect()
    return ChatDialect()


class _Refused(Exception):
    """A request that is answered with an error, in the form of its dialect."""

    def __init__(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self.status, self.body, self.headers = status, body, headers


def _unknown_model(name: str) -> _Refused:
    message = f"The model `{name}` does not exist; there is `{MODEL_NAME}`."
    return _Refused(404, error_body(message, param="model", code="model_not_found"))


def _answer(raw: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(raw, status, {**_HEADERS, **(headers or {})}, "application/json")


class _Asked(NamedTuple):
    """A request: as it came, and as a chat request with its digest."""

    dialect: ChatDialect
    value: Mapping[str, Any]
    body: ChatBody
    digest: str


class _Service:
    """The endpoints, with the engine that they share."""

    def __init__(self, options: SimulatedOptions) -> None:
        self._options = options
        self._engine = Engine(options)
        self.closing = asyncio.Event()
        """Set by the server when it shuts down, which ends the calls that hang."""

    async def models(self, request: Request) -> Response:
        """List the one model, or describe the one that is named."""
        self._authorise(request)
        name = request.path_params.get("name", MODEL_NAME)
        if name != MODEL_NAME:
            raise _unknown_model(name)
        return _answer(encoded(_MODEL if request.path_params else {"object": "list", "data": [_MODEL]}))

    async def answered(self, request: Request) -> ASGIApp:
        """Answer one request in its dialect, or break as the faults ask."""
        clock = asyncio.get_running_loop().time
        due = clock() + self._options.latency_s
        self._authorise(request)
        asked = _read(await request.body(), _dialect_of(request.url.path))
        fault, completion = self._engine.answer(asked.body, asked.digest)
        # The time to compute the answer is part of the latency asked for, not added to it.
        left = max(0.0, due - clock())
        # The second half of it passes while the answer is streamed.
        streamed_s = left / 2.0 if asked.body.stream else 0.0
        if left:
            await asyncio.sleep(left - streamed_s)
        return self._respond(asked, fault, completion, streamed_s)

    async def upgraded(self, request: Request) -> Response:
        """Refuse a WebSocket with the status at which Codex turns to HTTP."""
        raise _Refused(426, error_body(f"There is no WebSocket; there is POST {request.url.path}."))

    async def counted(self, request: Request) -> Response:
        """Count the tokens of a request in Anthropic's dialect."""
        self._authorise(request)
        asked = _read(await request.body(), _dialect_of(request.url.path), {"max_tokens": 1})
        return _answer(encoded({"input_tokens": prompt_tokens(asked.body)}))

    def _authorise(self, request: Request) -> None:
        key = self._options.api_key
        accepted = {"authorization": f"Bearer {key}", "x-api-key": key, "api-key": key}
        if key is not None and not any(
            hmac.compare_digest(request.headers.get(name, "").encode(), f"{wanted}".encode())
            for name, wanted in accepted.items()
        ):
            raise _Refused(401, error_body("Incorrect API key provided.", code="invalid_api_key"))

    def _respond(self, asked: _Asked, fault: str | None, completion: dict[str, Any], streamed_s: float) -> ASGIApp:
        failed = error_body("The server had an error.", kind="server_error")
        # By the digest, half of the streams that fail begin well.
        midway = asked.body.stream and int(asked.digest[0], 16) % 2 == 1
        if fault == "rate_limit":
            limited = error_body("Rate limit reached.", kind="rate_limit_error", code="rate_limit_exceeded")
            raise _Refused(429, limited, {"Retry-After": str(_RETRY_AFTER_S)})
        if fault == "server_error" and not midway:
            raise _Refused(500, failed)
        if fault == "hang":
            return self._hang
        if fault == "empty":
            completion["choices"][0]["message"] = {"role": "assistant", "content": "", "refusal": None}
        headers = {**_HEADERS, "x-request-id": f"req_{asked.digest[:24]}"}
        if asked.body.stream:
            frames = _frames(asked, fault, completion, failed)
            if fault == "reset":
                return _ResettingResponse(b"".join(frames), headers=_HEADERS, media_type=_STREAM)
            return StreamingResponse(_paced(frames, streamed_s), headers=headers, media_type=_STREAM)
        raw = encoded(asked.dialect.reply(completion, asked.value))
        if fault == "reset":
            return _ResettingResponse(raw, headers=_HEADERS, media_type="application/json")
        return _answer(raw[: len(raw) // 2] if fault == "bad_json" else raw, headers=headers)

    async def _hang(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Answer nothing until the client gives up or the server shuts down."""
        waits = [asyncio.ensure_future(_disconnected(receive)), asyncio.ensure_future(self.closing.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            abort = scope.get("extensions", {}).get(ABORT)
            if abort is not None:
                abort()
                await waits[0]
        finally:
            for wait in waits:
                wait.cancel()


def _read(raw: bytes, dialect: ChatDialect, further: Mapping[str, Any] | None = None) -> _Asked:
    """Return a request with further fields. Raise ``_Refused`` for an invalid one."""
    try:
        value = json.loads(raw)
        chat = dialect.translated({**value, **further} if further and isinstance(value, dict) else value)
        body = ChatBody.model_validate(chat)
    except ValidationError as error:
        raise _Refused(400, refusal(error)) from None
    except (ValueError, RecursionError):
        raise _Refused(400, error_body("The request body is not valid JSON.")) from None
    if body.model != MODEL_NAME:
        raise _unknown_model(body.model)
    return _Asked(dialect, value, body, digest_of(chat))


def _frames(asked: _Asked, fault: str | None, completion: Mapping[str, Any], failed: Mapping[str, Any]) -> list[bytes]:
    """Return the events of a stream as sent; a fault shows in the middle."""
    events = list(asked.dialect.events(completion, asked.value))
    frames, half = list(map(framed, events)), len(events) // 2
    if fault == "server_error":
        return [*frames[:half], framed(asked.dialect.broken(failed, half))]
    if fault == "bad_json":
        return [*frames[:half], framed(events[half], cut=True)]
    return frames


async def _paced(frames: list[bytes], within_s: float) -> AsyncIterator[bytes]:
    """Yield the frames evenly over a time."""
    for frame in frames:
        yield frame
        if within_s:
            await asyncio.sleep(within_s / len(frames))


async def _on_refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        error = _Refused(error.status_code, error_body(error.detail))
    assert isinstance(error, _Refused)  # noqa: S101 - this handles no other
    body = _dialect_of(request.url.path).error(error.status, error.body)
    return _answer(encoded(body), error.status, error.headers)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _ResettingResponse(Response):
    """Half an answer, then a reset of the connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The headers announce the whole length, so that the client waits for the second half; a stream has no length.
        headers = [line for line in self.raw_headers if self.media_type != _STREAM or line[0] != b"content-length"]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(self.body[: len(self.body) // 2]), "more_body": True})
        abort = scope.get("extensions", {}).get(ABORT)
        if abort is None:
            raise httpx.ReadError("SIMULATED reset of the connection")
        abort()
        await _disconnected(receive)


def simulated_app(options: SimulatedOptions) -> Starlette:
    """Return the service, with its own state: two apps with the same options give the same answers."""
    service = _Service(options)
    routes = [
        Route(f"{root}{path}", endpoint, methods=[method])
        for root in ("/v1", "")
        for path, endpoint, method in (
            ("/chat/completions", service.answered, "POST"),
            ("/responses", service.answered, "POST"),
            ("/responses", service.upgraded, "GET"),
            ("/messages", service.answered, "POST"),
            ("/messages/count_tokens", service.counted, "POST"),
            ("/models", service.models, "GET"),
            ("/models/{name:path}", service.models, "GET"),
            ("/embeddings", embedded, "POST"),
        )
    ]
    azure = "/openai/deployments/{deployment}/chat/completions"
    routes.append(Route(azure, service.answered, methods=["POST"]))
    app = Starlette(routes=routes, exception_handlers={HTTPException: _on_refused, _Refused: _on_refused})
    app.state.closing = service.closing
    return app
