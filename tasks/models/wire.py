"""What does the OpenAI chat-completions protocol look like on the wire? Requests to JSON, JSON to replies.

Strict in what is sent. Of what comes back, the vendors' known liberties (vLLM, Ollama, gateways) are read for what they
mean; anything else is ``ModelReplyMalformed``. Sends nothing, retries nothing and knows no prices.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from stores.canonical import canonical_json, sha256_hex
from stores.errors import ModelReplyMalformed
from tasks.models.base import AnswerSchema, ChatRequest, FinishReason, Message, ToolCall, ToolSpec, Usage

StructuredMode: TypeAlias = Literal["json_schema", "json_object", "none"]
LimitField: TypeAlias = Literal["max_tokens", "max_completion_tokens"]

_NO_LOGPROB = -9999.0
"""What vLLM writes where a log-probability is minus infinity or was not computed."""

_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

_FINISH_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "complete": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "prohibited_content": "content_filter",
}
_BROKEN_OFF = frozenset({"error", "abort", "aborted", "cancelled", "insufficient_system_resource"})
"""Finish reasons with which OpenRouter, Mistral, vLLM and DeepSeek hand over what they had when they failed."""

_CALLABLE = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class WireOptions:
    """How one endpoint wants its requests."""

    structured: StructuredMode = "json_schema"
    """``response_format`` it understands. Below ``json_schema`` the schema is told in the system prompt."""
    limit_field: LimitField = "max_tokens"
    send_seed: bool = True
    send_temperature: bool = True
    """Off for models that take none but their own."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a reply says, before anybody knows what it cost."""

    message: Message
    finish_reason: FinishReason
    model: str | None
    response_id: str | None
    token_logprobs: tuple[float, ...] | None


def encode_request(request: ChatRequest, options: WireOptions) -> bytes:
    """The body of ``POST /chat/completions``: compact UTF-8 JSON."""
    body = _parts(request, request.messages, options.limit_field)
    if not options.send_temperature:
        del body["temperature"]
    if request.seed is not None and options.send_seed:
        body["seed"] = request.seed
    schema = request.answer_schema
    if schema is not None:
        if options.structured == "json_schema":
            body["response_format"] = _response_format(schema)
        else:
            body["messages"] = [_encode_message(message) for message in _with_schema_told(request.messages, schema)]
        if options.structured == "json_object":
            body["response_format"] = {"type": "json_object"}
    # Lone surrogates come in with datasets and tool output; no UTF-8 can carry them.
    return _COMPACT.encode(body).encode("utf-8", "replace")


def request_digest(request: ChatRequest) -> str:
    """16 hex digits that name the content of a request, whatever endpoint it goes to."""
    content = _parts(request, request.messages, "max_tokens")
    if request.seed is not None:
        content["seed"] = request.seed
    if request.answer_schema is not None:
        content["response_format"] = _response_format(request.answer_schema)
    return sha256_hex(canonical_json(content).encode("utf-8", "surrogatepass"))[:16]


def messages_text(request: ChatRequest) -> str:
    """The messages alone, as JSON for people and traces."""
    return _COMPACT.encode([_encode_message(message) for message in request.messages])


def _parts(request: ChatRequest, messages: Sequence[Message], limit_field: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_encode_message(message) for message in messages],
        "temperature": request.temperature,
        limit_field: request.max_tokens,
    }
    if request.tools:
        body["tools"] = [encode_tool(tool) for tool in request.tools]
    if request.logprobs:
        body["logprobs"] = True
    return body


