"""The OpenAI responses protocol as the gateway sees it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfgrpo.stores.frozen_json import mapping_of
from tfgrpo.tasks.gateway.dialect import (
    Dialect,
    ToolResultText,
    add_text,
    add_to,
    arguments_text,
    reply_of,
    rows,
    texts_of,
)
from tfgrpo.tasks.gateway.splice import Document, Value
from tfgrpo.tasks.models.base import ChatReply, FinishReason, ToolCall
from tfgrpo.tasks.models.wire import usage_of

_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""Kinds of calls that the client answers, and the field of their arguments."""
_OUTPUTS = tuple(f"{kind}_output" for kind in _CALLS)

_LABELS = frozenset({"id", "internal_chat_message_metadata_passthrough"})
"""Of an item. The second is Codex's, with the time and the id of a turn."""


class ResponsesDialect(Dialect):
    """``POST /responses``."""

    path = "/responses"
    limits = ("max_output_tokens",)
    text_block = "input_text"
    last = re.compile(rb'"type"(?:\s|data:)*:(?:\s|data:)*"response\.(?:completed|incomplete|failed|cancelled)"')

    def add_lessons(self, request: Document, lessons: str) -> bool | None:
        """Append to ``instructions``, or to the system messages that start the input of an agent without any."""
        if (content := _opening(request)) is not None:
            return add_text(request, content, lessons, "input_text")
        listed = isinstance(request.value.get("instructions"), list)
        return None if listed else add_to(request, "instructions", lessons)

    def refusal(self, body: Mapping[str, Any]) -> str:
        """Return why a background response is not begun: its answer could not be fetched, and would be paid for."""
        return "the gateway has no background responses; accepted: background false" if body.get("background") else ""

    def remove_labels(self, request: Document) -> None:
        """Blank those of the items, too."""
        super().remove_labels(request)
        items = request.member("input")
        if items is None or all(_LABELS.isdisjoint(item) for item in rows(items.value)):
            return
        for item in request.elements(items):
            for name in _LABELS.intersection(item.value) if isinstance(item.value, dict) else ():
                # Of a client's own items the id is its own, too; that of others is the endpoint's.
                own = item.value.get("role", "assistant") != "assistant" or str(item.value.get("type")).endswith(
                    "_output"
                )
                if (label := request.member_of(item, name)) is not None and (name != "id" or own):
                    request.replace(label, None)

    def results(self, body: Mapping[str, Any]) -> Iterator[ToolResultText]:
        """Items that answer a call."""
        for entry in rows(body.get("input")):
            if entry.get("type") in _OUTPUTS:
                yield ToolResultText(str(entry.get("call_id")), texts_of(entry.get("output")), error=False)

    def read(self, body: Mapping[str, Any]) -> ChatReply | None:
        """Read the output of a completed or cut-off response."""
        status = body.get("status", "completed")
        if status not in {"completed", "incomplete"} or body.get("error") or not isinstance(body.get("output"), list):
            return None
        texts: list[str] = []
        calls: list[ToolCall] = []
        for entry in rows(body["output"]):
            kind = entry.get("type")
            if kind == "message":
                texts.append(texts_of(entry.get("content")))
            elif kind in _CALLS:
                arguments = arguments_text(entry.get(_CALLS[kind]))
                calls.append(ToolCall(str(entry.get("call_id")), str(entry.get("name")), arguments))
        reason = mapping_of(body.get("incomplete_details")).get("reason")
        finish: FinishReason = "tool_calls" if calls else "stop"
        if status == "incomplete":
            finish = "content_filter" if reason == "content_filter" else "length"
        usage = mapping_of(body.get("usage"))
        cached = mapping_of(usage.get("input_tokens_details")).get("cached_tokens")
        reasoning = mapping_of(usage.get("output_tokens_details")).get("reasoning_tokens")
        known = usage_of([usage.get("input_tokens"), usage.get("output_tokens"), cached, reasoning])
        return reply_of("".join(texts), calls, finish, known, body)

    def fold(self, events: Sequence[Mapping[str, Any]], *, ended: bool = False) -> Mapping[str, Any]:  # noqa: ARG002
        """Return the response in the last event. A stream with an error is none, as SDKs raise it."""
        last = {} if not events or any(event.get("type") == "error" for event in events) else events[-1]
        return mapping_of(last.get("response"))


def _opening(request: Document) -> Value | None:
    """Return the content of the last system message before the first other item, where that takes the lessons.

    Not if the endpoint keeps the conversation: later requests would lack the message, and get the lessons once more.
    """
    items, asked = request.member("input"), request.value
    if (
        asked.get("store") is not False
        or asked.get("instructions")
        or items is None
        or not isinstance(items.value, list)
    ):
        return None
    last = None
    for item in request.elements(items):
        if mapping_of(item.value).get("role") not in {"system", "developer"}:
            break
        last = item if "content" in item.value else last  # tools are offered in such an item, too
    return None if last is None else request.member_of(last, "content")
