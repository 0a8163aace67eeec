"""What does a reply of the OpenAI chat-completions protocol say? JSON to answers and token counts.

The vendors' known liberties (vLLM, Ollama, gateways) are read for what they mean; anything else is
``ModelReplyMalformed``. Knows no prices and decides nothing about asking again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.errors import ModelReplyMalformed
from tfgrpo.stores.numeric import MAX_SAFE_INTEGER, count_or_none
from tfgrpo.tasks.models.base import CUT_OFF, FinishReason, Message, ToolCall, Usage

_FAR, _FAR_TOKENS = 10, 100_000
_NO_LOGPROB = -9999.0
"""What vLLM writes where a log-probability is minus infinity or was not computed."""

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
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details", "extra_content")
"""Where DeepSeek and Kimi, vLLM, OpenRouter, and Gemini put them in a message."""
_BROKEN_OFF = frozenset({"error", "abort", "aborted", "cancelled", "insufficient_system_resource"})
"""Finish reasons with which OpenRouter, Mistral, vLLM and DeepSeek hand over what they had when they failed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a reply says, before anybody knows what it cost."""

    message: Message
    finish_reason: FinishReason
    model: str | None
    response_id: str | None
    token_logprobs: tuple[float, ...] | None


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
    prompt, completion, total = (
        count_or_none(usage.get(f"{kind}_tokens")) for kind in ("prompt", "completion", "total")
    )
    if prompt is not None and total is not None and total >= prompt + (completion or 0):
        # Some count reasoning in the total alone (xAI, gateways to Gemini), and it is paid for like any completion.
        completion = total - prompt
    details = _mapping(usage.get("prompt_tokens_details"))
    cached = details.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))
    return usage_of(
        [prompt, completion, cached, _mapping(usage.get("completion_tokens_details")).get("reasoning_tokens")]
    )


def usage_of(counts: object) -> Usage | None:
    """Usage from prompt, completion, cached and reasoning tokens; None when the first two make no sense."""
    if not isinstance(counts, list) or len(counts) != 4:
        return None
    prompt, completion, cached, reasoning = map(count_or_none, counts)
    if prompt is None or completion is None or prompt + completion == 0:
        return None
    return Usage(prompt, completion, cached=min(cached or 0, prompt), reasoning=min(reasoning or 0, completion))


def believable(usage: Usage, bound: int) -> bool:
    """False for tokens far above ``bound``, the most that the request could use by its length and its limit.

    What an endpoint adds by itself (templates, hidden reasoning, results of its own tools) stays below ten times that, or
    below 100,000 tokens.
    """
    return usage.total <= max(_FAR * bound, _FAR_TOKENS)


def decode_answer(body: Mapping[str, Any]) -> Answer:
    """The first choice of a reply. ``ModelReplyMalformed`` if there is none, or it has neither text nor tool calls."""
    choice = _first_choice(body)
    reason = choice.get("finish_reason")
    if choice.get("error") or (isinstance(reason, str) and reason.lower() in _BROKEN_OFF):
        said = _error_text(choice.get("error")) or f"finish reason {reason}"
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
        message=Message("assistant", text, tool_calls=calls, extra=_extra(message, _THOUGHTS) if calls else ""),
        finish_reason=finish,
        model=_text_or_none(body.get("model")),
        response_id=_text_or_none(body.get("id")),
        token_logprobs=_decode_logprobs(choice.get("logprobs")),
    )


def is_spent(body: Mapping[str, Any]) -> bool:
    """Whether an empty reply would only come back: the token limit went elsewhere, or a filter took the answer."""
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return _decode_finish(_mapping(first).get("finish_reason"), has_calls=False) in CUT_OFF


def _error_text(error: object) -> str:
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
        said = _error_text(body["error"]) or "without a text"
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
    if given is None or given in taken:
        given = sha256_hex(canonical_json([index, name, text]))[:9]  # Mistral takes nine letters and digits, no more
    return ToolCall(given, name, text, _extra(_mapping(call), ("extra_content",)))


def _extra(sent: Mapping[str, Any], names: Sequence[str]) -> str:
    """Those fields of what was sent, as JSON; they go back as they came, even when empty."""
    fields = {name: sent[name] for name in names if sent.get(name) is not None}
    return _clean(json.dumps(fields, ensure_ascii=False, separators=(",", ":"))) if fields else ""


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
    known = tuple(
        float(value)
        for value in values
        if isinstance(value, int | float) and not isinstance(value, bool) and _NO_LOGPROB < value <= MAX_SAFE_INTEGER
    )
    return known if len(known) == len(values) else None


def _says_something(text: str | None) -> bool:
    return text is not None and bool(text.strip())


def _clean(text: str) -> str:
    """The text with lone surrogates replaced, so that every later encoding of it works."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text_or_none(value: object) -> str | None:
    return _clean(value) if isinstance(value, str) and value else None
