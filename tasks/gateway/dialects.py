"""The protocols of agents: where lessons go, what a reply says, and what else differs, in one table.

A request is changed in single values; every other byte stays: order, spelling, white space, unknown fields. Its fields have
other names in each protocol, so that only replies, streams and the place of the lessons are read by the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from tfgrpo.stores.errors import ModelReplyMalformed
from tfgrpo.stores.json_values import compact_json, json_of, mapping_of
from tfgrpo.stores.numeric import count_or_none
from tfgrpo.tasks.models.base import ChatReply, FinishReason, Message, TokenUsage, ToolCall
from tfgrpo.tasks.models.wire import decode_reply, decode_usage, function_of, usage_of

_WHITE: Final = r"[ \t\n\r]*+"
_SPACE: Final = re.compile(_WHITE)
_COLON: Final = re.compile(rf'(?<="){_WHITE}:{_WHITE}')
# From the end of a member or element to the next one, or to the closing bracket.
_NEXT: Final = re.compile(rf"{_WHITE}(?:,{_WHITE}(?![\]}}])|(?=[\]}}]))")
_DECODE: Final = json.JSONDecoder().raw_decode


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
            start = self._past(_SPACE, 0)
            if self._text[start] != "{":
                raise ValueError("no JSON object")
            # Of several members with one name the last counts, as parsers have it.
            self.members = dict(self._parts(start))
            # Not the end of the last one: of two members with one name the second is in the place of the first.
            end = self._past(_SPACE, max((span.end for span in self.members.values()), default=start + 1)) + 1
            if self._text[end:].strip(" \t\n\r"):
                raise ValueError("text after the JSON object")
        except (IndexError, RecursionError) as error:
            raise ValueError("no JSON object") from error
        self.value: dict[str, Any] = {name: span.value for name, span in self.members.items()}
        self.root = Value(start, end, self.value)

    def member_of(self, of: Value, name: str) -> Value | None:
        """Return a member of an object within."""
        return dict(self._parts(of.start)).get(name)

    def elements(self, of: Value) -> Iterator[Value]:
        """Yield the elements of an array within."""
        return (element for _, element in self._parts(of.start))

    def set(self, name: str, value: object) -> None:
        """Replace a member, or add it as the last."""
        if name in self.members:
            self.replace(self.members[name], value)
        else:
            self.add(self.root, value, name)

    def add(self, whole: Value, value: object, name: str | None = None) -> None:
        """Add an element at the end of an array, or the member ``name`` at the end of an object."""
        # Several members may be added to one empty object: only the first goes without a comma.
        comma = "," if whole.value or any(start == whole.end - 1 for start, _, _ in self._edits) else ""
        key = "" if name is None else f"{compact_json(name)}:"
        self._edits.append((whole.end - 1, whole.end - 1, comma + key + compact_json(value)))

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

    def _parts(self, start: int) -> Iterator[tuple[str, Value]]:
        """Yield the members of an object, or the elements of an array, which have no names."""
        text, at = self._text, self._past(_SPACE, start + 1)
        closing = "}" if text[start] == "{" else "]"
        while text[at] != closing:
            name = ""
            if closing == "}":
                name, end = _DECODE(text, at)
                at = self._past(_COLON, end)
            value, end = _DECODE(text, at)
            yield name, Value(at, end, value)
            at = self._past(_NEXT, end)

    def _past(self, pattern: re.Pattern[str], at: int) -> int:
        if (match := pattern.match(self._text, at)) is None:
            raise ValueError("no JSON object")
        return match.end()


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """What differs in one protocol. Replies are read leniently: what is not understood is passed on all the same."""

    path: str
    """Path of the method below the endpoint's address; also its name in the journal."""
    limits: tuple[str, ...]
    """Fields of the most tokens of a completion."""
    sampling: tuple[str, ...]
    teach: Callable[[Document, str], bool | None] | None
    """Adds lessons after the agent's own system text. Returns whether it has any; None where that is not possible."""
    read: Callable[[Mapping[str, Any]], ChatReply | None]
    """Returns what a reply says, without latency and cost; None for a failure behind a success status."""
    fold: Callable[[Sequence[Mapping[str, Any]], bool], Mapping[str, Any]]
    """Returns the body that a stream without errors would have had as a whole; empty for one that broke off. The second
    argument: whether a last event came."""
    marks: re.Pattern[bytes]
    """In every event that needs a look, the last one or one with usage alone; perhaps within others."""
    last: tuple[str, ...] = ()
    """Types of the last event of a stream, where ``[DONE]`` is none."""
    asks_usage: bool = False
    """Whether a stream reports its usage only when asked to, in a chunk that has nothing else."""
    stateful: bool = False
    """Whether the endpoint keeps answers: requests name the one that they go on from, or fetch theirs later."""

    def ends(self, data: bytes) -> bool:
        """Whether the data of an event is the last of a stream: by its own type, not that of something within."""
        if self.marks.search(data) is None:
            return False
        return data == b"[DONE]" or mapping_of(json_of(data)).get("type") in self.last


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


