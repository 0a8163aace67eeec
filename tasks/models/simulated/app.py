"""ASGI app of the simulated model: chat completions, and its translations for agents; every answer is labelled."""

from __future__ import annotations

import asyncio
import hmac
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tfgrpo.stores.canonical import key_digest
from tfgrpo.tasks.models.simulated.engine import (
    CHARS_PER_TOKEN,
    LABEL,
    Engine,
    SimulatedOptions,
    digest_of,
    prompt_tokens,
)
from tfgrpo.tasks.models.simulated.protocol import MODEL_NAME, ChatBody, error_body, invalid_request

_DIRECTIONS: Final = 64
"""Of the vectors that embed a text."""
_HEADERS: Final = {"x-simulated": LABEL}
_MODEL: Final = {"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": LABEL}


_PIECE: Final = 4 * CHARS_PER_TOKEN
"""Characters of one delta."""
StreamedEvent: TypeAlias = Mapping[str, Any] | str
"""Data of one server-sent event."""


def compact_json(value: object) -> bytes:
    """Return compact UTF-8 JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def framed(event: StreamedEvent) -> bytes:
    """Return a server-sent event, named by the type in its data."""
    if isinstance(event, str):
        return f"data: {event}\n\n".encode()
    name = f"event: {event['type']}\n".encode() if "type" in event else b""
    return b"%sdata: %s\n\n" % (name, compact_json(event))


def pieces(text: str) -> list[str]:
    """Cut a text into the deltas of a stream."""
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


class SimulatedChat:
    """``/chat/completions``; the other dialects (``translations``) are what differs from it."""

    def translated(self, value: Any) -> Any:
        """Return the chat request that asks the same. Raises ``LookupError`` or ``TypeError`` for what is no request."""
        return value

    def reply(self, completion: Mapping[str, Any], asked: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
        """Return a chat completion as the answer to a request."""
        return completion

    def error(self, status: int, body: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
        """Return an error body, as ``error_body`` makes it, in the form of the dialect."""
        return body

    def events(self, completion: Mapping[str, Any], asked: Mapping[str, Any]) -> Iterator[StreamedEvent]:
        """Yield the answer as a stream: role, text, one call each, finish reason, usage if asked for; then ``[DONE]``."""
        choice, usage = completion["choices"][0], (asked.get("stream_options") or {}).get("include_usage")
        common = {key: completion[key] for key in ("id", "created", "model", "system_fingerprint")}
        common["object"] = "chat.completion.chunk"
        if usage:
            common["usage"] = None

        def chunk(delta: Mapping[str, Any], logprobs: object = None, finish: str | None = None) -> StreamedEvent:
            only = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
            return {**common, "choices": [only]}

        yield chunk({"role": "assistant", "content": "", "refusal": None})
        tokens = (choice["logprobs"] or {}).get("content")
        for index, piece in enumerate(pieces(choice["message"]["content"] or "")):
            shown = None if tokens is None else {"content": tokens[4 * index : 4 * index + 4], "refusal": None}
            yield chunk({"content": piece}, shown)
        for index, call in enumerate(choice["message"].get("tool_calls", ())):
            function = call["function"]
            yield chunk({"tool_calls": [{"index": index, **call, "function": {**function, "arguments": ""}}]})
            for piece in pieces(function["arguments"]):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield chunk({}, finish=choice["finish_reason"])
        if usage:
            yield {**common, "choices": [], "usage": completion["usage"]}
        yield "[DONE]"


class _Refused(Exception):
    """A request that is answered with an error, in the form of its dialect."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        self.status, self.body = status, body


def _answer(value: object, status: int = 200) -> Response:
    return Response(compact_json(value), status, _HEADERS, "application/json")


