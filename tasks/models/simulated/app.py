"""ASGI app of the simulated model: chat completions, and texts in two other dialects; every answer is labelled."""

from __future__ import annotations

import asyncio
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
from tfgrpo.stores.json_values import compact_json, key_digest, load_json
from tfgrpo.tasks.models.simulated.engine import LABEL, Engine, digest_of
from tfgrpo.tasks.models.simulated.protocol import DIALECTS, MODEL_NAME, ChatBody, SimulatedChat, framed

_DIRECTIONS: Final = 64
"""Dimensions of the vectors that embed a text."""
_HEADERS: Final = {"x-simulated": LABEL}
_MODEL: Final = {"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": LABEL}


class _Refused(HTTPException):
    """A request that is answered with an error, in a form that clients of every dialect read."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(status, message)
        self.param, self.code = param, code


def _answer(value: object, status: int = 200) -> Response:
    return Response(compact_json(value).encode("utf-8", "replace"), status, _HEADERS, "application/json")


async def _models(request: Request) -> Response:  # noqa: ARG001
    return _answer({"object": "list", "data": [_MODEL]})


async def _answered(engine: Engine, dialect: SimulatedChat, request: Request) -> Response:
    clock = asyncio.get_running_loop().time
    due = clock() + engine.settings.latency_s
    asked = _json(await request.body())
    try:
        chat = dialect.chat(asked)
        body = ChatBody.model_validate(chat)
        if body.model != MODEL_NAME:
            message = f"The model `{body.model}` does not exist; there is `{MODEL_NAME}`."
            raise _Refused(404, message, "model", "model_not_found")
        completion = engine.answer(body, digest_of(chat))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        param = ".".join(map(str, first["loc"]))
        raise _Refused(400, f"Invalid value for {param}: {first['msg']}", param, "invalid_value") from None
    except (LookupError, TypeError, AttributeError, RecursionError) as error:  # tools and schemas are read as needed
        raise _Refused(400, f"The request is none of this API: {error!r:.200}") from None
    # The time to compute the answer is part of the latency asked for, not added to it.
    if (left := due - clock()) > 0.0:
        await asyncio.sleep(left)
    if not body.stream:
        return _answer(dialect.reply(completion))
    frames = map(framed, dialect.events(completion, asked))
    return StreamingResponse(frames, headers=_HEADERS, media_type="text/event-stream")


async def _embedded(request: Request) -> Response:
    asked = _json(await request.body()).get("input")
    if not isinstance(asked, str | list):
        raise _Refused(400, "The request has no input.", "input")
    texts = [asked] if isinstance(asked, str) else list(map(str, asked))
    data = []
    for at, text in enumerate(texts):  # vectors of length 1; those of texts without a word in common are mostly orthogonal
        counts = Counter(key_digest(word) % _DIRECTIONS for word in text.casefold().split() or [""])
        length = math.sqrt(sum(count**2 for count in counts.values()))
        vector = [counts[direction] / length for direction in range(_DIRECTIONS)]
        data.append({"object": "embedding", "index": at, "embedding": vector})
    tokens = sum(1 + len(text) // 4 for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return _answer({"object": "list", "model": MODEL_NAME, "data": data, "usage": usage})


def _json(raw: bytes) -> dict[str, Any]:
    try:
        value = load_json(raw.decode("utf-8", "surrogatepass"))
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise _Refused(400, "The request body is no JSON object.")
    return value


async def _on_refused(request: Request, error: Exception) -> Response:  # noqa: ARG001
    assert isinstance(error, HTTPException)  # noqa: S101 - this handles no other
    about = {name: getattr(error, name, None) for name in ("param", "code")}
    body = {"message": f"SIMULATED: {error.detail}", "type": "invalid_request_error", **about}
    return _answer({"type": "error", "error": body}, error.status_code)


def simulated_app(
    settings: SimulatedSettings, engine: Engine | None = None, dialects: Mapping[str, SimulatedChat] = DIALECTS
) -> Starlette:
    """Return the service, with its own state: two apps with the same settings give the same answers.

    ``engine``, ``dialects``: others, for tests and benchmarks.
    """
    answered = partial(_answered, engine or Engine(settings))
    routes = [
        *(Route(path, partial(answered, dialect), methods=["POST"]) for path, dialect in dialects.items()),
        Route("/v1/models", _models),
        Route("/v1/embeddings", _embedded, methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _on_refused})
