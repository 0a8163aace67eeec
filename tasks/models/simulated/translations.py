"""Anthropic's Messages and OpenAI's Responses as translations of chat, for agents that speak them in a dry run.

What has no counterpart in chat is left out, unknown fields are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, Field

from tfgrpo.tasks.models.simulated.app import Event, SimulatedChat, pieces
from tfgrpo.tasks.models.wire import called

_IN: Final = "__"
"""Between the names of a namespace and of a function in it, where there is one name for both."""


class _Block(BaseModel):
    """A block of Anthropic's content, or a part of OpenAI's."""

    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}
    tool_use_id: str = ""
    content: str | list[_Block] = ""


_Content: TypeAlias = str | list[_Block]


def _text(content: _Content, between: str = "") -> str:
    """Return the text of a content; ``between``: what separates blocks."""
    return content if isinstance(content, str) else between.join(block.text for block in content if block.text)


def _assistant(text: str, calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": "assistant", "content": text or None if calls else text}
    return {**turn, "tool_calls": list(calls)} if calls else turn


class _OfferedTool(BaseModel):
    """A function, a namespace of functions, or a tool that the vendor runs, which the simulated model never calls."""

    type: str = "custom"
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None
    tools: list[_OfferedTool] = []

    def functions(self, within: str = "") -> Iterator[dict[str, Any]]:
        """Yield the functions as chat has them, those of a namespace by its name and theirs."""
        schema = self.parameters if self.input_schema is None else self.input_schema
        if self.type == "function" or self.input_schema is not None:
            named: dict[str, Any] = {"name": within + self.name, "description": self.description}
            named |= {"parameters": schema, "strict": self.strict}
            yield {"type": "function", "function": {key: part for key, part in named.items() if part is not None}}
        for tool in self.tools:
            yield from tool.functions(f"{self.name}{_IN}")


class _Request(BaseModel):
    """What requests of both dialects have."""

    model: str
    temperature: float | None = None
    tools: list[_OfferedTool] | None = None
    stream: bool | None = None

    def chat(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[_OfferedTool], **more: Any) -> dict[str, Any]:
        """Return the chat request. What is None or empty in ``more`` is left out."""
        functions = [function for tool in tools for function in tool.functions()]
        more |= {"temperature": self.temperature, "tools": functions or None, "stream": self.stream or None}
        return {
            "model": self.model,
            "messages": messages,
            **{key: part for key, part in more.items() if part is not None},
        }


class _Turn(BaseModel):
    role: str
    content: _Content


class _ToolChoice(BaseModel):
    type: str
    name: str | None = None


class _MessagesBody(_Request):
    messages: list[_Turn] = Field(min_length=1)
    max_tokens: int
    system: _Content | None = None
    tool_choice: _ToolChoice | None = None
    stop_sequences: list[str] | None = None


_ERRORS: Final[Mapping[int, str]] = {
    400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error",
}  # fmt: skip
_STOP: Final[Mapping[str, str]] = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
# The ids of calls are those of chat but for their beginning, so that the same conversation has the same digest.
_CHAT_ID, _OWN_ID = "call_", "toolu_"


class SimulatedMessages(SimulatedChat):
    """``/messages``, Anthropic's."""

    def translated(self, value: Any) -> dict[str, Any]:
        """Return the chat request: ``system`` as its first message, tool results as messages apart."""
        body = _MessagesBody.model_validate(value)
        system = [] if body.system is None else [{"role": "system", "content": _text(body.system)}]
        choice: object = None
        if body.tool_choice is not None:
            named = {"function": {"name": body.tool_choice.name}}
            choice = {"any": "required", "tool": named}.get(body.tool_choice.type, body.tool_choice.type)
        turns = [turn for each in body.messages for turn in _chat_turns(each)]
        more = {"max_tokens": body.max_tokens, "stop": body.stop_sequences or None, "tool_choice": choice}
        return body.chat([*system, *turns], body.tools or (), **more)

    def reply(self, completion: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Return a message with a block for the text, if any, and one for each call."""
        choice, usage = completion["choices"][0], completion["usage"]
        message, content = choice["message"], []
        if message["content"]:
            content.append({"type": "text", "text": message["content"]})
        for call in message.get("tool_calls", ()):
            key, function = call["id"].replace(_CHAT_ID, _OWN_ID, 1), call["function"]
            used = {"name": function["name"], "input": json.loads(function["arguments"])}
            content.append({"type": "tool_use", "id": key, **used})
        return {
            "id": f"msg_{_digest_in(completion)}",
            "type": "message",
            "role": "assistant",
            "model": completion["model"],
            "content": content,
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
            field, kind = ("text", "text_delta") if block["type"] == "text" else ("partial_json", "input_json_delta")
            whole = block["text"] if field == "text" else json.dumps(block["input"], ensure_ascii=False)
            empty: dict[str, Any] = {"text": ""} if field == "text" else {"input": {}}
            yield {"type": "content_block_start", "index": index, "content_block": {**block, **empty}}
            for piece in pieces(whole):
                yield {"type": "content_block_delta", "index": index, "delta": {"type": kind, field: piece}}
            yield {"type": "content_block_stop", "index": index}
        delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage["output_tokens"]}}
        yield {"type": "message_stop"}

    def error(self, status: int, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the error with a type for its status."""
        error = {"type": _ERRORS.get(status, "api_error"), "message": body["error"]["message"]}
        return {"type": "error", "error": error, "request_id": None}


def _chat_turns(message: _Turn) -> Iterator[dict[str, Any]]:
    text, blocks = _text(message.content), [] if isinstance(message.content, str) else message.content
    if message.role == "assistant":
        used = [block for block in blocks if block.type == "tool_use"]
        calls = [
            called(use.id.replace(_OWN_ID, _CHAT_ID, 1), use.name, json.dumps(use.input, ensure_ascii=False))
            for use in used
        ]
        yield _assistant(text, calls)
        return
    results = [block for block in blocks if block.type == "tool_result"]
    for block in results:
        key = block.tool_use_id.replace(_OWN_ID, _CHAT_ID, 1)
        yield {"role": "tool", "content": _text(block.content, "\n"), "tool_call_id": key}
    if text or not results:
        yield {"role": message.role, "content": text}


class _Item(BaseModel):
    """A message, a call, a result, or tools that are offered where the conversation has come to them."""

    type: str = "message"
    role: str = ""
    content: _Content = ""
    call_id: str = ""
    name: str = ""
    namespace: str | None = None
    arguments: str = ""
    output: _Content = ""
    tools: list[_OfferedTool] = []


class _TextFormat(BaseModel):
    type: str = "text"
    name: str | None = None
    body: dict[str, Any] | None = Field(alias="schema", default=None)
    strict: bool | None = None
    description: str | None = None


class _TextOptions(BaseModel):
    format: _TextFormat | None = None


class _ResponsesBody(_Request):
    input: str | list[_Item] = Field(min_length=1)
    instructions: str | None = None
    max_output_tokens: int | None = None
    tool_choice: str | dict[str, Any] | None = None
    text: _TextOptions | None = None


class SimulatedResponses(SimulatedChat):
    """``/responses``, OpenAI's. Nothing is stored, so a request carries its whole conversation."""

    def translated(self, value: Any) -> dict[str, Any]:
        """Return the chat request: instructions as its system message, items as its turns."""
        body = _ResponsesBody.model_validate(value)
        items = [_Item(role="user", content=body.input)] if isinstance(body.input, str) else body.input
        choice = {"function": body.tool_choice} if isinstance(body.tool_choice, dict) else body.tool_choice
        wanted = None if body.text is None else body.text.format
        answer_format: dict[str, Any] | None = None
        if wanted is not None:
            schema = wanted.model_dump(exclude={"type"}, exclude_none=True, by_alias=True)
            answer_format = {"type": wanted.type} | ({"json_schema": schema} if schema else {})
        tools = [*(body.tools or ()), *(tool for item in items for tool in item.tools)]
        more = {"max_tokens": body.max_output_tokens, "tool_choice": choice, "response_format": answer_format}
        return body.chat(_chat_messages(body.instructions, items), tools, **more)

    def reply(self, completion: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return a response with a message item for the text and an item for each call."""
        choice, usage = completion["choices"][0], completion["usage"]
        cut = choice["finish_reason"] == "length"
        repeated: dict[str, Any] = {
            "instructions": None,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
        return {
            "id": f"resp_{_digest_in(completion)}",
            "object": "response",
            "created_at": completion["created"],
            "status": "incomplete" if cut else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "model": completion["model"],
            "output": list(_output(completion, "incomplete" if cut else "completed", asked)),
            **{key: asked.get(key) or part for key, part in repeated.items()},
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
        }

    def events(self, completion: Mapping[str, Any], asked: Mapping[str, Any]) -> Iterator[Event]:
        """Yield named, numbered events from ``response.created`` to ``response.completed`` or ``.incomplete``."""
        response = self.reply(completion, asked)
        begun = {**response, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
        events = [("response.created", {"response": begun}), ("response.in_progress", {"response": begun})]
        for index, item in enumerate(response["output"]):
            events += _item_events(index, item)
        events.append((f"response.{response['status']}", {"response": response}))
        for number, (kind, data) in enumerate(events):
            yield {"type": kind, **data, "sequence_number": number}


def _digest_in(completion: Mapping[str, Any]) -> str:
    return str(completion["id"]).rpartition("-")[2]


def _chat_messages(instructions: str | None, items: Sequence[_Item]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [] if instructions is None else [{"role": "system", "content": instructions}]
    for item in items:
        match item.type:
            case "message":
                messages.append({"role": item.role, "content": _text(item.content)})
            case "function_call":
                # A turn with text and calls comes as several items.
                turn = messages.pop() if messages and messages[-1]["role"] == "assistant" else {}
                name = item.name if item.namespace is None else f"{item.namespace}{_IN}{item.name}"
                calls = [*turn.get("tool_calls", ()), called(item.call_id, name, item.arguments)]
                messages.append(_assistant(turn.get("content") or "", calls))
            case "function_call_output":
                messages.append({"role": "tool", "content": _text(item.output, "\n"), "tool_call_id": item.call_id})
    return messages


def _output(completion: Mapping[str, Any], status: str, asked: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    message, digest = completion["choices"][0]["message"], _digest_in(completion)
    text, calls = message["content"] or "", message.get("tool_calls", ())
    if text or not calls:
        part: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
        yield {"id": f"msg_{digest}", "type": "message", "status": status, "role": "assistant", "content": [part]}
    items = [] if isinstance(asked["input"], str) else asked["input"]
    offered = [*(asked.get("tools") or ()), *(tool for item in items for tool in item.get("tools") or ())]
    spaces = [tool["name"] for tool in offered if tool["type"] == "namespace"]
    for index, call in enumerate(calls):
        named = {"id": f"fc_{digest}_{index}", "type": "function_call", "status": "completed", "call_id": call["id"]}
        whole = call["function"]["name"]
        space = next((each for each in spaces if whole.startswith(f"{each}{_IN}")), None)
        spaced = {} if space is None else {"namespace": space, "name": whole.removeprefix(f"{space}{_IN}")}
        yield {**named, **call["function"], **spaced}


def _item_events(index: int, item: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    whole = {"output_index": index, "item": item}
    at: dict[str, Any] = {"item_id": item["id"], "output_index": index}
    if item["type"] == "message":
        yield "response.output_item.added", {**whole, "item": {**item, "status": "in_progress", "content": []}}
        (part,) = item["content"]
        at["content_index"] = 0
        yield "response.content_part.added", {**at, "part": {**part, "text": ""}}
        for piece in pieces(part["text"]):
            yield "response.output_text.delta", {**at, "delta": piece, "logprobs": []}
        yield "response.output_text.done", {**at, "text": part["text"], "logprobs": []}
        yield "response.content_part.done", {**at, "part": part}
    else:
        yield "response.output_item.added", {**whole, "item": {**item, "status": "in_progress", "arguments": ""}}
        for piece in pieces(item["arguments"]):
            yield "response.function_call_arguments.delta", {**at, "delta": piece}
        yield "response.function_call_arguments.done", {**at, "arguments": item["arguments"]}
    yield "response.output_item.done", whole
