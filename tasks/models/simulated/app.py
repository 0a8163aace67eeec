"""ASGI app of the simulated model: chat completions, and its translations for agents; every answer is labelled."""

from __future__ import annotations

import asyncio
import hmac
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
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
from tfgrpo.tasks.models.wire import called

_DIRECTIONS: Final = 64
"""Dimensions of the vectors that embed a text."""
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
    """``/chat/completions``; the other dialects are what differs from it."""

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

    async def embedded(self, request: Request) -> Response:
        """Return the vectors of texts."""
        self._authorise(request)
        asked = _json(await request.body()).get("input")
        if not isinstance(asked, str | list):
            raise _Refused(400, error_body("The request has no input.", param="input"))
        texts = [asked] if isinstance(asked, str) else list(map(str, asked))
        data = [{"object": "embedding", "index": at, "embedding": embedding(text)} for at, text in enumerate(texts)]
        tokens = sum(1 + len(text) // 4 for text in texts)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return _answer({"object": "list", "model": MODEL_NAME, "data": data, "usage": usage})

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
            ("/embeddings", service.embedded, "POST"),
        )
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _on_refused, _Refused: _on_refused})


Object: TypeAlias = Mapping[str, Any]
_IN: Final = "__"
"""Between the names of a namespace and of a function in it, where there is one name for both."""


def _text(content: Any, between: str = "") -> str:
    """Return the text of a content; ``between``: what separates blocks."""
    return content if isinstance(content, str) else between.join(filter(None, (each.get("text") for each in content)))


def _assistant(text: str, calls: Sequence[Object]) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": "assistant", "content": text or None if calls else text}
    return {**turn, "tool_calls": list(calls)} if calls else turn


def _functions(tools: Iterable[Object], within: str = "") -> Iterator[dict[str, Any]]:
    """Yield functions as chat has them, those of a namespace by its name and theirs, and no tools that the vendor runs."""
    for tool in tools:
        if tool.get("type") == "function" or "input_schema" in tool:
            named = {key: tool.get(key) for key in ("description", "parameters", "strict")}
            named |= {"name": within + tool["name"], "parameters": tool.get("input_schema", named["parameters"])}
            yield {"type": "function", "function": {key: part for key, part in named.items() if part is not None}}
        yield from _functions(tool.get("tools") or (), f"{tool.get('name')}{_IN}")


def _chat(asked: Object, messages: Sequence[Object], tools: Iterable[Object], **more: Any) -> dict[str, Any]:
    more |= {
        "temperature": asked.get("temperature"),
        "tools": [*_functions(tools)] or None,
        "stream": asked.get("stream") or None,
    }
    kept = {key: part for key, part in more.items() if part is not None}
    return {"model": asked["model"], "messages": messages, **kept}


_ERRORS: Final[Mapping[int, str]] = {
    400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error",
}  # fmt: skip
_STOP: Final[Mapping[str, str]] = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
# The ids of calls are those of chat but for their beginning, so that the same conversation has the same digest.
_CHAT_ID, _OWN_ID = "call_", "toolu_"


