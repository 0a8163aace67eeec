"""The protocols of agents: where lessons go, what a reply says, and how errors look.

A request is changed in single values; every other byte stays: order, spelling, white space, unknown fields.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from tfgrpo.stores.errors import ModelReplyMalformed
from tfgrpo.stores.json_values import compact_json, json_of, mapping_of
from tfgrpo.stores.numeric import count_or_none
from tfgrpo.tasks.models.base import ChatReply, FinishReason, Message, TokenUsage, ToolCall
from tfgrpo.tasks.models.wire import decode_reply, decode_usage, function_of, usage_of

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODE = json.JSONDecoder().raw_decode


class Value(NamedTuple):
    """A value and where its text is."""

    start: int
    end: int
    value: Any


class Document:
    """A JSON object as text, and the changes to it. Raises ``ValueError`` for bytes that are no JSON object."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        """As it came in."""
        self._text = raw.decode("utf-8")
        self._edits: list[tuple[int, int, str]] = []
        try:
            start = self._skip(0)
            members = dict(self._members(start))
            # Not the end of the last one: of two members with one name the second is in the place of the first.
            end = self._skip(max((span.end for span in members.values()), default=start + 1)) + 1
            if self._text[end:].strip(" \t\n\r"):
                raise ValueError("text after the JSON object")
        except (IndexError, RecursionError) as error:
            raise ValueError("no JSON object") from error
        self._spans = members
        self.value: dict[str, Any] = {name: span.value for name, span in members.items()}
        self.root = Value(start, end, self.value)

    def member(self, name: str) -> Value | None:
        """Return a member; of several with one name the last, as parsers do."""
        return self._spans.get(name)

    def member_of(self, of: Value, name: str) -> Value | None:
        """Return a member of an object within."""
        return dict(self._members(of.start)).get(name)

    def elements(self, of: Value) -> Iterator[Value]:
        """Yield the elements of an array within."""
        at = self._skip(of.start + 1)
        while self._text[at] != "]":
            value, end = _DECODE(self._text, at)
            yield Value(at, end, value)
            at = self._after(end)

    def set(self, name: str, value: object) -> None:
        """Replace a member, or add it as the last."""
        known = self._spans.get(name)
        if known is None:
            self.insert(self.root, name, value)
        else:
            self.replace(known, value)

    def insert(self, of: Value, name: str, value: object) -> None:
        """Add a member at the end of an object."""
        self._grow(of, f"{compact_json(name)}:{compact_json(value)}")

    def append(self, array: Value, element: object) -> None:
        """Add an element at the end of an array."""
        self._grow(array, compact_json(element))

    def prepend(self, array: Value, element: object) -> None:
        """Add an element at the front of an array."""
        self._edits.append((array.start + 1, array.start + 1, compact_json(element) + ("," if array.value else "")))

    def extend(self, text: Value, more: str) -> None:
        """Append to a string, after a blank line unless it is empty."""
        self._edits.append((text.end - 1, text.end - 1, compact_json(f"\n\n{more}" if text.value else more)[1:-1]))

    def replace(self, old: Value, new: object) -> None:
        """Write another value in place of one."""
        self._edits.append((old.start, old.end, compact_json(new)))

    def copy(self) -> Document:
        """Return a document that is changed apart from this one."""
        other = copy(self)
        other._edits = [*self._edits]  # noqa: SLF001 - another one of its kind
        return other

    def encode(self) -> bytes:
        """Return the bytes with all changes; without any, the bytes that came in."""
        if not self._edits:
            return self.raw
        parts: list[str] = []
        at = 0
        # Sorting is stable: additions at one place stay in turn.
        for start, end, text in sorted(self._edits, key=lambda edit: edit[:2]):
            parts += (self._text[at:start], text)
            at = end
        parts.append(self._text[at:])
        return "".join(parts).encode("utf-8", "replace")  # lessons and names may hold lone surrogates

    def _grow(self, whole: Value, text: str) -> None:
        # Several members may be added to one empty object: only the first goes without a comma.
        comma = "," if whole.value or any(start == whole.end - 1 for start, _, _ in self._edits) else ""
        self._edits.append((whole.end - 1, whole.end - 1, comma + text))

    def _members(self, start: int) -> Iterator[tuple[str, Value]]:
        text = self._text
        if text[start] != "{":
            raise ValueError("no JSON object")
        at = self._skip(start + 1)
        while text[at] != "}":
            key, end = _DECODE(text, at)
            colon = self._skip(end)
            if not isinstance(key, str) or text[colon] != ":":
                raise ValueError("no JSON object")
            at = self._skip(colon + 1)
            value, end = _DECODE(text, at)
            yield key, Value(at, end, value)
            at = self._after(end)

    def _skip(self, at: int) -> int:
        space = _SPACE.match(self._text, at)
        return at if space is None else space.end()

    def _after(self, end: int) -> int:
        """Return where the next member or element starts, or the closing bracket is. Raises ``ValueError``."""
        at = self._skip(end)
        if self._text[at] == ",":
            at = self._skip(at + 1)
            if self._text[at] not in "}]":
                return at
        elif self._text[at] in "}]":
            return at
        raise ValueError("no JSON object")


LABELS = ("client_metadata", "metadata", "prompt_cache_key", "safety_identifier", "user")
"""Members by which vendors count, route and cache. They mean nothing to the model; coding agents write random ids there."""


class ToolResultText(NamedTuple):
    """Result of a tool call in a request."""

    call_id: str
    text: str
    error: bool


class Dialect(ABC):
    """One protocol. Reads leniently: what it does not know of a reply is passed on all the same."""

    path: ClassVar[str]
    """Path of the method below the endpoint's address; also its name in the journal."""
    limits: ClassVar[tuple[str, ...]]
    """Fields of the most tokens of a completion."""
    sampling: ClassVar[tuple[str, ...]] = ("temperature",)
    text_block: ClassVar[str] = "text"
    """Type of the blocks that a message's text may consist of."""
    last: ClassVar[re.Pattern[bytes]]
    """In the data of the last event of a stream, and perhaps within that of others."""

    def max_tokens(self, body: Mapping[str, Any]) -> int | None:
        """Return the most tokens that the request lets the model write; None if it does not say."""
        return next((count for name in self.limits if (count := count_or_none(body.get(name)))), None)

    @abstractmethod
    def add_lessons(self, request: Document, lessons: str) -> bool | None:
        """Add lessons after the agent's own system text. Return whether it has any; None where that is not possible."""

    def add_to_user(self, request: Document, lessons: str) -> bool | None:
        """Add lessons after the first message of the user, which stays the same in a conversation.

        Not to a conversation that the endpoint keeps: it has them from the first request.
        """
        turns = request.member("messages") or request.member("input")
        if turns is None or request.value.get("previous_response_id") or request.value.get("conversation"):
            return None
        if isinstance(turns.value, str):
            return add_text(request, turns, lessons)
        for turn in request.elements(turns) if isinstance(turns.value, list) else ():
            if mapping_of(turn.value).get("role") == "user" and (said := request.member_of(turn, "content")):
                return add_text(request, said, lessons, self.text_block)
        return None

    def refusal(self, body: Mapping[str, Any]) -> str:  # noqa: ARG002 - most requests are for the endpoint to judge
        """Return why a request is not forwarded; empty for one that is."""
        return ""

    def ask_for_usage(self, request: Document) -> bool:  # noqa: ARG002 - most protocols send it anyway
        """Make a stream report its usage. Return whether the chunk with it must be hidden from the client."""
        return False

    def remove_labels(self, request: Document) -> None:
        """Blank what a client labels its requests with, which may differ in requests that ask the same."""
        for name in LABELS:
            if (label := request.member(name)) is not None:
                request.replace(label, None)

    @abstractmethod
    def results(self, body: Mapping[str, Any]) -> Iterator[ToolResultText]:
        """Yield the results of tools in a request, in their order."""

    @abstractmethod
    def read(self, body: Mapping[str, Any]) -> ChatReply | None:
        """Return what a reply says, without latency and cost; None for a failure behind a success status."""

    @abstractmethod
    def fold(self, events: Sequence[Mapping[str, Any]], *, ended: bool = False) -> Mapping[str, Any]:
        """Return the body that a stream would have had as a whole; empty for one that broke off.

        ``ended``: whether a last event without content came.
        """

    def is_plain(self, events: bytes) -> bool:
        """Whether these events need no look at each: none is the last one, or there for its usage only."""
        return self.last.search(events) is None

    def ends(self, data: bytes) -> bool:
        """Whether the data of an event is the last of a stream: by its own type, not that of something within."""
        kind = mapping_of(json_of(data)).get("type") if self.last.search(data) else None
        return self.last.fullmatch(b'"type":"%b"' % str(kind).encode("utf-8", "replace")) is not None

    def is_usage_alone(self, data: bytes) -> bool:  # noqa: ARG002
        """Whether an event is there for its usage only."""
        return False

    def error(self, kind: str, message: str) -> dict[str, Any]:
        """Return the body of an error, in the form of OpenAI."""
        return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


