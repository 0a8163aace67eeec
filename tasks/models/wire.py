"""What does a request of the OpenAI chat-completions protocol look like on the wire? Requests to JSON.

Strict in what is sent. Sends nothing, retries nothing and knows no prices; what comes back is read in ``replies``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.tasks.models.base import AnswerSchema, ChatRequest, Message, ToolCall, ToolSpec

StructuredMode: TypeAlias = Literal["json_schema", "json_object", "none"]
LimitField: TypeAlias = Literal["max_tokens", "max_completion_tokens"]

_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

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
    send_reasoning: bool = True
    """Off for endpoints that refuse to see again what they sent beside a tool call, as Groq does."""


def encode_request(request: ChatRequest, options: WireOptions) -> bytes:
    """The body of ``POST /chat/completions``: compact UTF-8 JSON."""
    messages = request.messages if options.send_reasoning else tuple(map(_without_extra, request.messages))
    body = _parts(request, messages, options.limit_field)
    if not options.send_temperature:
        del body["temperature"]
    if request.seed is not None and options.send_seed:
        body["seed"] = request.seed
    schema = request.answer_schema
    if schema is not None:
        if options.structured == "json_schema":
            body["response_format"] = _response_format(schema)
        else:
            body["messages"] = [_encode_message(message) for message in _with_schema_told(messages, schema)]
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
        encoded |= _extra(message.extra)
        encoded["tool_calls"] = [
            {**_extra(call.extra), "id": call.id, "type": "function", "function": _echoed(call)}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        encoded["tool_call_id"] = message.tool_call_id
    return encoded


def _extra(text: str) -> dict[str, Any]:
    """Fields to be echoed. DeepSeek, Gemini, Kimi and OpenRouter refuse, or forget, a tool call without its thoughts."""
    return json.loads(text) if text else {}


def _without_extra(message: Message) -> Message:
    calls = tuple(replace(call, extra="") for call in message.tool_calls)
    return replace(message, tool_calls=calls, extra="")


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
