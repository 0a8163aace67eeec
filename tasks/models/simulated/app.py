"""ASGI app of the simulated model: chat completions, and texts in two other dialects; every answer is labelled."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tfgrpo.pipelines.settings.tree import SimulatedSettings
from tfgrpo.stores.json_values import key_digest
from tfgrpo.tasks.models.simulated.engine import LABEL, Engine, digest_of
from tfgrpo.tasks.models.simulated.protocol import DIALECTS, MODEL_NAME, ChatBody, SimulatedChat, compact_json, framed

_DIRECTIONS: Final = 64
"""Dimensions of the vectors that embed a text."""
_HEADERS: Final = {"x-simulated": LABEL}
_MODEL: Final = {"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": LABEL}


class _Refused(Exception):
    """A request that is answered with an error, in a form that clients of every dialect read."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        self.status = status
        error = {"message": f"SIMULATED: {message}", "type": "invalid_request_error", "param": param, "code": code}
        self.body = {"type": "error", "error": error}


def _answer(value: object, status: int = 200) -> Response:
    return Response(compact_json(value), status, _HEADERS, "application/json")


class _Service:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def models(self, request: Request) -> Response:  # noqa: ARG002
        return _answer({"object": "list", "data": [_MODEL]})

    async def answered(self, dialect: SimulatedChat, request: Request) -> Response:
        clock = asyncio.get_running_loop().time
        due = clock() + self._engine.settings.latency_s
        asked = _json(await request.body())
        try:
            chat = dialect.chat(asked)
            body = ChatBody.model_validate(chat)
            if body.model != MODEL_NAME:
                message = f"The model `{body.model}` does not exist; there is `{MODEL_NAME}`."
                raise _Refused(404, message, "model", "model_not_found")
            completion = self._engine.answer(body, digest_of(chat))
        except ValidationError as error:
            raise _invalid(error) from None
        except (LookupError, TypeError, AttributeError) as error:  # tools and schemas are read as an answer needs them
            raise _Refused(400, f"The request is none of this API: {error!r:.200}") from None
        # The time to compute the answer is part of the latency asked for, not added to it.
        if (left := due - clock()) > 0.0:
            await asyncio.sleep(left)
        if not body.stream:
            return _answer(dialect.reply(completion))
        frames = map(framed, dialect.events(completion, asked))
        return StreamingResponse(frames, headers=_HEADERS, media_type="text/event-stream")

    async def embedded(self, request: Request) -> Response:
        asked = _json(await request.body()).get("input")
        if not isinstance(asked, str | list):
            raise _Refused(400, "The request has no input.", "input")
        texts = [asked] if isinstance(asked, str) else list(map(str, asked))
        data = [{"object": "embedding", "index": at, "embedding": _embedding(text)} for at, text in enumerate(texts)]
        tokens = sum(1 + len(text) // 4 for text in texts)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return _answer({"object": "list", "model": MODEL_NAME, "data": data, "usage": usage})


def _json(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _Refused(400, "The request body is no JSON object.")
    return value


def _invalid(error: ValidationError) -> _Refused:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    param = ".".join(str(part) for part in first["loc"])
    return _Refused(400, f"Invalid value for {param}: {first['msg']}", param, "invalid_value")


def _embedding(text: str) -> list[float]:
    """Return the vector of a text, of length 1; texts without a word in common are mostly orthogonal."""
    counts = Counter(key_digest(word) % _DIRECTIONS for word in text.casefold().split() or [""])
    length = math.sqrt(sum(count**2 for count in counts.values()))
    return [counts[at] / length for at in range(_DIRECTIONS)]


async def _on_refused(request: Request, error: Exception) -> Response:  # noqa: ARG001
    if isinstance(error, HTTPException):
        error = _Refused(error.status_code, error.detail)
    assert isinstance(error, _Refused)  # noqa: S101 - this handles no other
    return _answer(error.body, error.status)


def simulated_app(
    settings: SimulatedSettings, engine: Engine | None = None, dialects: Mapping[str, SimulatedChat] = DIALECTS
) -> Starlette:
    """Return the service, with its own state: two apps with the same settings give the same answers.

    ``engine``, ``dialects``: others, for tests and benchmarks.
    """
    service = _Service(engine or Engine(settings))
    routes = [
        *(Route(path, partial(service.answered, dialect), methods=["POST"]) for path, dialect in dialects.items()),
        Route("/v1/models", service.models),
        Route("/v1/embeddings", service.embedded, methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _on_refused, _Refused: _on_refused})
