"""Translate requests and replies to and from the JSON of the OpenAI chat-completions protocol.

Known deviations of vendors (vLLM, Ollama, gateways) are understood; any other reply is ``ModelReplyMalformed``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tfgrpo.pipelines.settings.tree import ModelSettings
from tfgrpo.stores.errors import ModelReplyMalformed
from tfgrpo.stores.json_values import canonical_json, compact_json, json_of, mapping_of, sha256_hex
from tfgrpo.stores.numeric import MAX_SAFE_INTEGER, as_list, count_or_none, is_number
from tfgrpo.tasks.models.base import (
    CUT_OFF,
    AnswerSchema,
    ChatReply,
    ChatRequest,
    FinishReason,
    Message,
    TokenUsage,
    ToolCall,
    ToolSpec,
)

# vLLM's value for a log-probability that is minus infinity or was not computed.
_NO_LOGPROB = -9999.0
_VENDOR_REASONS: Mapping[FinishReason, tuple[str, ...]] = {
    "stop": ("stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete"),
    "length": ("length", "max_tokens", "max_output_tokens", "model_length"),
    "tool_calls": ("tool_calls", "tool_use", "function_call"),
    "content_filter": ("content_filter", "safety", "recitation", "prohibited_content"),
}
_FINISH_REASONS = {word: reason for reason, words in _VENDOR_REASONS.items() for word in words}
# Fields of a message with the reasoning of DeepSeek and Kimi, vLLM, OpenRouter, and Gemini.
_REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details", "extra_content")
# Finish reasons of OpenRouter, Mistral, vLLM and DeepSeek for a partial answer after a failure.
_FAILED_REASONS = frozenset({"error", "abort", "aborted", "cancelled", "insufficient_system_resource"})


def encode_request(request: ChatRequest, options: ModelSettings, *, reasoning: bool = True) -> bytes:
    """Return the body of ``POST /chat/completions``, or ``/embeddings``, as the endpoint wants it: compact UTF-8 JSON.

    With ``reasoning`` a model gets its own back with the tool calls that it made, as DeepSeek and Gemini require.
    """
    if not reasoning:
        request = replace(request, messages=tuple(map(_without_reasoning, request.messages)))
    if request.embeds:
        return compact_json(_embedded_fields(request) | {"encoding_format": "float"}).encode("utf-8", "replace")
    body = _fields(request, options.max_tokens_field)
    if not options.send_temperature:
        del body["temperature"]
    if request.seed is not None and options.send_seed:
        body["seed"] = request.seed
    schema = request.answer_schema
    if schema is not None and options.structured == "json_schema":
        body["response_format"] = _response_format(schema)
    elif schema is not None:
        text = json.dumps(schema.schema, ensure_ascii=False)
        advice = f"Answer with one JSON value and nothing else. It must be valid under this JSON schema:\n{text}"
        # At the end of the system message: many chat templates refuse a second one.
        if (first := body["messages"][0])["role"] == "system":
            first["content"] = f"{first['content'] or ''}\n\n{advice}"
        else:
            body["messages"].insert(0, {"role": "system", "content": advice})
        if options.structured == "json_object":
            body["response_format"] = {"type": "json_object"}
    body |= options.extra_body
    # Datasets and tool output may hold lone surrogates, which UTF-8 cannot encode.
    return compact_json(body).encode("utf-8", "replace")


def request_digest(request: ChatRequest) -> str:
    """Return 16 hex digits for the content of a request, independent of the endpoint's wire options."""
    content = _embedded_fields(request) if request.embeds else _fields(request, "max_tokens")
    if request.seed is not None:
        content["seed"] = request.seed
    if request.answer_schema is not None:
        content["response_format"] = _response_format(request.answer_schema)
    return sha256_hex(canonical_json(content).encode("utf-8", "surrogatepass"))[:16]


def messages_text(request: ChatRequest) -> str:
    """Return the messages alone, as JSON for traces."""
    return compact_json([_encode_message(message) for message in request.messages])


def _fields(request: ChatRequest, limit_field: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_encode_message(message) for message in request.messages],
        "temperature": request.temperature,
        limit_field: request.max_tokens,
    }
    if request.tools:
        body["tools"] = [encode_tool(tool) for tool in request.tools]
    if request.logprobs:
        body["logprobs"] = True
    return body


def _embedded_fields(request: ChatRequest) -> dict[str, Any]:
    return {"model": request.model, "input": [message.content for message in request.messages]}


