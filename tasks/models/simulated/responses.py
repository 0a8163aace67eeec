"""OpenAI's Responses dialect: ``/responses``. Nothing is stored, so a request carries its whole conversation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from tfgrpo.tasks.models.simulated.dialects import ChatDialect, Event, assistant_turn, pieces
from tfgrpo.tasks.models.simulated.protocol import NAME, Wire, WireBody
from tfgrpo.tasks.models.wire import called

_Status = Literal["in_progress", "completed", "incomplete"]
_IN: Final = "__"
"""Between the names of a namespace and of a function in it, where there is one name for both."""
_HOSTED: Final = (
    r"^(web_search|file_search|code_interpreter|image_generation|computer|mcp|(local_)?shell|apply_patch|custom)"
)
_DEFAULTS: Final[Mapping[str, Any]] = {
    "instructions": None, "max_output_tokens": None, "metadata": {}, "parallel_tool_calls": True, "store": True,
    "previous_response_id": None, "reasoning": {"effort": None, "summary": None}, "temperature": 1.0, "top_p": 1.0,
    "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "truncation": "disabled", "user": None,
}  # fmt: skip
"""Parts of a request that its answer repeats."""


class _Part(Wire):
    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class _Item(Wire):
    id: str | None = None
    status: _Status | None = None
    internal_chat_message_metadata_passthrough: dict[str, Any] | None = None
    """Codex's own."""


class _Message(_Item):
    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[_Part]
    phase: str | None = None


class _FunctionCall(_Item):
    type: Literal["function_call"]
    call_id: str
    name: str = Field(pattern=NAME)
    arguments: str
    namespace: str | None = Field(pattern=NAME, default=None)


class _FunctionCallOutput(_Item):
    type: Literal["function_call_output"]
    call_id: str
    output: str | list[_Part]


class _Function(Wire):
    type: Literal["function"]
    name: str = Field(pattern=NAME)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Namespace(Wire):
    """Functions that belong together, such as those of an MCP server."""

    type: Literal["namespace"]
    name: str = Field(pattern=NAME)
    description: str | None = None
    tools: list[_Function | _HostedTool]


class _HostedTool(Wire, extra="allow"):
    """A tool that the vendor runs, or that has no schema. The simulated model never calls it."""

    type: str = Field(pattern=_HOSTED)


class _AdditionalTools(_Item):
    """Tools that are offered where the conversation has come to them."""

    type: Literal["additional_tools"]
    role: Literal["developer"]
    tools: list[_Function | _Namespace | _HostedTool]


class _Format(Wire):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    body: dict[str, Any] | None = Field(alias="schema", default=None)
    strict: bool | None = None
    description: str | None = None


class _Text(Wire):
    format: _Format | None = None
    verbosity: str | None = None


class ResponsesBody(WireBody):
    """The body of ``POST /v1/responses``."""

    without_effect = frozenset({
        "top_p", "parallel_tool_calls", "max_tool_calls", "stream_options", "truncation", "include", "reasoning",
        "service_tier", "store", "metadata", "user", "prompt_cache_key", "prompt_cache_retention", "safety_identifier",
        "client_metadata",
    })  # fmt: skip
    model: str
    input: str | list[_Message | _FunctionCall | _FunctionCallOutput | _AdditionalTools] = Field(min_length=1)
    instructions: str | None = None
    temperature: float | None = None
    max_output_tokens: Annotated[int, Field(ge=16)] | None = None
    tools: list[_Function | _Namespace | _HostedTool] | None = None
    tool_choice: Literal["auto", "none", "required"] | dict[str, Any] | None = None
    text: _Text | None = None
    stream: bool | None = None
    top_logprobs: Literal[0] | None = None
    background: Literal[False] | None = None
    previous_response_id: None = None
    conversation: None = None