class SimulatedMessages(SimulatedChat):
    """``/messages``, Anthropic's."""

    def translated(self, value: Any) -> dict[str, Any]:
        """Return the chat request: ``system`` as its first message, tool results as messages apart."""
        system = [] if value.get("system") is None else [{"role": "system", "content": _text(value["system"])}]
        choice = value.get("tool_choice") or {}
        named = {"function": {"name": choice.get("name")}}
        more = {
            "max_tokens": value["max_tokens"],
            "stop": value.get("stop_sequences") or None,
            "tool_choice": {"any": "required", "tool": named}.get(choice.get("type", ""), choice.get("type")),
        }
        turns = [turn for each in value["messages"] for turn in _chat_turns(each)]
        return _chat(value, [*system, *turns], value.get("tools") or (), **more)

    def reply(self, completion: Object, asked: Object) -> dict[str, Any]:  # noqa: ARG002
        """Return a message with a block for the text, if any, and one for each call."""
        choice, usage = completion["choices"][0], completion["usage"]
        message, content = choice["message"], []
        if message["content"]:
            content.append({"type": "text", "text": message["content"]})
        for call in message.get("tool_calls", ()):
            key, function = call["id"].replace(_CHAT_ID, _OWN_ID, 1), call["function"]
            used = {"name": function["name"], "input": json.loads(function["arguments"])}
            content.append({"type": "tool_use", "id": key, **used})
        return {
            "id": f"msg_{_digest_in(completion)}",
            "type": "message",
            "role": "assistant",
            "model": completion["model"],
            "content": content,
            "stop_reason": _STOP[choice["finish_reason"]],
            "stop_sequence": None,
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": usage["completion_tokens"],
            },
        }

    def events(self, completion: Object, asked: Object) -> Iterator[StreamedEvent]:
        """Yield named events from ``message_start`` to ``message_stop``."""
        message = self.reply(completion, asked)
        usage = message["usage"]
        begun = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
        yield {"type": "message_start", "message": begun}
        yield {"type": "ping"}
        for index, block in enumerate(message["content"]):
            field, kind = ("text", "text_delta") if block["type"] == "text" else ("partial_json", "input_json_delta")
            whole = block["text"] if field == "text" else json.dumps(block["input"], ensure_ascii=False)
            empty: dict[str, Any] = {"text": ""} if field == "text" else {"input": {}}
            yield {"type": "content_block_start", "index": index, "content_block": {**block, **empty}}
            for piece in pieces(whole):
                yield {"type": "content_block_delta", "index": index, "delta": {"type": kind, field: piece}}
            yield {"type": "content_block_stop", "index": index}
        delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage["output_tokens"]}}
        yield {"type": "message_stop"}

    def error(self, status: int, body: Object) -> dict[str, Any]:
        """Return the error with a type for its status."""
        error = {"type": _ERRORS.get(status, "api_error"), "message": body["error"]["message"]}
        return {"type": "error", "error": error, "request_id": None}


def _chat_turns(message: Object) -> Iterator[dict[str, Any]]:
    role, content = message["role"], message["content"]
    text, blocks = _text(content), () if isinstance(content, str) else content
    if role == "assistant":
        used = [block for block in blocks if block["type"] == "tool_use"]
        calls = [
            called(use["id"].replace(_OWN_ID, _CHAT_ID, 1), use["name"], json.dumps(use["input"], ensure_ascii=False))
            for use in used
        ]
        yield _assistant(text, calls)
        return
    results = [block for block in blocks if block["type"] == "tool_result"]
    for block in results:
        key = block["tool_use_id"].replace(_OWN_ID, _CHAT_ID, 1)
        yield {"role": "tool", "content": _text(block.get("content", ""), "\n"), "tool_call_id": key}
    if text or not results:
        yield {"role": role, "content": text}


