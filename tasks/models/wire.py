"""Encode a request of the OpenAI chat-completions protocol as JSON, and compute the digest that names it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tfgrpo.pipelines.settings.model import ModelSettings
from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.tasks.models.base import AnswerSchema, ChatRequest, Message, ToolCall, ToolSpec
from tfgrpo.tasks.models.replies import json_of

_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

_FUNCTION_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def encode_request(request: ChatRequest, options: ModelSettings) -> bytes:
    """Return the body of ``POST /chat/completions`` as the endpoint wants it: compact UTF-8 JSON."""
    messages = request.messages if options.send_reasoning else tuple(map(_without_extra, request.messages))
    body = _fields(request, messages, options.max_tokens_field)
    if not options.send_temperature:
        del body["temperature"]
    if request.seed is not None and options.send_seed:
        body["seed"] = request.seed
    schema = request.answer_schema
    if schema is not None:
        if options.structured == "json_schema":
            body["response_format"] = _response_format(schema)
        else:
            body["messages"] = [_encode_message(message) for message in _with_schema(messages, schema)]
        if options.structured == "json_object":
            body["response_format"] = {"type": "json_object"}
    # Datasets and tool output may hold lone surrogates, which UTF-8 cannot encode.
    return _COMPACT.encode(body).encode("utf-8", "replace")


def request_digest(request: ChatRequest) -> str:
    """Return 16 hex digits for the content of a request, independent of the endpoint's wire options."""
    content = _fields(request, request.messages, "max_tokens")
    if request.seed is not None:
        content["seed"] = request.seed
    if request.answer_schema is not None:
        content["response_format"] = _response_format(request.answer_schema)
    return sha256_hex(canonical_json(content).encode("utf-8", "surrogatepass"))[:16]


def messages_text(request: ChatRequest) -> str:
    """Return the messages alone, as JSON for traces."""
    return _COMPACT.encode([_encode_message(message) for message in request.messages])


def _fields(request: ChatRequest, messages: Sequence[Message], limit_field: str) -> dict[str, Any]:
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
    """Fields to be echoed. DeepSeek, Gemini, Kimi and OpenRouter refuse, or forget, a tool call without its reasoning."""
    return json.loads(text) if text else {}


def _without_extra(message: Message) -> Message:
    calls = tuple(replace(call, extra="") for call in message.tool_calls)
    return replace(message, tool_calls=calls, extra="")


def _echoed(call: ToolCall) -> dict[str, str]:
    """A call of the model's as history for it.

    Endpoints parse these and refuse the whole conversation for a malformed one: vLLM, SGLang, llama.cpp and Ollama for
    arguments that are no JSON object, OpenAI for other characters in a name.
    """
    name = call.name if _FUNCTION_NAME.fullmatch(call.name) else re.sub(r"[^A-Za-z0-9_-]", "_", call.name)[:64] or "_"
    valid = isinstance(json_of(call.arguments), dict)
    return {"name": name, "arguments": call.arguments if valid else _COMPACT.encode({"malformed": call.arguments})}


def encode_tool(tool: ToolSpec) -> dict[str, Any]:
    """Return a tool in the form of the protocol, which chat templates take too."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _response_format(schema: AnswerSchema) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": schema.name, "strict": True, "schema": schema.schema}}


def _with_schema(messages: Sequence[Message], schema: AnswerSchema) -> tuple[Message, ...]:
    """The messages with the schema at the end of the system prompt, which is added if there is none."""
    text = json.dumps(schema.schema, ensure_ascii=False)
    advice = f"Answer with one JSON value and nothing else. It must be valid under this JSON schema:\n{text}"
    if messages and messages[0].role == "system":
        return (Message("system", f"{messages[0].content or ''}\n\n{advice}"), *messages[1:])
    return (Message("system", advice), *messages)
