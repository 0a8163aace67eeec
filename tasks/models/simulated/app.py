"""ASGI app of the simulated model: the OpenAI chat protocol, every answer labelled, and faults on request."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tfgrpo.tasks.models.simulated.engine import LABEL, Engine, FaultKind, SimulatedOptions, digest_of
from tfgrpo.tasks.models.simulated.protocol import MODEL_NAME, ChatBody, error_body, refusal

ABORT: Final = "tfgrpo.abort"
"""Extension of the ASGI scope: a function that resets the connection.

A server that can reset connections adds it; in process there is none, and a reset is raised as the error that an HTTP
client would see.
"""
_RETRY_AFTER_S: Final = 1
_HEADERS: Final = {"x-simulated": LABEL}
_MODEL: Final = {"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": LABEL}


class _Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self.response = _answer(_encoded(body), status, headers)


def _unknown_model(name: str) -> _Refused:
    message = f"The model `{name}` does not exist; there is `{MODEL_NAME}`."
    return _Refused(404, error_body(message, param="model", code="model_not_found"))


def _encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _answer(raw: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(raw, status, {**_HEADERS, **(headers or {})}, "application/json")


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
        return _answer(_encoded(_MODEL if request.path_params else {"object": "list", "data": [_MODEL]}))

    async def completions(self, request: Request) -> Response:
        """Answer one chat completion, or break as the faults ask."""
        clock = asyncio.get_running_loop().time
        due = clock() + self._options.latency_s
        self._authorise(request)
        value, body = _read(await request.body())
        digest = digest_of(value)
        response = self._respond(digest, *self._engine.answer(body, digest))
        # The time to compute the answer is part of the latency asked for, not added to it.
        if (left := due - clock()) > 0.0:
            await asyncio.sleep(left)
        return response

    def _authorise(self, request: Request) -> None:
        key = self._options.api_key
        sent = request.headers.get("authorization", "")
        if key is not None and not hmac.compare_digest(sent.encode(), f"Bearer {key}".encode()):
            raise _Refused(401, error_body("Incorrect API key provided.", code="invalid_api_key"))

    def _respond(self, digest: str, fault: FaultKind | None, value: dict[str, Any]) -> Response:
        match fault:
            case "rate_limit":
                limited = error_body("Rate limit reached.", kind="rate_limit_error", code="rate_limit_exceeded")
                return _Refused(429, limited, {"Retry-After": str(_RETRY_AFTER_S)}).response
            case "server_error":
                return _Refused(500, error_body("The server had an error.", kind="server_error")).response
            case "hang":
                return _HangingResponse(self.closing)
        if fault == "empty":
            value["choices"][0]["message"] = {"role": "assistant", "content": "", "refusal": None}
        raw = _encoded(value)
        if fault == "reset":
            return _ResettingResponse(raw, headers=_HEADERS, media_type="application/json")
        headers = {"x-request-id": f"req_{digest[:24]}"}
        return _answer(raw[: len(raw) // 2] if fault == "bad_json" else raw, headers=headers)


def _read(raw: bytes) -> tuple[Any, ChatBody]:
    """Return the request as JSON and as a body."""
    try:
        value = json.loads(raw)
        body = ChatBody.model_validate(value)
    except ValidationError as error:
        raise _Refused(400, refusal(error)) from None
    except (ValueError, RecursionError):
        raise _Refused(400, error_body("The request body is not valid JSON.")) from None
    if body.model != MODEL_NAME:
        raise _unknown_model(body.model)
    return value, body


async def _on_refused(_: Request, error: Exception) -> Response:
    if isinstance(error, _Refused):
        return error.response
    status, detail = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "internal error")
    return _Refused(status, error_body(detail)).response


def _abort_of(scope: Scope) -> Callable[[], None] | None:
    abort: Callable[[], None] | None = scope.get("extensions", {}).get(ABORT)
    return abort


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _HangingResponse(Response):
    """No answer until the client gives up or the server shuts down."""

    def __init__(self, closing: asyncio.Event) -> None:
        super().__init__()
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        waits = [asyncio.ensure_future(_disconnected(receive)), asyncio.ensure_future(self._closing.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            abort = _abort_of(scope)
            if abort is not None:
                abort()
                await waits[0]
        finally:
            for wait in waits:
                wait.cancel()


class _ResettingResponse(Response):
    """Half an answer, then a reset of the connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The headers announce the whole length, so that the client waits for the second half.
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": bytes(self.body[: len(self.body) // 2]), "more_body": True})
        abort = _abort_of(scope)
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
            ("/chat/completions", service.completions, "POST"),
            ("/models", service.models, "GET"),
            ("/models/{name:path}", service.models, "GET"),
        )
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _on_refused, _Refused: _on_refused})
    app.state.closing = service.closing
    return app
