"""Dialects of the service; this is chat completions. A stream is a rendering of the finished completion."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from tfgrpo.tasks.models.simulated.engine import CHARS_PER_TOKEN

_PIECE: Final = 4 * CHARS_PER_TOKEN
"""Characters of one delta."""
Event: TypeAlias = Mapping[str, Any] | str
"""Data of one server-sent event."""


def encoded(value: object) -> bytes:
    """Return compact UTF-8 JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def framed(event: Event) -> bytes:
    """Return a server-sent event, named by the type in its data."""
    if isinstance(event, str):
        return f"data: {event}\n\n".encode()
    name = f"event: {event['type']}\n".encode() if "type" in event else b""
    return b"%sdata: %s\n\n" % (name, encoded(event))


def pieces(text: str) -> list[str]:
    """Cut a text into the deltas of a stream."""
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


class SimulatedChat:
    """``/chat/completions``; the other dialects (``translations``) are what differs from it."""

    def translated(self, value: Any) -> Any:
        """Return the chat request that asks the same. Raises pydantic's ``ValidationError``."""
        return value

    def reply(self, completion: Mapping[str, Any], asked: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
        """Return a chat completion as the answer to a request."""
        return completion

    def error(self, status: int, body: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
        """Return an error body, as ``error_body`` makes it, in the form of the dialect."""
        return body

    def events(self, completion: Mapping[str, Any], asked: Mapping[str, Any]) -> Iterator[Event]:
        """Yield the answer as a stream: role, text, one call each, finish reason, usage if asked for; then ``[DONE]``."""
        choice, usage = completion["choices"][0], (asked.get("stream_options") or {}).get("include_usage")
        common = {key: completion[key] for key in ("id", "created", "model", "system_fingerprint")}
        common["object"] = "chat.completion.chunk"
        if usage:
            common["usage"] = None

        def chunk(delta: Mapping[str, Any], logprobs: object = None, finish: str | None = None) -> Event:
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