def _encode_message(message: Message) -> dict[str, Any]:
    encoded: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        # DeepSeek, Gemini, Kimi and OpenRouter refuse, or forget, a tool call without its reasoning.
        encoded |= json.loads(message.extra or "{}")
        encoded["tool_calls"] = [json.loads(call.extra or "{}") | _echoed(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        encoded["tool_call_id"] = message.tool_call_id
    return encoded


def _without_reasoning(message: Message) -> Message:
    return replace(message, tool_calls=tuple(replace(call, extra="") for call in message.tool_calls), extra="")


def _echoed(call: ToolCall) -> dict[str, Any]:
    # Endpoints refuse the whole conversation for a malformed call in it: OpenAI for other characters in a name, and vLLM,
    # SGLang, llama.cpp and Ollama for arguments that are no JSON object.
    name = re.sub(r"[^A-Za-z0-9_-]", "_", call.name)[:64] or "_"
    valid = isinstance(json_of(call.arguments), dict)
    return called(call.id, name, call.arguments if valid else compact_json({"malformed": call.arguments}))


def called(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Return a tool call of a chat message."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def encode_tool(tool: ToolSpec) -> dict[str, Any]:
    """Return a tool in the form of the protocol, which chat templates take too."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _response_format(schema: AnswerSchema) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": schema.name, "strict": True, "schema": schema.schema}}


def decode_usage(body: Mapping[str, Any]) -> TokenUsage | None:
    """Return the tokens that the endpoint counted; None when it sent no valid count."""
    usage = mapping_of(body.get("usage"))
    prompt, completion, total = (count_or_none(usage.get(f"{kind}_tokens")) for kind in ("prompt", "completion", "total"))
    # Embeddings have no completion.
    if "data" in body and "completion_tokens" not in usage:
        completion = 0
    if prompt is not None and total is not None and total >= prompt + (completion or 0):
        # Some count reasoning in the total alone (xAI, gateways to Gemini); it is charged like any completion.
        completion = total - prompt
    details = mapping_of(usage.get("prompt_tokens_details"))
    cached = details.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))
    return usage_of([prompt, completion, cached, mapping_of(usage.get("completion_tokens_details")).get("reasoning_tokens")])


def usage_of(counts: object) -> TokenUsage | None:
    """Return usage from prompt, completion, cached and reasoning tokens; None when the first two are not valid."""
    if not isinstance(counts, list) or len(counts) != 4:
        return None
    prompt, completion, cached, reasoning = map(count_or_none, counts)
    if prompt is None or completion is None or prompt + completion == 0:
        return None
    return TokenUsage(prompt, completion, cached=min(cached or 0, prompt), reasoning=min(reasoning or 0, completion))


def decode_reply(body: Mapping[str, Any]) -> ChatReply:
    """Decode the first choice. Raises ``ModelReplyMalformed`` without one, or if it has neither text nor tool calls."""
    choice = _first_choice(body)
    reason = choice.get("finish_reason")
    if choice.get("error") or (isinstance(reason, str) and reason.lower() in _FAILED_REASONS):
        cause = _error_text(choice.get("error")) or f"finish reason {reason}"
        raise ModelReplyMalformed(f"the reply broke off: {cause}")
    message = choice.get("message")
    if not isinstance(message, dict):
        raise ModelReplyMalformed("the reply's choice holds no message")
    calls = _decode_tool_calls(message.get("tool_calls"))
    text = _decode_content(message.get("content"))
    finish = _decode_finish(reason, has_calls=bool(calls))
    refusal = message.get("refusal")
    if not (text or "").strip() and isinstance(refusal, str) and refusal.strip():
        text, finish = _clean(refusal), "content_filter"
    if not (text or "").strip():
        if not calls:
            usage = decode_usage(body)
            reasoned = any(message.get(name) for name in ("reasoning_content", "reasoning", "thinking"))
            spent = finish == "length" and (reasoned or (usage is not None and usage.reasoning > 0))
            why = ": reasoning used up all its tokens; raise model.max_tokens" if spent else ""
            raise ModelReplyMalformed(f"the reply is empty (finish reason {finish}){why}")
        text = None
    return ChatReply(
        message=Message("assistant", text, tool_calls=calls, extra=_kept_fields(message, _REASONING_FIELDS) if calls else ""),
        finish_reason=finish,
        model=_text_or_none(body.get("model")) or "",
        response_id=_text_or_none(body.get("id")),
        token_logprobs=_decode_logprobs(choice.get("logprobs")),
    )


def decode_embeddings(body: Mapping[str, Any], count: int) -> ChatReply:
    """Decode ``count`` vectors into a reply whose text is a JSON list of them. Raises ``ModelReplyMalformed``."""
    rows = [mapping_of(row) for row in as_list(body.get("data")) or ()]
    vectors = {row.get("index"): as_list(row.get("embedding")) or [] for row in rows}
    lengths = {len(vector) for vector in vectors.values()}
    numbers = all(is_number(each, allow_nan=False) for vector in vectors.values() for each in vector)
    if len(rows) != count or vectors.keys() != {*range(count)} or len(lengths) != 1 or 0 in lengths or not numbers:
        raise ModelReplyMalformed(f"the reply has no vector of finite numbers for each of {count} texts")
    message = Message("assistant", compact_json([vectors[at] for at in range(count)]))
    return ChatReply(message, "stop", model=_text_or_none(body.get("model")) or "")


def repeats_empty(body: Mapping[str, Any]) -> bool:
    """Whether another attempt at an empty reply would be empty too: the token limit was reached, or a filter applied."""
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return _decode_finish(mapping_of(first).get("finish_reason"), has_calls=False) in CUT_OFF


def _error_text(error: object) -> str:
    if isinstance(error, str):
        return error
    text = mapping_of(error).get("message") or mapping_of(error).get("code")
    return str(text) if isinstance(text, str | int) else ""


def _first_choice(body: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = body.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return choices[0]
    if body.get("error"):
        text = _error_text(body["error"]) or "without a text"
        raise ModelReplyMalformed(f"the reply is an error behind a success status: {text}")
    raise ModelReplyMalformed("the reply holds no choices")


def _decode_content(content: object) -> str | None:
    if content is None or isinstance(content, str):
        return content and _clean(content)
    # Mistral sends a list of typed parts, of which only text is read.
    if isinstance(content, list):
        parts = [mapping_of(part) for part in content]
        texts = [part["text"] for part in parts if isinstance(part.get("text"), str) and part.get("type") != "thinking"]
        return _clean("".join(texts))
    raise ModelReplyMalformed(f"the reply's content is a JSON {type(content).__name__}")


def _decode_tool_calls(calls: object) -> tuple[ToolCall, ...]:
    if calls is None:
        return ()
    if not isinstance(calls, list):
        raise ModelReplyMalformed("the reply's tool calls are no list")
    decoded: dict[str, ToolCall] = {}
    for index, call in enumerate(map(mapping_of, calls)):
        function = function_of(call)
        name = _text_or_none(function.get("name"))
        if name is None:
            raise ModelReplyMalformed("a tool call of the reply names no function")
        arguments = function.get("arguments")
        if arguments is None or arguments == "":
            arguments = {}
        text = _clean(arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False))
        call_id = _text_or_none(call.get("id"))
        if call_id is None or call_id in decoded:
            # Equal on every replay. Mistral accepts exactly nine letters and digits.
            call_id = sha256_hex(canonical_json([index, name, text]))[:9]
        decoded[call_id] = ToolCall(call_id, name, text, _kept_fields(call, ("extra_content",)))
    return tuple(decoded.values())


def function_of(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return name and arguments of a call, also of one of a custom tool, whose input is a text."""
    custom = mapping_of(call.get("custom"))
    return {"name": custom.get("name"), "arguments": custom.get("input")} if custom else mapping_of(call.get("function"))


def _kept_fields(sent: Mapping[str, Any], names: Sequence[str]) -> str:
    # As they were sent, to be sent back unchanged, even when empty.
    fields = {name: sent[name] for name in names if sent.get(name) is not None}
    return _clean(json.dumps(fields, ensure_ascii=False, separators=(",", ":"))) if fields else ""


def _decode_finish(reason: object, *, has_calls: bool) -> FinishReason:
    finish: FinishReason = _FINISH_REASONS.get(reason.lower(), "other") if isinstance(reason, str) else "other"
    # With a mere stop (Ollama), or with no reason, a reply with tool calls ended for these.
    return "tool_calls" if has_calls and finish in {"stop", "other"} else finish


def _decode_logprobs(logprobs: object) -> tuple[float, ...] | None:
    content = mapping_of(logprobs).get("content")
    if not isinstance(content, list) or not content:
        return None
    values: list[Any] = [mapping_of(token).get("logprob") for token in content]
    numbers = all(is_number(each, allow_nan=False) and _NO_LOGPROB < each <= MAX_SAFE_INTEGER for each in values)
    # All or none: a sum over some of the tokens would be no likelihood.
    return tuple(map(float, values)) if numbers else None


def _clean(text: str) -> str:
    # Lone surrogates, which no UTF-8 can encode, are replaced.
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _text_or_none(value: object) -> str | None:
    return _clean(value) if isinstance(value, str) and value else None
