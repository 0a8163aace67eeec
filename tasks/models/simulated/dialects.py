"""Dialects of the service: what translates a vendor's requests into chat requests, and renders completions in its form.

A stream is a rendering of the finished completion.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from tfgrpo.tasks.models.simulated.engine import CHARS_PER_TOKEN

_PIECE: Final = 4 * CHARS_PER_TOKEN
"""Characters of one delta."""
Event: TypeAlias = Mapping[str, Any] | str
"""Data of one server-sent event."""


def encoded(value: object) -> bytes:
    """Return compact UTF-8 JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def framed(event: Event, *, cut: bool = False) -> bytes:
    """Return a server-sent event, named by the type in its data; ``cut``: with half of its data."""
    payload = event.encode() if isinstance(event, str) else encoded(event)
    name = f"event: {event['type']}\n".encode() if not isinstance(event, str) and "type" in event else b""
    return b"%sdata: %s\n\n" % (name, payload[: len(payload) // 2] if cut else payload)


def pieces(text: str) -> list[str]:
    """Cut a text into the deltas of a stream."""
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def assistant_turn(text: str, calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a chat message of the assistant; ``calls`` as ``called`` makes them."""
    turn: dict[str, Any] = {"role": "assistant", "content": text or None if calls else text}
    return {**turn, "tool_calls": list(calls)} if calls else turn


class ChatDialect:
    """``/chat/completions``; the other dialects are what differs from it."""

    def translated(self, value: Any) -> Any:
        """Return the chat request that asks the same, with ``stream``. Raises pydantic's ``ValidationError``."""
        return value

    def reply(self, completion: Mapping[str, Any], asked: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
        """Return a chat completion as the answer to a request."""
        return completion

    def error(self, status: int, body: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
        """Return an error body, as ``error_body`` makes it, in the form of the dialect."""
        return body

    def broken(self, body: Mapping[str, Any], sent: int) -> Event:  # noqa: ARG002
        """Return the event with which a stream fails after ``sent`` events."""
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