class _Service:
    """The endpoints, with the engine that they share."""

    def __init__(self, options: SimulatedOptions, engine: Engine) -> None:
        self._options, self._engine = options, engine

    async def models(self, request: Request) -> Response:
        """List the one model, or describe the one that is named."""
        self._authorise(request)
        name = request.path_params.get("name")
        if name not in (None, MODEL_NAME):
            raise _unknown_model(name)
        return _answer({"object": "list", "data": [_MODEL]} if name is None else _MODEL)

    async def answered(self, request: Request) -> Response:
        """Answer one request in its dialect."""
        clock = asyncio.get_running_loop().time
        due = clock() + self._options.latency_s
        self._authorise(request)
        dialect, asked = _dialect_of(request.url.path), _json(await request.body())
        with _faults_refused():
            body, digest = _read(asked, dialect)
            completion = self._engine.answer(body, digest)
        # The time to compute the answer is part of the latency asked for, not added to it.
        if (left := due - clock()) > 0.0:
            await asyncio.sleep(left)
        if not body.stream:
            return _answer(dialect.reply(completion, asked))
        frames: Iterator[bytes] = map(framed, dialect.events(completion, asked))
        return StreamingResponse(frames, headers=_HEADERS, media_type="text/event-stream")

    async def counted(self, request: Request) -> Response:
        """Count the tokens of a request in Anthropic's dialect."""
        self._authorise(request)
        asked = {"max_tokens": 1} | _json(await request.body())
        with _faults_refused():
            body, _ = _read(asked, _dialect_of(request.url.path))
            tokens = prompt_tokens(body)
        return _answer({"input_tokens": tokens})

    def _authorise(self, request: Request) -> None:
        key = self._options.api_key
        accepted = {"authorization": f"Bearer {key}", "x-api-key": key, "api-key": key}
        if key is not None and not any(
            hmac.compare_digest(request.headers.get(name, "").encode(), f"{wanted}".encode())
            for name, wanted in accepted.items()
        ):
            raise _Refused(401, error_body("Incorrect API key provided.", code="invalid_api_key"))


def _dialect_of(path: str) -> SimulatedChat:
    if "/messages" not in path and "/responses" not in path:
        return SimulatedChat()
    # Imported here, because they are written as what differs from chat.
    from tfgrpo.tasks.models.simulated.translations import SimulatedMessages, SimulatedResponses  # noqa: PLC0415

    return SimulatedMessages() if "/messages" in path else SimulatedResponses()


def _json(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _Refused(400, error_body("The request body is no JSON object."))
    return value


@contextmanager
def _faults_refused() -> Iterator[None]:
    """Refuse what an object of a request lacks, whenever that is found: tools and schemas are read as an answer needs them."""
    try:
        yield
    except (LookupError, TypeError, AttributeError) as error:
        raise _Refused(400, error_body(f"The request is none of this API: {error!r:.200}")) from None


def _read(asked: Mapping[str, Any], dialect: SimulatedChat) -> tuple[ChatBody, str]:
    """Return a request as one of chat, with the digest of its content. Raise ``_Refused`` for an invalid one."""
    try:
        chat = dialect.translated(asked)
        body = ChatBody.model_validate(chat)
    except ValidationError as error:
        raise _Refused(400, invalid_request(error)) from None
    if body.model != MODEL_NAME:
        raise _unknown_model(body.model)
    return body, digest_of(chat)


def _unknown_model(name: str) -> _Refused:
    message = f"The model `{name}` does not exist; there is `{MODEL_NAME}`."
    return _Refused(404, error_body(message, param="model", code="model_not_found"))


async def _on_refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        error = _Refused(error.status_code, error_body(error.detail))
    assert isinstance(error, _Refused)  # noqa: S101 - this handles no other
    return _answer(_dialect_of(request.url.path).error(error.status, error.body), error.status)


def embedding(text: str) -> list[float]:
    """Return the vector of a text, of length 1; texts without a word in common are mostly orthogonal."""
    counts = Counter(key_digest(word) % _DIRECTIONS for word in text.casefold().split() or [""])
    length = math.sqrt(sum(count**2 for count in counts.values()))
    return [counts[at] / length for at in range(_DIRECTIONS)]


async def embedded(request: Request) -> JSONResponse:
    """Answer ``POST /embeddings``."""
    try:
        asked: Any = json.loads(await request.body())
        texts = [asked["input"]] if isinstance(asked["input"], str) else [str(text) for text in asked["input"]]
    except (ValueError, LookupError, TypeError):
        return JSONResponse(error_body("The request has no input.", param="input"), 400)
    data = [{"object": "embedding", "index": at, "embedding": embedding(text)} for at, text in enumerate(texts)]
    tokens = sum(1 + len(text) // 4 for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return JSONResponse({"object": "list", "model": MODEL_NAME, "data": data, "usage": usage})


def simulated_app(options: SimulatedOptions, engine: Engine | None = None) -> Starlette:
    """Return the service, with its own state: two apps with the same options give the same answers.

    ``engine``: one that answers otherwise, for benchmarks.
    """
    service = _Service(options, engine or Engine(options))
    routes = [
        Route(f"{root}{path}", endpoint, methods=[method])
        for root in ("/v1", "", "/openai/deployments/{deployment}")
        for path, endpoint, method in (
            ("/chat/completions", service.answered, "POST"),
            ("/responses", service.answered, "POST"),
            ("/messages", service.answered, "POST"),
            ("/messages/count_tokens", service.counted, "POST"),
            ("/models", service.models, "GET"),
            ("/models/{name:path}", service.models, "GET"),
            ("/embeddings", embedded, "POST"),
        )
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _on_refused, _Refused: _on_refused})