def _names_in(tools: object) -> Iterator[str]:
    for tool in rows(tools):
        if tool.get("type") == "namespace":  # such as an MCP server of Codex
            yield from _names_in(tool.get("tools"))
        else:
            yield str(mapping_of(tool.get("function", tool.get("custom", tool))).get("name") or tool.get("type"))


class ToolResultText(NamedTuple):
    """Result of a tool call in a request."""

    call_id: str
    text: str
    error: bool


# Kinds of calls in items of responses that the client answers, and the field of their arguments.
_CALLS: Final = {"function_call": "arguments", "custom_tool_call": "input"}
# Messages of chat by their role, blocks of Anthropic's messages and items of responses by their type, with the fields of the
# call that they answer and of what it returned.
_RESULTS: Final = {
    "tool": ("tool_call_id", "content"),
    "tool_result": ("tool_use_id", "content"),
    **{f"{kind}_output": ("call_id", "output") for kind in _CALLS},
}


def tool_results(body: Mapping[str, Any]) -> Iterator[ToolResultText]:
    """Yield the results of tools in a request, in their order."""
    for turn in (*rows(body.get("messages")), *rows(body.get("input"))):
        for part in (turn, *rows(turn.get("content"))):
            kind = "tool" if part.get("role") == "tool" else part.get("type")
            if isinstance(kind, str) and kind in _RESULTS:
                call, output = (part.get(name) for name in _RESULTS[kind])
                yield ToolResultText(str(call), texts_of(output), error=part.get("is_error") is True)


def offers_tools(body: Mapping[str, Any]) -> bool:
    """Return whether a request is a part of an agent's work with tools: it offers some, or has the results of some."""
    return any(tool_names(body)) or any(tool_results(body))


def add_text(request: Document, content: Value, lessons: str, kind: str = "text") -> bool | None:
    """Append to a text or a list of text blocks, whose type is ``kind``; replace a null. Return whether there was one."""
    if isinstance(content.value, str):
        request.extend(content, lessons)
    elif isinstance(content.value, list):
        request.add(content, {"type": kind, "text": lessons})
    elif content.value is None:
        request.replace(content, lessons)
        return False
    else:
        return None
    return True


def add_to_user(request: Document, lessons: str) -> bool | None:
    """Add lessons after the user's first message, unless the endpoint keeps the conversation, and has them from its start."""
    turns, kind = request.members.get("messages"), "text"
    if turns is None:
        turns, kind = request.members.get("input"), "input_text"
    if turns is None or request.value.get("previous_response_id") or request.value.get("conversation"):
        return None
    if isinstance(turns.value, str):
        return add_text(request, turns, lessons)
    for turn in request.elements(turns) if isinstance(turns.value, list) else ():
        if mapping_of(turn.value).get("role") == "user" and (content := request.member_of(turn, "content")):
            return add_text(request, content, lessons, kind)
    return None


