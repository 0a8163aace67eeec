"""The OpenAI protocols of chat completions and embeddings as the gateway sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from tfgrpo.stores.errors import ModelReplyMalformed
from tfgrpo.stores.frozen_json import json_of, mapping_of
from tfgrpo.tasks.gateway.dialect import Dialect, ToolResultText, add_text, arguments_text, reply_of, rows, texts_of
from tfgrpo.tasks.gateway.splice import Document, Value
from tfgrpo.tasks.models.base import ChatReply
from tfgrpo.tasks.models.wire import decode_reply, decode_usage, function_of

_NO_CHOICES = re.compile(rb'"choices"(?:\s|data:)*:(?:\s|data:)*\[(?:\s|data:)*\]')
_SYSTEM = ("system", "developer")


class ChatDialect(Dialect):
    """``POST /chat/completions``."""

    path = "/chat/completions"
    limits: ClassVar[tuple[str, ...]] = ("max_completion_tokens", "max_tokens")
    sampling: ClassVar[tuple[str, ...]] = ("temperature", "seed")
    last = re.compile(rb"^\[DONE\]$")

    def add_lessons(self, request: Document, lessons: str) -> bool | None:
        """Append to the last of the first system messages, or put one in front."""
        messages = request.member("messages")
        if messages is None or not isinstance(messages.value, list):
            return None
        system: Value | None = None
        for message in request.elements(messages):
            if mapping_of(message.value).get("role") in _SYSTEM:
                system = message
            elif system is not None:
                break
        if system is None:
            request.prepend(messages, {"role": "system", "content": lessons})
            return False
        content = request.member_of(system, "content")
        if content is None:
            request.insert(system, "content", lessons)
            return True
        return add_text(request, content, lessons)

    def ask_for_usage(self, request: Document) -> bool:
        """Set ``stream_options.include_usage``."""
        options = request.member("stream_options")
        if options is None or not isinstance(options.value, dict):
            request.set("stream_options", {"include_usage": True})
            return True
        known = request.member_of(options, "include_usage")
        if known is None:
            request.insert(options, "include_usage", True)
        elif known.value is True:
            return False
        else:
            request.replace(known, True)
        return True

    def results(self, body: Mapping[str, Any]) -> Iterator[ToolResultText]:
        """Messages of the role ``tool``."""
        for message in rows(body.get("messages")):
            if message.get("role") == "tool":
                yield ToolResultText(str(message.get("tool_call_id")), texts_of(message.get("content")), error=False)

    def read(self, body: Mapping[str, Any]) -> ChatReply | None:
        """Read the first choice."""
        if not body.get("choices"):
            return None
        usage = decode_usage(body)
        try:
            return replace(decode_reply(body), usage=usage)
        except ModelReplyMalformed:  # empty, for example: whether that is an answer is the agent's to say
            failed = any(choice.get("error") for choice in rows(body["choices"]))
            return None if failed else reply_of("", (), "other", usage, body)

    def fold(self, events: Sequence[Mapping[str, Any]], *, ended: bool = False) -> Mapping[str, Any]:
        """Join the deltas of the first choice. The stream is whole with a finish reason, or content and ``[DONE]``."""
        body: dict[str, Any] = {}
        texts: list[str] = []
        calls: dict[object, dict[str, Any]] = {}
        finish: object = None
        for event in events:
            if event.get("error"):
                return {}
            for name in ("id", "model", "usage"):
                if value := event.get(name):
                    body[name] = value
            for choice in rows(event.get("choices")):
                if choice.get("index", 0) == 0:
                    delta = mapping_of(choice.get("delta"))
                    if content := delta.get("content"):
                        texts.append(texts_of(content))
                    if delta.get("tool_calls"):
                        _join_calls(calls, delta)
                    finish = choice.get("finish_reason") or finish
        if not (finish or (ended and (texts or calls))):
            return {}
        message = {"role": "assistant", "content": "".join(texts), "tool_calls": list(calls.values())}
        finish = finish or ("tool_calls" if calls else "stop")
        return {**body, "choices": [{"message": message, "finish_reason": finish}]}

    def is_plain(self, events: bytes) -> bool:
        """No ``[DONE]``, and no chunk without choices. Every chunk has a usage, most of them null."""
        return b"[DONE]" not in events and _NO_CHOICES.search(events) is None

    def is_usage_alone(self, data: bytes) -> bool:
        """A chunk with usage and without choices."""
        chunk = mapping_of(json_of(data)) if _NO_CHOICES.search(data) else {}
        return chunk.get("choices") == [] and isinstance(chunk.get("usage"), dict)


class EmbeddingsDialect(ChatDialect):
    """``POST /embeddings``: measured and bounded, with nothing to teach."""

    path = "/embeddings"
    limits = ()
    sampling = ()

    def add_lessons(self, request: Document, lessons: str) -> bool | None:  # noqa: ARG002
        """Add none."""
        return None

    add_to_user = add_lessons

    def read(self, body: Mapping[str, Any]) -> ChatReply | None:
        """Read the usage."""
        return reply_of("", (), "stop", decode_usage(body), body) if isinstance(body.get("data"), list) else None


def _join_calls(calls: dict[object, dict[str, Any]], delta: Mapping[str, Any]) -> None:
    """Add the pieces of tool calls. Some servers send no index, or whole calls, or the name with each piece."""
    for piece in rows(delta.get("tool_calls")):
        function, index, given = function_of(piece), piece.get("index"), piece.get("id")
        name, arguments = function.get("name") or "", function.get("arguments")
        if index is None:
            index = _place(calls, given, begins=bool(name))
        known = calls.get(index, {}).get("id")
        if known and given not in {None, "", known}:  # Gemini's endpoint gives several calls one index
            calls[index, known] = calls.pop(index)
        call = calls.setdefault(index, {"id": "", "function": {"name": "", "arguments": ""}})
        call["id"] = given or call["id"]
        if name != call["function"]["name"]:
            call["function"]["name"] += name
        call["function"]["arguments"] += "" if arguments is None else arguments_text(arguments)


def _place(calls: Mapping[object, Mapping[str, Any]], given: object, *, begins: bool) -> object:
    """Return the place of a piece without index: of the call with its id, or the last one; else of a new call."""
    places = [place for place, call in calls.items() if given and call["id"] == given]
    if not given and not begins:
        places = [*calls]
    return places[-1] if places else len(calls)