def _encode_message(message: Message) -> dict[str, Any]:
    encoded: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        encoded["tool_calls"] = [
            {"id": call.id, "type": "function", "function": _echoed(call)} for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        encoded["tool_call_id"] = message.tool_call_id
    return encoded


def _echoed(call: ToolCall) -> dict[str, str]:
    """A call of the model's, told back to it as history.

    Endpoints parse these and refuse the whole conversation for a call that is none: vLLM, SGLang, llama.cpp and Ollama
    for arguments that are no JSON object, OpenAI for names with odd characters. What the model wrote stays readable.
    """
    name = call.name if _CALLABLE.fullmatch(call.name) else re.sub(r"[^A-Za-z0-9_-]", "_", call.name)[:64] or "_"
    try:
        proper = isinstance(json.loads(call.arguments), dict)
    except (ValueError, RecursionError):
        proper = False
    return {"name": name, "arguments": call.arguments if proper else _COMPACT.encode({"malformed": call.arguments})}


def encode_tool(tool: ToolSpec) -> dict[str, Any]:
    """A tool as an endpoint is told of it, and as a chat template takes it."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _response_format(schema: AnswerSchema) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": {"name": schema.name, "strict": True, "schema": schema.schema},
    }


def _with_schema_told(messages: Sequence[Message], schema: AnswerSchema) -> tuple[Message, ...]:
    """The messages with the schema at the end of the system prompt (made, if there is none)."""
    told = "Answer with one JSON value and nothing else. It must be valid under this JSON schema:\n" + json.dumps(
        schema.schema, ensure_ascii=False
    )
    if messages and messages[0].role == "system":
        return (Message("system", f"{messages[0].content or ''}\n\n{told}"), *messages[1:])
    return (Message("system", told), *messages)


def parse_body(raw: bytes) -> Mapping[str, Any]:
    """The reply as a JSON object; ``ModelReplyMalformed`` if it is none."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ModelReplyMalformed(f"the reply is no JSON ({len(raw)} bytes)") from error
    if not isinstance(body, dict):
        raise ModelReplyMalformed(f"the reply is a JSON {type(body).__name__}, not an object")
    return body


def decode_usage(body: Mapping[str, Any]) -> Usage | None:
    """Tokens as counted by the endpoint; None when it sent no count that makes sense."""
    usage = _mapping(body.get("usage"))
    prompt, completion, total = (_count(usage.get(f"{kind}_tokens")) for kind in ("prompt", "completion", "total"))
    if completion is None and prompt is not None and total is not None and total >= prompt:
        completion = total - prompt
    if prompt is None or completion is None or prompt + completion == 0:
        return None
    details = _mapping(usage.get("prompt_tokens_details"))
    cached = _count(details.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))) or 0
    reasoning = _count(_mapping(usage.get("completion_tokens_details")).get("reasoning_tokens")) or 0
    return Usage(prompt, completion, cached=min(cached, prompt), reasoning=min(reasoning, completion))


def decode_answer(body: Mapping[str, Any]) -> Answer:
    """The first choice of a reply. ``ModelReplyMalformed`` if there is none, or it has neither text nor tool calls."""
    choice = _first_choice(body)
    reason = choice.get("finish_reason")
    if choice.get("error") or (isinstance(reason, str) and reason.lower() in _BROKEN_OFF):
        said = _said(choice.get("error")) or f"finish reason {reason}"
        raise ModelReplyMalformed(f"the reply broke off: {said}")
    message = choice.get("message")
    if not isinstance(message, dict):
        raise ModelReplyMalformed("the reply's choice holds no message")
    calls = _decode_tool_calls(message.get("tool_calls"))
    text = _decode_content(message.get("content"))
    finish = _decode_finish(choice.get("finish_reason"), has_calls=bool(calls))
    refusal = message.get("refusal")
    if not _says_something(text) and isinstance(refusal, str) and refusal.strip():
        text, finish = _clean(refusal), "content_filter"
    if not _says_something(text):
        if not calls:
            raise ModelReplyMalformed(f"the reply is empty (finish reason {finish}){_spent_on(body, message, finish)}")
        text = None
    return Answer(
        message=Message("assistant", text, tool_calls=calls),
        finish_reason=finish,
        model=_text_or_none(body.get("model")),
        response_id=_text_or_none(body.get("id")),
        token_logprobs=_decode_logprobs(choice.get("logprobs")),
    )


def is_spent(body: Mapping[str, Any]) -> bool:
    """Whether an empty reply would only come back: the token limit went elsewhere, or a filter took the answer."""
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return _decode_finish(_mapping(first).get("finish_reason"), has_calls=False) in {"length", "content_filter"}


def hidden_status(body: Mapping[str, Any]) -> int | None:
    """The status that an error behind a success status stands for, where it says so (OpenRouter); else None."""
    code = _mapping(body.get("error")).get("code") if not body.get("choices") else None
    if isinstance(code, str) and code.isascii() and code.isdigit():
        code = int(code[:4])
    return code if isinstance(code, int) and 400 <= code < 600 else None