def ask_for_usage(request: Document) -> bool:
    """Make a stream of chat report its usage. Return whether the chunk with it must be hidden from the client."""
    options = mapping_of(request.value.get("stream_options"))
    if options.get("include_usage") is True:
        return False
    request.set("stream_options", {**options, "include_usage": True})
    return True


def is_usage_alone(data: bytes) -> bool:
    """Whether the data of an event of chat is there for its usage only."""
    # Every chunk has a usage, most of them null.
    chunk = mapping_of(json_of(data))
    return chunk.get("choices") == [] and isinstance(chunk.get("usage"), dict)


LABELS: Final = ("client_metadata", "metadata", "prompt_cache_key", "safety_identifier", "user")
"""Members by which vendors count, route and cache. They mean nothing to the model; coding agents write random ids there."""
# Labels of an item of the input. The second is Codex's, with the time and the id of a turn.
_ITEM_LABELS: Final = frozenset({"id", "internal_chat_message_metadata_passthrough"})


def remove_labels(request: Document) -> None:
    """Blank what a client labels its requests with, which may differ in requests that ask the same."""
    for name in LABELS:
        if name in request.members:
            request.set(name, None)
    items = request.members.get("input")
    if items is None or all(_ITEM_LABELS.isdisjoint(item) for item in rows(items.value)):
        return
    for item in request.elements(items):
        for name in _ITEM_LABELS.intersection(item.value) if isinstance(item.value, dict) else ():
            # Of a client's own items the id is its own, too; that of others is the endpoint's.
            own = item.value.get("role", "assistant") != "assistant" or str(item.value.get("type")).endswith("_output")
            if (label := request.member_of(item, name)) is not None and (name != "id" or own):
                request.replace(label, None)


def _reply(
    text: str, calls: Sequence[ToolCall], finish: FinishReason, usage: TokenUsage | None, body: Mapping[str, Any]
) -> ChatReply:
    model, response_id = (value if isinstance(value, str) else None for value in map(body.get, ("model", "id")))
    message = Message("assistant", text or None, tuple(calls))
    return ChatReply(message, finish, usage, model=model or "", response_id=response_id)


def _arguments_text(value: object) -> str:
    # Models write arguments as JSON text, or as an object.
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


SYSTEM_ROLES: Final = ("system", "developer")


def _teach_chat(request: Document, lessons: str) -> bool | None:
    """Append to the last of the first system messages, or put one in front."""
    messages = request.members.get("messages")
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
    if (content := request.member_of(system, "content")) is None:
        request.add(system, lessons, "content")
        return True
    return add_text(request, content, lessons)


def _read_chat(body: Mapping[str, Any]) -> ChatReply | None:
    if not body.get("choices"):
        return None
    usage = decode_usage(body)
    try:
        return replace(decode_reply(body), usage=usage)
    except ModelReplyMalformed:  # empty, for example: whether that is an answer is the agent's to say
        failed = any(choice.get("error") for choice in rows(body["choices"]))
        return None if failed else _reply("", (), "other", usage, body)


def _fold_chat(events: Sequence[Mapping[str, Any]], ended: bool) -> Mapping[str, Any]:
    """Join the deltas of the first choice. The stream is whole with a finish reason, or content and ``[DONE]``."""
    body: dict[str, Any] = {}
    texts: list[str] = []
    calls: dict[object, dict[str, Any]] = {}
    finish: object = None
    for event in events:
        for name in ("id", "model", "usage"):
            body[name] = event.get(name) or body.get(name)
        for choice in rows(event.get("choices")):
            if choice.get("index", 0) == 0:
                delta = mapping_of(choice.get("delta"))
                texts.append(texts_of(delta.get("content")))
                _join_calls(calls, delta)
                finish = choice.get("finish_reason") or finish
    if not (finish or (ended and (any(texts) or calls))):
        return {}
    message = {"role": "assistant", "content": "".join(texts), "tool_calls": list(calls.values())}
    finish = finish or ("tool_calls" if calls else "stop")
    return {**body, "choices": [{"message": message, "finish_reason": finish}]}


