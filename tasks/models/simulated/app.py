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
from tfgrpo.stores.json_values import compact_json, key_digest, load_json, mapping_of
from tfgrpo.tasks.models.simulated.engine import LABEL, Engine, digest_of
from tfgrpo.tasks.models.simulated.protocol import DIALECTS, MODEL_NAME, ChatBody, SimulatedChat, framed

# Dimensions of the vectors that embed a text.
_DIRECTIONS: Final = 64
_HEADERS: Final = {"x-simulated": LABEL}


def _answer(value: object, status: int = 200) -> Response:
    return Response(compact_json(value).encode("utf-8", "replace"), status, _HEADERS, "application/json")


async def _completed(engine: Engine, dialect: SimulatedChat, request: Request) -> Response:
    clock = asyncio.get_running_loop().time
    due = clock() + engine.settings.latency_s
    chat = dialect.chat(await _json(request))
    body = ChatBody.model_validate(chat)
    if body.model != MODEL_NAME:
        raise HTTPException(404, f"The model `{body.model}` does not exist; there is `{MODEL_NAME}`.")
    reply = dialect.reply(engine.answer(body, digest_of(chat)))
    # Computing the answer is part of the latency asked for. Not ``sleep(0.0)``: that waits for all other tasks.
    if (left := due - clock()) > 0.0:
        await asyncio.sleep(left)
    if not body.stream:
        return _answer(reply)
    frames = map(framed, dialect.events(reply, usage=bool(mapping_of(body.stream_options).get("include_usage"))))
    return StreamingResponse(frames, headers=_HEADERS, media_type="text/event-stream")


async def _embedded(request: Request) -> Response:
    texts = (await _json(request))["input"]
    texts, data = [texts] if isinstance(texts, str) else list(map(str, texts)), []
    # Vectors have length 1; those of texts without a word in common are mostly orthogonal.
    for at, text in enumerate(texts):
        counts = Counter(key_digest(word) % _DIRECTIONS for word in text.casefold().split() or [""])
        length = math.sqrt(sum(count**2 for count in counts.values()))
        vector = [counts[direction] / length for direction in range(_DIRECTIONS)]
        data.append({"object": "embedding", "index": at, "embedding": vector})
    usage = dict.fromkeys(("prompt_tokens", "total_tokens"), sum(1 + len(text) // 4 for text in texts))
    return _answer({"object": "list", "model": MODEL_NAME, "data": data, "usage": usage})


async def _json(request: Request) -> Any:
    return load_json((await request.body()).decode("utf-8", "surrogatepass"))


# Tools and schemas are read as they are needed, so that what is none of the API ends in any of these.
_REFUSED: Final = (HTTPException, ValueError, LookupError, TypeError, AttributeError, RecursionError)


async def _on_refused(request: Request, error: Exception) -> Response:  # noqa: ARG001
    status, param, text = 400, None, f"The request is none of this API: {error!r:.200}"
    if isinstance(error, HTTPException):
        status, text = error.status_code, error.detail
    elif isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        param = ".".join(map(str, first["loc"]))
        text = f"Invalid value for {param}: {first['msg']}"
    body = {"message": f"SIMULATED: {text}", "type": "invalid_request_error", "param": param, "code": None}
    # With a type outside, too: Anthropic's clients look for it there.
    return _answer({"type": "error", "error": body}, status)


def simulated_app(
    settings: SimulatedSettings, engine: Engine | None = None, dialects: Mapping[str, SimulatedChat] = DIALECTS
) -> Starlette:
    """Return the service, with its own state; ``engine`` and ``dialects``: others, for tests and benchmarks."""
    completed = partial(_completed, engine or Engine(settings))
    model = {"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": LABEL}
    routes = [Route(path, partial(completed, dialect), methods=["POST"]) for path, dialect in dialects.items()]
    routes += [Route("/v1/embeddings", _embedded, methods=["POST"])]
    # An answer is an application of its own, the same for every request.
    routes += [Route("/v1/models", _answer({"object": "list", "data": [model]}), methods=["GET"])]
    return Starlette(routes=routes, exception_handlers=dict.fromkeys(_REFUSED, _on_refused))