def reply_of(
    text: str, calls: Sequence[ToolCall], finish: FinishReason, usage: TokenUsage | None, body: Mapping[str, Any]
) -> ChatReply:
    """Return a reply that has not been measured."""
    model, response_id = (value if isinstance(value, str) else None for value in map(body.get, ("model", "id")))
    return ChatReply(
        Message("assistant", text or None, tuple(calls)), finish, usage, model=model or "", response_id=response_id
    )


def texts_of(content: object) -> str:
    """Return a text, or the texts of a list of blocks."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    texts = (each if isinstance(each, str) else mapping_of(each).get("text") for each in blocks)
    return "".join(text for text in texts if isinstance(text, str))


def rows(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in a list; none for anything else."""
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())


def texts_within(value: object) -> Iterator[tuple[str, str, object]]:
    """Yield every text in a value, in no order, with the name of its field and the ``media_type`` next to it."""
    left: list[tuple[str, object, object]] = [("", value, None)]
    while left:  # no recursion: what clients send may be nested as deeply as the parser allows
        name, each, media = left.pop()
        if isinstance(each, str):
            yield name, each, media
        elif isinstance(each, dict):
            left += [(field, part, each.get("media_type")) for field, part in each.items()]
        elif isinstance(each, list):
            left += [(name, part, media) for part in each]


