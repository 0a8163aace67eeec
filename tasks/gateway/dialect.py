"""What the gateway has to know of a protocol: where lessons go, what a reply says, and how errors look."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from tfgrpo.stores.frozen_json import mapping_of
from tfgrpo.stores.numeric import count_or_none
from tfgrpo.tasks.gateway.splice import Document, Value
from tfgrpo.tasks.models.base import ChatReply, FinishReason, Message, TokenUsage, ToolCall

LABELS = ("client_metadata", "metadata", "prompt_cache_key", "safety_identifier", "user")
"""Members by which vendors count, route and cache. They say nothing to the model; coding agents put random ids there."""


class ToolResultText(NamedTuple):
    """Result of a tool call that a request brings."""

    call_id: str
    text: str
    error: bool


class Dialect(ABC):
    """One protocol. Reads leniently: what it does not know of a reply is passed on all the same."""

    path: ClassVar[str]
    """Of the method below the endpoint's address; also its name in the journal."""
    limits: ClassVar[tuple[str, ...]]
    """Fields of the most tokens of a completion."""
    sampling: ClassVar[tuple[str, ...]] = ("temperature",)
    """Fields of sampling that the protocol has."""
    text_block: ClassVar[str] = "text"
    """Type of the blocks that a message's text may consist of."""
    last: ClassVar[re.Pattern[bytes]]
    """In the data of the last event of a stream."""

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
        """Whether the data of an event is the last of a stream."""
        return self.last.search(data) is not None

    def is_usage_alone(self, data: bytes) -> bool:  # noqa: ARG002
        """Whether an event is there for its usage only."""
        return False

    def error(self, kind: str, message: str) -> dict[str, Any]:
        """Return the body of an error, in the form of OpenAI."""
        return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


def reply_of(
    text: str,
    calls: Sequence[ToolCall],
    finish: FinishReason,
    usage: TokenUsage | None,
    body: Mapping[str, Any],
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
    """Return whether a request is a part of an agent's work with tools: it offers some, or brings the results of some."""
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