def error_text(raw: bytes) -> str:
    """What an error body says: its ``error.message`` if it is shaped so, else the text itself."""
    text = raw.decode("utf-8", "replace")
    try:
        body = _mapping(json.loads(text))
    except (ValueError, RecursionError):
        return text
    error = body.get("error", body)
    message = _mapping(error).get("message", _mapping(error).get("detail"))
    for candidate in (message, error):
        if isinstance(candidate, str):
            return candidate
    return text


def _said(error: object) -> str:
    """What an error inside a reply says: its message, or its code."""
    if isinstance(error, str):
        return error
    said = _mapping(error).get("message") or _mapping(error).get("code")
    return str(said) if isinstance(said, str | int) else ""


def _spent_on(body: Mapping[str, Any], message: Mapping[str, Any], finish: FinishReason) -> str:
    """Why nothing is left of a reply that ran into its limit, where it can be told."""
    usage = decode_usage(body)
    thought = any(message.get(name) for name in ("reasoning_content", "reasoning", "thinking"))
    if finish == "length" and (thought or (usage is not None and usage.reasoning > 0)):
        return ": reasoning used up all its tokens; raise model.max_tokens"
    return ""


def _first_choice(body: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = body.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return choices[0]
    if body.get("error"):
        said = _said(body["error"]) or "without a text"
        raise ModelReplyMalformed(f"the reply is an error behind a success status: {said}")
    raise ModelReplyMalformed("the reply holds no choices")


def _decode_content(content: object) -> str | None:
    """Text of a message, given as a string, as nothing, or as a list of typed parts of which only text counts."""
    if content is None:
        return None
    if isinstance(content, str):
        return _clean(content)
    if isinstance(content, list):
        parts = [_mapping(part) for part in content]
        texts = [part["text"] for part in parts if isinstance(part.get("text"), str) and part.get("type") != "thinking"]
        return _clean("".join(texts))
    raise ModelReplyMalformed(f"the reply's content is a JSON {type(content).__name__}")


def _decode_tool_calls(calls: object) -> tuple[ToolCall, ...]:
    if calls is None:
        return ()
    if not isinstance(calls, list):
        raise ModelReplyMalformed("the reply's tool calls are no list")
    decoded: list[ToolCall] = []
    taken: set[str] = set()
    for index, call in enumerate(calls):
        decoded.append(_decode_tool_call(call, index, taken))
        taken.add(decoded[-1].id)
    return tuple(decoded)


def _decode_tool_call(call: object, index: int, taken: set[str]) -> ToolCall:
    """One call. A missing or repeated id is replaced by one made from place and content, equal on every replay."""
    function = _mapping(_mapping(call).get("function"))
    name = _text_or_none(function.get("name"))
    if name is None:
        raise ModelReplyMalformed("a tool call of the reply names no function")
    arguments = function.get("arguments")
    if arguments is None or arguments == "":
        text = "{}"
    else:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    text = _clean(text)
    given = _text_or_none(_mapping(call).get("id"))
    if given is not None and given not in taken:
        return ToolCall(given, name, text)
    return ToolCall(f"call_{sha256_hex(canonical_json([index, name, text]))[:12]}", name, text)


def _decode_finish(reason: object, *, has_calls: bool) -> FinishReason:
    """Why the reply ended. Tool calls with a plain stop (Ollama) or with no reason ended for the calls."""
    finish: FinishReason = _FINISH_REASONS.get(reason.lower(), "other") if isinstance(reason, str) else "other"
    return "tool_calls" if has_calls and finish in {"stop", "other"} else finish


def _decode_logprobs(logprobs: object) -> tuple[float, ...] | None:
    """One log-probability per token, or None unless every one of them is there and finite."""
    content = _mapping(logprobs).get("content")
    if not isinstance(content, list) or not content:
        return None
    values = [_mapping(token).get("logprob") for token in content]
    known = tuple(float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool))
    complete = len(known) == len(values) and all(math.isfinite(value) and value > _NO_LOGPROB for value in known)
    return known if complete else None


def _says_something(text: str | None) -> bool:
    return text is not None and bool(text.strip())


def _clean(text: str) -> str:
    """The text with lone surrogates replaced, so that every later encoding of it works."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return int(value)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text_or_none(value: object) -> str | None:
    return _clean(value) if isinstance(value, str) and value else None