def _join_calls(calls: dict[object, dict[str, Any]], delta: Mapping[str, Any]) -> None:
    """Add the pieces of tool calls. Some servers send no index, or whole calls, or the name with each piece."""
    for piece in rows(delta.get("tool_calls")):
        function, index, call_id = function_of(piece), piece.get("index"), piece.get("id")
        name, arguments = function.get("name") or "", function.get("arguments")
        if index is None:
            # Of the call with its id; without id and name of the last one; else of a new one.
            same = [key for key, call in calls.items() if call["id"] == call_id] if call_id else [] if name else [*calls]
            index = same[-1] if same else len(calls)
        earlier_id = calls.get(index, {}).get("id")
        if earlier_id and call_id not in {None, "", earlier_id}:  # Gemini's endpoint gives several calls one index
            calls[index, earlier_id] = calls.pop(index)
        call = calls.setdefault(index, {"id": "", "function": {"name": "", "arguments": ""}})
        call["id"] = call_id or call["id"]
        if name != call["function"]["name"]:
            call["function"]["name"] += name
        call["function"]["arguments"] += "" if arguments is None else _arguments_text(arguments)


def _add_to(request: Document, name: str, lessons: str) -> bool | None:
    """Append to the member with the agent's own instructions, or add it. Return whether it was there."""
    if name in request.members:
        return add_text(request, request.members[name], lessons)
    request.set(name, lessons)
    return False


def _teach_response(request: Document, lessons: str) -> bool | None:
    """Append to ``instructions``, or to the system messages that start the input of an agent without any."""
    items, body = request.members.get("input"), request.value
    # Where the endpoint keeps the conversation, later requests lack those messages, and would get the lessons once more.
    if body.get("store") is False and not body.get("instructions") and items is not None and isinstance(items.value, list):
        last = None
        for item in request.elements(items):
            if mapping_of(item.value).get("role") not in SYSTEM_ROLES:
                break
            last = item if "content" in item.value else last  # tools are offered in such an item, too
        if last is not None and (content := request.member_of(last, "content")) is not None:
            return add_text(request, content, lessons, "input_text")
    return None if isinstance(body.get("instructions"), list) else _add_to(request, "instructions", lessons)


def _read_response(body: Mapping[str, Any]) -> ChatReply | None:
    status = body.get("status", "completed")
    if status not in {"completed", "incomplete"} or body.get("error") or not isinstance(body.get("output"), list):
        return None
    texts: list[str] = []
    calls: list[ToolCall] = []
    for item in rows(body["output"]):
        kind = item.get("type")
        if kind == "message":
            texts.append(texts_of(item.get("content")))
        elif kind in _CALLS:
            calls.append(ToolCall(str(item.get("call_id")), str(item.get("name")), _arguments_text(item.get(_CALLS[kind]))))
    finish: FinishReason = "tool_calls" if calls else "stop"
    if status == "incomplete":
        reason = mapping_of(body.get("incomplete_details")).get("reason")
        finish = "content_filter" if reason == "content_filter" else "length"
    counts = mapping_of(body.get("usage"))
    cached = mapping_of(counts.get("input_tokens_details")).get("cached_tokens")
    reasoning = mapping_of(counts.get("output_tokens_details")).get("reasoning_tokens")
    usage = usage_of([counts.get("input_tokens"), counts.get("output_tokens"), cached, reasoning])
    return _reply("".join(texts), calls, finish, usage, body)


