"""The simulated service as agents with tools need it: calls in all three dialects, a path as on Azure."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from starlette.applications import Starlette

from tfgrpo.pipelines.settings.tree import SimulatedSettings
from tfgrpo.tasks.models.simulated import simulated_app
from tfgrpo.tasks.models.simulated.engine import Engine
from tfgrpo.tasks.models.simulated.protocol import (
    DIALECTS,
    Object,
    SimulatedChat,
    SimulatedMessages,
    SimulatedResponses,
    chat_request,
    digest_in,
    text_of,
)
from tfgrpo.tasks.models.wire import called

_IN: Final = ".__"
"""Between the names of a namespace and of a function in it, where there is one name for both."""
# The ids of calls are those of chat but for their beginning, so that the same conversation has the same digest.
_CHAT_ID, _OWN_ID = "call_", "toolu_"


def agent_app(settings: SimulatedSettings) -> Starlette:
    """Return the service."""
    dialects = {**DIALECTS, "/v1/messages": _Messages(), "/v1/responses": _Responses()}
    dialects["/openai/deployments/{deployment}/chat/completions"] = SimulatedChat()
    return simulated_app(settings, Engine(settings), dialects)


def _functions(tools: Iterable[Object], within: str = "") -> Iterator[dict[str, Any]]:
    """Yield functions as chat has them, those of a namespace by its name and theirs, and no tools that the vendor runs."""
    for tool in tools:
        if tool.get("type") == "function" or "input_schema" in tool:
            named = {key: tool.get(key) for key in ("description", "parameters", "strict")}
            named |= {"name": within + tool["name"], "parameters": tool.get("input_schema", named["parameters"])}
            yield {"type": "function", "function": {key: part for key, part in named.items() if part is not None}}
        yield from _functions(tool.get("tools") or (), f"{tool.get('name')}{_IN}")


def _chat(chat: dict[str, Any], turns: Sequence[Object], tools: Iterable[Object], **more: Any) -> dict[str, Any]:
    """Return a chat request with all turns and with tools."""
    messages = [*(each for each in chat["messages"] if each["role"] == "system"), *turns]
    more |= {"tools": [*_functions(tools)] or None}
    return {**chat, "messages": messages} | {key: part for key, part in more.items() if part is not None}


def _assistant(text: str, calls: Sequence[Object]) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": "assistant", "content": text or None if calls else text}
    return {**turn, "tool_calls": list(calls)} if calls else turn


def _calls(completion: Object) -> Sequence[Any]:
    return completion["choices"][0]["message"].get("tool_calls") or ()


class _Messages(SimulatedMessages):
    def chat(self, body: Any) -> Any:
        """Return the chat request, with tool results as messages apart."""
        choice = body.get("tool_choice") or {}
        named = {"function": {"name": choice.get("name")}}
        wanted = {"any": "required", "tool": named}.get(choice.get("type", ""), choice.get("type"))
        turns = [turn for each in body["messages"] for turn in _chat_turns(each)]
        chat = chat_request(body, body.get("system"), (), "max_tokens")
        return _chat(chat, turns, body.get("tools") or (), tool_choice=wanted)

    def reply(self, completion: Object) -> Object:
        """Return a message with a block for the text, if any, and one for each call."""
        message, calls = super().reply(completion), _calls(completion)
        if not calls:
            return message
        blocks = [block for block in message["content"] if block["text"]]
        for call in calls:
            key, function = call["id"].replace(_CHAT_ID, _OWN_ID, 1), call["function"]
            used = {"name": function["name"], "input": json.loads(function["arguments"])}
            blocks.append({"type": "tool_use", "id": key, **used})
        return {**message, "content": blocks, "stop_reason": "tool_use"}

    def delta(self, block: Object) -> tuple[Object, Object]:
        if block["type"] == "text":
            return super().delta(block)
        return {"input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"], ensure_ascii=False)}


def _chat_turns(message: Object) -> Iterator[dict[str, Any]]:
    role, content = message["role"], message["content"]
    text, blocks = text_of(content), () if isinstance(content, str) else content
    if role == "assistant":
        used = [block for block in blocks if block["type"] == "tool_use"]
        calls = [
            called(use["id"].replace(_OWN_ID, _CHAT_ID, 1), use["name"], json.dumps(use["input"], ensure_ascii=False))
            for use in used
        ]
        yield _assistant(text, calls)
        return
    results = [block for block in blocks if block["type"] == "tool_result"]
    for block in results:
        key = block["tool_use_id"].replace(_OWN_ID, _CHAT_ID, 1)
        yield {"role": "tool", "content": text_of(block.get("content", ""), "\n"), "tool_call_id": key}
    if text or not results:
        yield {"role": role, "content": text}


class _Responses(SimulatedResponses):
    def chat(self, body: Any) -> Any:
        """Return the chat request, with the calls among the items and their outputs as messages."""
        given, choice = body["input"], body.get("tool_choice")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        tools = [*(body.get("tools") or ()), *(tool for item in items for tool in item.get("tools") or ())]
        wanted, answer_format = (body.get("text") or {}).get("format"), None
        if wanted is not None:
            schema = {key: part for key, part in wanted.items() if key != "type" and part is not None}
            answer_format = {"type": wanted["type"]} | ({"json_schema": schema} if schema else {})
        chat = chat_request(body, body.get("instructions"), (), "max_output_tokens")
        named = {"function": choice} if isinstance(choice, dict) else choice
        return _chat(chat, _chat_messages(items), tools, tool_choice=named, response_format=answer_format)

    def reply(self, completion: Object) -> Object:
        """Return a response with a message item for the text, if any, and an item for each call."""
        response, digest = super().reply(completion), digest_in(completion)
        calls = _calls(completion)
        output = [item for item in response["output"] if not calls or item["content"][0]["text"]]
        for index, call in enumerate(calls):
            named = {"id": f"fc_{digest}_{index}", "type": "function_call", "status": "completed", "call_id": call["id"]}
            space, _, name = call["function"]["name"].rpartition(_IN)
            output.append({**named, **call["function"], "name": name} | ({"namespace": space} if space else {}))
        return {**response, "output": output}

    def item_events(self, index: int, item: Object) -> Iterator[tuple[str, Object]]:
        if item["type"] == "message":
            yield from super().item_events(index, item)
            return
        at = {"item_id": item["id"], "output_index": index}
        begun = {**item, "status": "in_progress", "arguments": ""}
        yield "output_item.added", {"output_index": index, "item": begun}
        yield "function_call_arguments.delta", {**at, "delta": item["arguments"]}
        yield "function_call_arguments.done", {**at, "arguments": item["arguments"]}
        yield "output_item.done", {"output_index": index, "item": item}


def _chat_messages(items: Iterable[Object]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for item in items:
        match item.get("type", "message"):
            case "message":
                messages.append({"role": item["role"], "content": text_of(item["content"])})
            case "function_call":
                # A turn with text and calls comes as several items.
                turn = messages.pop() if messages and messages[-1]["role"] == "assistant" else {}
                space = "" if item.get("namespace") is None else f"{item['namespace']}{_IN}"
                call = called(item["call_id"], space + item["name"], item["arguments"])
                messages.append(_assistant(turn.get("content") or "", [*turn.get("tool_calls", ()), call]))
            case "function_call_output":
                text = text_of(item["output"], "\n")
                messages.append({"role": "tool", "content": text, "tool_call_id": item["call_id"]})
    return messages