def tool_names(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the tools that a request offers; some agents offer them in items of the input."""
    items = (item for item in rows(body.get("input")) if item.get("type") == "additional_tools")
    for tools in (body.get("tools"), *(item.get("tools") for item in items)):
        yield from _names_in(tools)


def offers_tools(dialect: Dialect, body: Mapping[str, Any]) -> bool:
    """Return whether a request is a part of an agent's work with tools: it offers some, or has the results of some."""
    return any(tool_names(body)) or any(dialect.results(body))


def _names_in(tools: object) -> Iterator[str]:
    for tool in rows(tools):
        if tool.get("type") == "namespace":  # such as an MCP server of Codex
            yield from _names_in(tool.get("tools"))
        else:
            yield str(mapping_of(tool.get("function", tool.get("custom", tool))).get("name") or tool.get("type"))


def add_text(request: Document, content: Value, lessons: str, kind: str = "text") -> bool | None:
    """Append to a text or a list of text blocks, whose type is ``kind``; replace a null. Return whether there was one."""
    if isinstance(content.value, str):
        request.extend(content, lessons)
    elif isinstance(content.value, list):
        request.append(content, {"type": kind, "text": lessons})
    elif content.value is None:
        request.replace(content, lessons)
        return False
    else:
        return None
    return True


def add_to(request: Document, name: str, lessons: str) -> bool | None:
    """Append to the member with the agent's own instructions, or add it. Return whether it was there."""
    known = request.member(name)
    if known is not None:
        return add_text(request, known, lessons)
    request.set(name, lessons)
    return False


def arguments_text(value: object) -> str:
    """Return the arguments of a call as JSON text; models write them as text or as an object."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_NO_CHOICES = re.compile(rb'"choices"(?:\s|data:)*:(?:\s|data:)*\[(?:\s|data:)*\]')
SYSTEM_ROLES = ("system", "developer")


class ChatDialect(Dialect):
    """``POST /chat/completions``."""

    path = "/chat/completions"
    limits: ClassVar[tuple[str, ...]] = ("max_completion_tokens", "max_tokens")
    sampling: ClassVar[tuple[str, ...]] = ("temperature", "seed")

    def add_lessons(self, request: Document, lessons: str) -> bool | None:
        """Append to the last of the first system messages, or put one in front."""
        messages = request.member("messages")
        if messages is None or not isinstance(messages.value, list):
            return None
        system: Value | None = None
        for message in request.elements(messages):
            if mapping_of(message.value).get("role") in SYSTEM_ROLES:
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

    def ends(self, data: bytes) -> bool:
        """``[DONE]``."""
        return data == b"[DONE]"

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


_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""Kinds of calls that the client answers, and the field of their arguments."""
_OUTPUTS = tuple(f"{kind}_output" for kind in _CALLS)

_ITEM_LABELS = frozenset({"id", "internal_chat_message_metadata_passthrough"})
"""Labels of an item. The second is Codex's, with the time and the id of a turn."""


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
        if items is None or all(_ITEM_LABELS.isdisjoint(item) for item in rows(items.value)):
            return
        for item in request.elements(items):
            for name in _ITEM_LABELS.intersection(item.value) if isinstance(item.value, dict) else ():
                # Of a client's own items the id is its own, too; that of others is the endpoint's.
                own = item.value.get("role", "assistant") != "assistant" or str(item.value.get("type")).endswith("_output")
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
    if asked.get("store") is not False or asked.get("instructions") or items is None or not isinstance(items.value, list):
        return None
    last = None
    for item in request.elements(items):
        if mapping_of(item.value).get("role") not in SYSTEM_ROLES:
            break
        last = item if "content" in item.value else last  # tools are offered in such an item, too
    return None if last is None else request.member_of(last, "content")


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
    for name, into in (("text", "text"), ("partial_json", "json")):
        if isinstance(delta.get(name), str):
            block[into] = block.get(into, "") + delta[name]