_FINISHES: Final[Mapping[object, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


def _read_message(body: Mapping[str, Any]) -> ChatReply | None:
    if body.get("type") != "message" or not isinstance(body.get("content"), list):
        return None
    blocks = list(rows(body["content"]))
    text = "".join(texts_of([block]) for block in blocks if block.get("type") == "text")
    calls = [
        ToolCall(str(block.get("id")), str(block.get("name")), _arguments_text(block.get("input")))
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    counts = mapping_of(body.get("usage"))
    cached = count_or_none(counts.get("cache_read_input_tokens")) or 0
    written = count_or_none(counts.get("cache_creation_input_tokens")) or 0
    fresh = count_or_none(counts.get("input_tokens"))  # without what the cache read and took in, unlike OpenAI's
    prompt = None if fresh is None else fresh + cached + written
    usage = usage_of([prompt, counts.get("output_tokens"), cached, None])
    return _reply(text, calls, _FINISHES.get(body.get("stop_reason"), "other"), usage, body)


def _fold_message(events: Sequence[Mapping[str, Any]], ended: bool) -> Mapping[str, Any]:
    """Join the deltas of the blocks."""
    body: dict[str, Any] = {}
    blocks: dict[object, dict[str, Any]] = {}
    for event in events if ended else ():
        kind, delta = event.get("type"), mapping_of(event.get("delta"))
        if kind == "message_start":
            body = dict(mapping_of(event.get("message")))
        elif kind == "content_block_start":
            blocks[event.get("index")] = {**mapping_of(event.get("content_block")), "json": ""}
        elif kind == "content_block_delta":
            block = blocks.setdefault(event.get("index"), {})
            for name, into in (("text", "text"), ("partial_json", "json")):
                if isinstance(delta.get(name), str):
                    block[into] = block.get(into, "") + delta[name]
        elif kind == "message_delta":
            body |= delta
            # Its counts are of the whole message, and take the place of those at its start.
            counts = {name: count for name, count in mapping_of(event.get("usage")).items() if count is not None}
            body["usage"] = {**mapping_of(body.get("usage")), **counts}
    for block in blocks.values():
        if written := block.pop("json", ""):
            block["input"] = written
    return {**body, "content": list(blocks.values())}


# White space in an event's data, which may go over several lines.
_GAP: Final = rb"(?:\s|data:)*"
CHAT: Final = Dialect(
    path="/chat/completions",
    limits=("max_completion_tokens", "max_tokens"),
    sampling=("temperature", "seed"),
    teach=_teach_chat,
    read=_read_chat,
    fold=_fold_chat,
    marks=re.compile(rb'\[DONE\]|"choices"%b:%b\[%b\]' % (_GAP, _GAP, _GAP)),
    asks_usage=True,
)
RESPONSES: Final = Dialect(
    path="/responses",
    limits=("max_output_tokens",),
    sampling=("temperature",),
    teach=_teach_response,
    read=_read_response,
    # The last event has the whole response.
    fold=lambda events, ended: mapping_of(events[-1].get("response")) if ended else {},
    marks=re.compile(rb'"type"%b:%b"response\.(?:completed|incomplete|failed|cancelled)"' % (_GAP, _GAP)),
    last=("response.completed", "response.incomplete", "response.failed", "response.cancelled"),
    stateful=True,
)
MESSAGES: Final = Dialect(
    path="/messages",
    limits=("max_tokens",),
    sampling=("temperature",),
    teach=lambda request, lessons: _add_to(request, "system", lessons),
    read=_read_message,
    fold=_fold_message,
    marks=re.compile(rb'"type"%b:%b"message_stop"' % (_GAP, _GAP)),
    last=("message_stop",),
)
EMBEDDINGS: Final = replace(
    CHAT,
    path="/embeddings",
    limits=(),
    sampling=(),
    teach=None,
    read=lambda body: _reply("", (), "stop", decode_usage(body), body) if isinstance(body.get("data"), list) else None,
)
"""Measured and bounded, with nothing to teach."""
PROTOCOLS: Final = {dialect.path: dialect for dialect in (CHAT, RESPONSES, MESSAGES, EMBEDDINGS)}