class ResponsesDialect(ChatDialect):
    """``/responses``."""

    def translated(self, value: Any) -> dict[str, Any]:
        """Return the chat request: instructions as its system message, items as its turns."""
        body = ResponsesBody.model_validate(value)
        chat: dict[str, Any] = {"model": body.model, "messages": _messages(body)}
        chosen = {"function": body.tool_choice} if isinstance(body.tool_choice, dict) else body.tool_choice
        named = {"temperature": body.temperature, "max_tokens": body.max_output_tokens, "tool_choice": chosen}
        chat |= {key: part for key, part in named.items() if part is not None}
        functions = [tool.model_dump(exclude={"type"}, exclude_none=True) for tool in _functions(body)]
        if functions:
            chat["tools"] = [{"type": "function", "function": function} for function in functions]
        wanted = None if body.text is None else body.text.format
        if wanted is not None:
            schema = wanted.model_dump(exclude={"type"}, exclude_none=True, by_alias=True)
            chat["response_format"] = {"type": wanted.type} | ({"json_schema": schema} if schema else {})
        return {**chat, "stream": True} if body.stream else chat

    def reply(self, completion: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return a response with a message item for the text and an item for each call."""
        choice, usage = completion["choices"][0], completion["usage"]
        cut = choice["finish_reason"] == "length"
        repeated = {key: part if asked.get(key) is None else asked[key] for key, part in _DEFAULTS.items()}
        return {
            "id": f"resp_{_digest_in(completion)}",
            "object": "response",
            "created_at": completion["created"],
            "status": "incomplete" if cut else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "model": completion["model"],
            "output": list(_output(completion, "incomplete" if cut else "completed", _namespaces(asked))),
            **repeated,
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
        told = [("response.created", {"response": begun}), ("response.in_progress", {"response": begun})]
        for index, item in enumerate(response["output"]):
            told += _item_events(index, item)
        told.append((f"response.{response['status']}", {"response": response}))
        for number, (kind, data) in enumerate(told):
            yield {"type": kind, **data, "sequence_number": number}

    def broken(self, body: Mapping[str, Any], sent: int) -> Event:
        """Return an event of type ``error``."""
        error = body["error"]
        data = {"type": "error", "code": error["type"], "message": error["message"], "param": None}
        return {**data, "sequence_number": sent}


def _digest_in(completion: Mapping[str, Any]) -> str:
    return str(completion["id"]).rpartition("-")[2]


def _functions(body: ResponsesBody) -> Iterator[_Function]:
    """Yield all functions, those in a namespace by its name and theirs."""
    items = (item.tools for item in body.input if isinstance(item, _AdditionalTools))
    for tool in chain(body.tools or (), *items):
        match tool:
            case _Function():
                yield tool
            case _Namespace():
                inner = (each for each in tool.tools if isinstance(each, _Function))
                yield from (each.model_copy(update={"name": f"{tool.name}{_IN}{each.name}"}) for each in inner)


def _text(content: str | list[_Part], between: str = "") -> str:
    return content if isinstance(content, str) else between.join(part.text for part in content)


def _messages(body: ResponsesBody) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if body.instructions is not None:
        messages.append({"role": "system", "content": body.instructions})
    items = [_Message(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    for item in items:
        match item:
            case _Message():
                messages.append({"role": item.role, "content": _text(item.content)})
            case _FunctionCall():
                # A turn with text and calls comes as several items.
                turn = messages.pop() if messages and messages[-1]["role"] == "assistant" else {}
                name = item.name if item.namespace is None else f"{item.namespace}{_IN}{item.name}"
                calls = [*turn.get("tool_calls", ()), called(item.call_id, name, item.arguments)]
                messages.append(assistant_turn(turn.get("content") or "", calls))
            case _FunctionCallOutput():
                messages.append({"role": "tool", "content": _text(item.output, "\n"), "tool_call_id": item.call_id})
    return messages


def _namespaces(asked: Mapping[str, Any]) -> list[str]:
    items = [] if isinstance(asked["input"], str) else asked["input"]
    offered = chain(asked.get("tools") or (), *(item.get("tools") or () for item in items))
    return [tool["name"] for tool in offered if tool["type"] == "namespace"]


def _output(completion: Mapping[str, Any], status: str, namespaces: Sequence[str]) -> Iterator[dict[str, Any]]:
    message, digest = completion["choices"][0]["message"], _digest_in(completion)
    calls = message.get("tool_calls", ())
    if message["content"] or not calls:
        text = message["content"] or ""
        part: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
        yield {"id": f"msg_{digest}", "type": "message", "status": status, "role": "assistant", "content": [part]}
    for index, call in enumerate(calls):
        named = {"id": f"fc_{digest}_{index}", "type": "function_call", "status": "completed", "call_id": call["id"]}
        whole = call["function"]["name"]
        space = next((each for each in namespaces if whole.startswith(f"{each}{_IN}")), None)
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