class SimulatedResponses(SimulatedChat):
    """``/responses``, OpenAI's. Nothing is stored, so a request carries its whole conversation."""

    def translated(self, value: Any) -> dict[str, Any]:
        """Return the chat request: instructions as its system message, items as its turns."""
        given, choice = value["input"], value.get("tool_choice")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        wanted, answer_format = (value.get("text") or {}).get("format"), None
        if wanted is not None:
            schema = {key: part for key, part in wanted.items() if key != "type" and part is not None}
            answer_format = {"type": wanted["type"]} | ({"json_schema": schema} if schema else {})
        more = {
            "max_tokens": value.get("max_output_tokens"),
            "tool_choice": {"function": choice} if isinstance(choice, dict) else choice,
            "response_format": answer_format,
        }
        return _chat(value, _chat_messages(value.get("instructions"), items), _tools_of(value), **more)

    def reply(self, completion: Object, asked: Object) -> dict[str, Any]:
        """Return a response with a message item for the text and an item for each call."""
        choice, usage = completion["choices"][0], completion["usage"]
        cut = choice["finish_reason"] == "length"
        repeated: dict[str, Any] = {
            "instructions": None,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
        return {
            "id": f"resp_{_digest_in(completion)}",
            "object": "response",
            "created_at": completion["created"],
            "status": "incomplete" if cut else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "model": completion["model"],
            "output": list(_output(completion, "incomplete" if cut else "completed", asked)),
            **{key: asked.get(key) or part for key, part in repeated.items()},
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
        }

    def events(self, completion: Object, asked: Object) -> Iterator[StreamedEvent]:
        """Yield named, numbered events from ``response.created`` to ``response.completed`` or ``.incomplete``."""
        response = self.reply(completion, asked)
        begun = {**response, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
        events = [("response.created", {"response": begun}), ("response.in_progress", {"response": begun})]
        for index, item in enumerate(response["output"]):
            events += _item_events(index, item)
        events.append((f"response.{response['status']}", {"response": response}))
        for number, (kind, data) in enumerate(events):
            yield {"type": kind, **data, "sequence_number": number}


def _digest_in(completion: Object) -> str:
    return str(completion["id"]).rpartition("-")[2]


def _tools_of(asked: Object) -> list[Object]:
    """Return the tools of a request, those among its items too."""
    items = () if isinstance(asked["input"], str) else asked["input"]
    return [*(asked.get("tools") or ()), *(tool for item in items for tool in item.get("tools") or ())]


def _chat_messages(instructions: str | None, items: Iterable[Object]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [] if instructions is None else [{"role": "system", "content": instructions}]
    for item in items:
        match item.get("type", "message"):
            case "message":
                messages.append({"role": item["role"], "content": _text(item["content"])})
            case "function_call":
                # A turn with text and calls comes as several items.
                turn = messages.pop() if messages and messages[-1]["role"] == "assistant" else {}
                space = "" if item.get("namespace") is None else f"{item['namespace']}{_IN}"
                call = called(item["call_id"], space + item["name"], item["arguments"])
                messages.append(_assistant(turn.get("content") or "", [*turn.get("tool_calls", ()), call]))
            case "function_call_output":
                text = _text(item["output"], "\n")
                messages.append({"role": "tool", "content": text, "tool_call_id": item["call_id"]})
    return messages


def _output(completion: Object, status: str, asked: Object) -> Iterator[dict[str, Any]]:
    message, digest = completion["choices"][0]["message"], _digest_in(completion)
    text, calls = message["content"] or "", message.get("tool_calls", ())
    if text or not calls:
        part: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
        yield {"id": f"msg_{digest}", "type": "message", "status": status, "role": "assistant", "content": [part]}
    spaces = [tool["name"] for tool in _tools_of(asked) if tool.get("type") == "namespace"]
    for index, call in enumerate(calls):
        named = {"id": f"fc_{digest}_{index}", "type": "function_call", "status": "completed", "call_id": call["id"]}
        whole = call["function"]["name"]
        space = next((each for each in spaces if whole.startswith(f"{each}{_IN}")), None)
        spaced = {} if space is None else {"namespace": space, "name": whole.removeprefix(f"{space}{_IN}")}
        yield {**named, **call["function"], **spaced}


def _item_events(index: int, item: Object) -> Iterator[tuple[str, dict[str, Any]]]:
    whole = {"output_index": index, "item": item}
    at: dict[str, Any] = {"item_id": item["id"], "output_index": index}
    if item["type"] == "message":
        yield "response.output_item.added", {**whole, "item": {**item, "status": "in_progress", "content": []}}
        (part,) = item["content"]
        at["content_index"] = 0
        yield "response.content_part.added", {**at, "part": {**part, "text": ""}}
        for piece in pieces(part["text"]):
            yield "response.output_text.delta", {**at, "delta": piece, "logprobs": []}
        yield "response.output_text.done", {**at, "text": part["text"], "logprobs": []}
        yield "response.content_part.done", {**at, "part": part}
    else:
        yield "response.output_item.added", {**whole, "item": {**item, "status": "in_progress", "arguments": ""}}
        for piece in pieces(item["arguments"]):
            yield "response.function_call_arguments.delta", {**at, "delta": piece}
        yield "response.function_call_arguments.done", {**at, "arguments": item["arguments"]}
    yield "response.output_item.done", whole
