"""The Anthropic messages protocol as the gateway sees it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfgrpo.stores.frozen_json import mapping_of
from tfgrpo.stores.numeric import count_or_none
from tfgrpo.tasks.gateway.dialect import Dialect, ToolResultText, add_to, arguments_text, reply_of, rows, texts_of
from tfgrpo.tasks.gateway.splice import Document
from tfgrpo.tasks.models.base import ChatReply, FinishReason, ToolCall
from tfgrpo.tasks.models.wire import usage_of

_FINISHES: Mapping[object, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class MessagesDialect(Dialect):
    """``POST /messages``."""

    path = "/messages"
    limits = ("max_tokens",)
    last = re.compile(rb'"type"(?:\s|data:)*:(?:\s|data:)*"message_stop"')

    def add_lessons(self, request: Document, lessons: str) -> bool | None:
        """Append to ``system``, a text or a list of blocks."""
        return add_to(request, "system", lessons)

    def results(self, body: Mapping[str, Any]) -> Iterator[ToolResultText]:
        """Blocks ``tool_result`` of user messages."""
        for message in rows(body.get("messages")):
            for block in rows(message.get("content")):
                if block.get("type") == "tool_result":
                    text, failed = texts_of(block.get("content")), block.get("is_error") is True
                    yield ToolResultText(str(block.get("tool_use_id")), text, failed)

    def read(self, body: Mapping[str, Any]) -> ChatReply | None:
        """Read the text and tool-use blocks."""
        if body.get("type") != "message" or not isinstance(body.get("content"), list):
            return None
        blocks = list(rows(body["content"]))
        text = "".join(texts_of([block]) for block in blocks if block.get("type") == "text")
        calls = [
            ToolCall(str(block.get("id")), str(block.get("name")), arguments_text(block.get("input")))
            for block in blocks
            if block.get("type") == "tool_use"
        ]
        usage = mapping_of(body.get("usage"))
        cached = count_or_none(usage.get("cache_read_input_tokens")) or 0
        written = count_or_none(usage.get("cache_creation_input_tokens")) or 0
        fresh = count_or_none(usage.get("input_tokens"))  # without what the cache read and took in, unlike OpenAI's
        prompt = None if fresh is None else fresh + cached + written
        known = usage_of([prompt, usage.get("output_tokens"), cached, None])
        return reply_of(text, calls, _FINISHES.get(body.get("stop_reason"), "other"), known, body)

    def fold(self, events: Sequence[Mapping[str, Any]], *, ended: bool = False) -> Mapping[str, Any]:  # noqa: ARG002
        """Join the deltas of the blocks. The stream is whole with its ``message_stop``."""
        body: dict[str, Any] = {}
        blocks: dict[object, dict[str, Any]] = {}
        for event in events:
            kind = event.get("type")
            if kind == "message_start":
                body = dict(mapping_of(event.get("message")))
            elif kind == "content_block_start":
                blocks[event.get("index")] = {**mapping_of(event.get("content_block")), "json": ""}
            elif kind == "content_block_delta":
                _join(blocks.setdefault(event.get("index"), {}), mapping_of(event.get("delta")))
            elif kind == "message_delta":
                body |= mapping_of(event.get("delta"))
                # Its counts are of the whole message, and take the place of those at its start.
                counted = {name: count for name, count in mapping_of(event.get("usage")).items() if count is not None}
                body["usage"] = {**mapping_of(body.get("usage")), **counted}
            elif kind == "error":
                return {}
        if not events or events[-1].get("type") != "message_stop":
            return {}
        for block in blocks.values():
            if written := block.pop("json", ""):
                block["input"] = written
        return {**body, "content": list(blocks.values())}

    def error(self, kind: str, message: str) -> dict[str, Any]:
        """Return an error of the Anthropic form."""
        return {"type": "error", "error": {"type": kind, "message": message}}


def _join(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add the piece of a text or of a tool's input."""
    for name, into in (("text", "text"), ("partial_json", "json")):
        if isinstance(delta.get(name), str):
            block[into] = block.get(into, "") + delta[name]
