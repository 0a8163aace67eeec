"""How is the simulated model served? By an ASGI app that speaks the OpenAI chat protocol and labels every answer."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tfgrpo.tasks.models.simulated.service.breakage import HangingResponse, ResettingResponse
from tfgrpo.tasks.models.simulated.service.completion import LABEL
from tfgrpo.tasks.models.simulated.service.engine import Engine, digest_of
from tfgrpo.tasks.models.simulated.service.faults import RETRY_AFTER_S, FaultKind
from tfgrpo.tasks.models.simulated.service.options import SimulatedOptions
from tfgrpo.tasks.models.simulated.service.protocol import MODEL_NAME, ChatBody, error_body, refusal

_HEADERS: Final = {"x-simulated": LABEL}
_MODEL: Final = {"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": LABEL}


def encoded(value: object) -> bytes:
    """Compact UTF-8 JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _answer(raw: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(raw, status, {**_HEADERS, **(headers or {})}, "application/json")


class _Service:
    """The endpoints, and what they share."""

    def __init__(self, options: SimulatedOptions) -> None:
        self._options = options
        self._engine = Engine(options)
        self.closing = asyncio.Event()
        """Set by the server when it shuts down: calls that hang are let go."""

    async def models(self, request: Request) -> Response:
        """List the one model."""
        refused = self._unauthorised(request)
        return refused or _answer(encoded({"object": "list", "data": [_MODEL]}))

    async def model(self, request: Request) -> Response:
        """Tell of one model."""
        refused = self._unauthorised(request)
        name = request.path_params["name"]
        return refused or (_answer(encoded(_MODEL)) if name == MODEL_NAME else _missing(name))

    async def completions(self, request: Request) -> Response:
        """Answer one chat completion, or break in one of the ways asked for."""
        clock = asyncio.get_running_loop().time
        due = clock() + self._options.latency_s
        refused = self._unauthorised(request)
        if refused is not None:
            return refused
        value, body = _read(await request.body())
        if isinstance(body, Response):
            return body
        digest = digest_of(value)
        seen = self._engine.arrive(body, digest)
        fault = self._engine.fault(digest, seen)
        response = self._respond(body, digest, seen, fault)
        # What thinking took is part of the latency asked for, not on top of it.
        if (left := due - clock()) > 0.0:
            await asyncio.sleep(left)
        return response

    def _unauthorised(self, request: Request) -> Response | None:
        key = self._options.api_key
        given = request.headers.get("authorization", "")
        if key is None or hmac.compare_digest(given.encode(), f"Bearer {key}".encode()):
            return None
        return _answer(encoded(error_body("Incorrect API key provided.", code="invalid_api_key")), 401)

    def _respond(self, body: ChatBody, digest: str, seen: int, fault: FaultKind | None) -> Response:
        match fault:
            case "rate_limit":
                limited = error_body("Rate limit reached.", kind="rate_limit_error", code="rate_limit_exceeded")
                return _answer(encoded(limited), 429, {"Retry-After": str(RETRY_AFTER_S)})
            case "server_error":
                return _answer(encoded(error_body("The server had an error.", kind="server_error")), 500)
            case "hang":
                return HangingResponse(self.closing)
        value = self._engine.answer(body, digest, seen, broken_off=fault == "truncated")
        if fault == "empty":
            value["choices"][0]["message"] = {"role": "assistant", "content": "", "refusal": None}
        raw = encoded(value)
        if fault == "reset":
            return ResettingResponse(raw, _HEADERS)
        named = {"x-request-id": f"req_{digest[:24]}"}
        return _answer(raw[: len(raw) // 2] if fault == "bad_json" else raw, headers=named)


def _read(raw: bytes) -> tuple[Any, ChatBody | Response]:
    """The request as JSON and as a body, or the refusal it gets."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None, _answer(encoded(error_body("The request body is not valid JSON.")), 400)
    try:
        body = ChatBody.model_validate(value)
    except ValidationError as error:
        return None, _answer(encoded(refusal(error)), 400)
    if body.model != MODEL_NAME:
        return None, _missing(body.model)
    return value, body


def _missing(name: str) -> Response:
    missing = f"The model `{name}` does not exist; there is `{MODEL_NAME}`."
    return _answer(encoded(error_body(missing, param="model", code="model_not_found")), 404)


async def _http_error(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = error.detail if isinstance(error, HTTPException) else "internal error"
    return _answer(encoded(error_body(detail)), status)


def simulated_app(options: SimulatedOptions) -> Starlette:
    """The service, in a state of its own: two apps with the same options give the same answers."""
    service = _Service(options)
    routes = [
        Route(f"{root}{path}", endpoint, methods=[method])
        for root in ("/v1", "")
        for path, endpoint, method in (
            ("/chat/completions", service.completions, "POST"),
            ("/models", service.models, "GET"),
            ("/models/{name:path}", service.model, "GET"),
        )
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _http_error})
    app.state.closing = service.closing
    return app
