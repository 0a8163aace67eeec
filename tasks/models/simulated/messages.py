"""Anthropic's dialect: ``/messages`` and what ``/messages/count_tokens`` counts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from tfgrpo.tasks.models.simulated.dialects import ChatDialect, Event, assistant_turn, pieces
from tfgrpo.tasks.models.simulated.protocol import NAME, Wire, WireBody
from tfgrpo.tasks.models.wire import called

_ERRORS: Final[Mapping[int, str]] = {
    400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error",
}  # fmt: skip
_STOP: Final[Mapping[str, str]] = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class _Block(Wire):
    cache_control: dict[str, str] | None = None


class _Text(_Block):
    type: Literal["text"]
    text: str
    citations: Annotated[list[Any], Field(max_length=0)] | None = None


class _ToolUse(_Block):
    type: Literal["tool_use"]
    id: str
    name: str = Field(pattern=NAME)
    input: dict[str, Any]


class _ToolResult(_Block):
    type: Literal["tool_result"]
    tool_use_id: str
    content: str | list[_Text] = ""
    is_error: bool | None = None


class _Message(Wire):
    role: Literal["user", "assistant", "system"]
    content: str | list[Annotated[_Text | _ToolUse | _ToolResult, Field(discriminator="type")]]


class _Tool(_Block):
    type: Literal["custom"] | None = None
    name: str = Field(pattern=NAME)
    description: str | None = None
    input_schema: dict[str, Any] = Field(serialization_alias="parameters")
    strict: bool | None = None


class _HostedTool(Wire, extra="allow"):
    """A tool that the vendor runs. The simulated model never calls it."""

    type: str = Field(pattern=r"^[a-z_]+_\d{8}$")


class _ToolChoice(Wire):
    type: Literal["auto", "none", "any", "tool"]
    name: str | None = None
    disable_parallel_tool_use: Literal[False] | None = None


class MessagesBody(WireBody):
    """The body of ``POST /v1/messages``."""

    without_effect = frozenset({
        "top_p", "top_k", "thinking", "output_config", "context_management", "cache_control", "metadata", "service_tier",
    })  # fmt: skip
    model: str
    messages: list[_Message] = Field(min_length=1)
    max_tokens: int = Field(ge=1)
    system: str | list[_Text] | None = None
    temperature: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    tools: list[_Tool | _HostedTool] | None = None
    tool_choice: _ToolChoice | None = None
    stream: bool | None = None
    stop_sequences: list[str] | None = None

    @model_validator(mode="after")
    def _begins_with_the_user(self) -> Self:
        if self.messages[0].role == "system":
            raise ValueError("the first message is not of role system: use system")
        return self


class MessagesDialect(ChatDialect):
    """``/messages``."""

    def translated(self, value: Any) -> dict[str, Any]:
        """Return the chat request: ``system`` as its first message, tool results as messages of their own."""
        body = MessagesBody.model_validate(value)
        system = [] if body.system is None else [{"role": "system", "content": _text(body.system)}]
        turns = [turn for message in body.messages for turn in _turns(message)]
        chat: dict[str, Any] = {"model": body.model, "messages": [*system, *turns], "max_tokens": body.max_tokens}
        chat |= {"temperature": body.temperature} if body.temperature is not None else {}
        chat |= {"stop": body.stop_sequences} if body.stop_sequences else {}
        if (choice := body.tool_choice) is not None:
            named = {"function": {"name": choice.name}}
            chat["tool_choice"] = {"any": "required", "tool": named}.get(choice.type, choice.type)
        own = [tool for tool in body.tools or () if isinstance(tool, _Tool)]
        functions = [
            tool.model_dump(exclude={"type", "cache_control"}, exclude_none=True, by_alias=True) for tool in own
        ]
        if functions:
            chat["tools"] = [{"type": "function", "function": function} for function in functions]
        return {**chat, "stream": True} if body.stream else chat

    def reply(self, completion: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Return a message with a block for the text, if any, and one for each call."""
        choice, usage = completion["choices"][0], completion["usage"]
        return {
            "id": f"msg_{str(completion['id']).rpartition('-')[2]}",
            "type": "message",
            "role": "assistant",
            "model": completion["model"],
            "content": list(_blocks(choice["message"])),
            "stop_reason": _STOP[choice["finish_reason"]],
            "stop_sequence": None,
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": usage["completion_tokens"],
            },
        }

    def events(self, completion: Mapping[str, Any], asked: Mapping[str, Any]) -> Iterator[Event]:
        """Yield named events from ``message_start`` to ``message_stop``."""
        message = self.reply(completion, asked)
        usage = message["usage"]
        begun = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
        yield {"type": "message_start", "message": begun}
        yield {"type": "ping"}
        for index, block in enumerate(message["content"]):
            yield from _block_events(index, block)
        delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage["output_tokens"]}}
        yield {"type": "message_stop"}

    def error(self, status: int, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the error with a type for its status."""
        error = {"type": _ERRORS.get(status, "api_error"), "message": body["error"]["message"]}
        return {"type": "error", "error": error, "request_id": None}

    def broken(self, body: Mapping[str, Any], sent: int) -> Event:  # noqa: ARG002
        """Return an event of type ``error``."""
        return self.error(500, body)


def _text(content: str | list[_Text], between: str = "") -> str:
    return content if isinstance(content, str) else between.join(block.text for block in content)


def _turns(message: _Message) -> Iterator[dict[str, Any]]:
    blocks = [_Text(type="text", text=message.content)] if isinstance(message.content, str) else message.content
    text = _text([block for block in blocks if isinstance(block, _Text)])
    if message.role == "assistant":
        used = (block for block in blocks if isinstance(block, _ToolUse))
        calls = [called(_chat_id(use.id), use.name, json.dumps(use.input, ensure_ascii=False)) for use in used]
        yield assistant_turn(text, calls)
        return
    if message.role == "system":
        yield {"role": "system", "content": text}
        return
    results = [block for block in blocks if isinstance(block, _ToolResult)]
    for block in results:
        yield {"role": "tool", "content": _text(block.content, "\n"), "tool_call_id": _chat_id(block.tool_use_id)}
    if text or not results:
        yield {"role": "user", "content": text}


def _chat_id(tool_use_id: str) -> str:
    """Return the id of a call in chat completions, so that the same conversation has the same digest."""
    return tool_use_id.replace("toolu_", "call_", 1)


def _blocks(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if message["content"]:
        yield {"type": "text", "text": message["content"]}
    for call in message.get("tool_calls", ()):
        function = call["function"]
        yield {
            "type": "tool_use",
            "id": call["id"].replace("call_", "toolu_", 1),
            "name": function["name"],
            "input": json.loads(function["arguments"]),
        }


def _block_events(index: int, block: Mapping[str, Any]) -> Iterator[Event]:
    if block["type"] == "text":
        begun, deltas = {**block, "text": ""}, [{"type": "text_delta", "text": each} for each in pieces(block["text"])]
    else:
        begun, arguments = {**block, "input": {}}, json.dumps(block["input"], ensure_ascii=False)
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(arguments)]
    yield {"type": "content_block_start", "index": index, "content_block": begun}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}
