"""The OpenAI responses protocol as the gateway sees it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from tfgrpo.tasks.gateway.chat import ChatDialect
from tfgrpo.tasks.gateway.dialect import ToolResultText, add_text, arguments_text, reply_of, rows, texts_of, usage_from
from tfgrpo.tasks.gateway.splice import Document
from tfgrpo.tasks.models.base import ChatReply, FinishReason, ToolCall
from tfgrpo.tasks.models.wire import mapping_of

_LAST = re.compile(rb'"type"\s*:\s*"response\.(?:completed|incomplete|failed|cancelled)"')
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""Kinds of calls that the client answers, and the field of their arguments."""


class ResponsesDialect(ChatDialect):
    """``POST /responses``. Its errors are those of the chat protocol."""

    path: ClassVar[str] = "/responses"
    limits: ClassVar[tuple[str, ...]] = ("max_output_tokens",)
    sampling: ClassVar[tuple[str, ...]] = ("temperature",)

    def add_lessons(self, request: Document, lessons: str) -> bool:
        """Append to ``instructions``."""
        instructions = request.member("instructions")
        if instructions is None:
            request.set("instructions", lessons)
            return True
        return not isinstance(instructions.value, list) and add_text(request, instructions, lessons)

    def ask_for_usage(self, request: Document) -> bool:  # noqa: ARG002
        """Do nothing: the last event holds it."""
        return False

    def results(self, body: Mapping[str, Any]) -> Iterator[ToolResultText]:
        """Items that answer a call."""
        for entry in rows(body.get("input")):
            if entry.get("type") in {f"{kind}_output" for kind in _CALLS}:
                yield ToolResultText(str(entry.get("call_id")), texts_of(entry.get("output")), error=False)

    def tools(self, body: Mapping[str, Any]) -> set[str]:
        """Names of functions and custom tools."""
        return {str(tool.get("name")) for tool in rows(body.get("tools"))}

    def read(self, body: Mapping[str, Any]) -> ChatReply | None:
        """Read the output of a completed or cut-off response."""
        status = body.get("status", "completed")
        if status not in {"completed", "incomplete"} or not isinstance(body.get("output"), list):
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
        known = usage_from(
            usage.get("input_tokens"),
            usage.get("output_tokens"),
            mapping_of(usage.get("input_tokens_details")).get("cached_tokens"),
            mapping_of(usage.get("output_tokens_details")).get("reasoning_tokens"),
        )
        return reply_of("".join(texts), calls, finish, known, body)

    def fold(self, events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the response in the last event."""
        last = events[-1] if events else {}
        return mapping_of(last.get("response"))

    def ends(self, data: bytes) -> bool:
        """An event of the final state."""
        return _LAST.search(data) is not None

    def is_usage_alone(self, data: bytes) -> bool:  # noqa: ARG002
        """Never."""
        return False
