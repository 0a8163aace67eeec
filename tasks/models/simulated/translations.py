"""Anthropic's Messages and OpenAI's Responses as translations of chat, for agents that speak them in a dry run.

What has no counterpart in chat is omitted, unknown fields are ignored. What a request lacks is a ``LookupError`` or a
``TypeError``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from tfgrpo.tasks.models.simulated.app import SimulatedChat, StreamedEvent, pieces
from tfgrpo.tasks.models.wire import called

Object: TypeAlias = Mapping[str, Any]
_IN: Final = "__"
"""Between the names of a namespace and of a function in it, where there is one name for both."""


def _text(content: Any, between: str = "") -> str:
    """Return the text of a content; ``between``: what separates blocks."""
    return content if isinstance(content, str) else between.join(filter(None, (each.get("text") for each in content)))


def _assistant(text: str, calls: Sequence[Object]) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": "assistant", "content": text or None if calls else text}
    return {**turn, "tool_calls": list(calls)} if calls else turn


def _functions(tools: Iterable[Object], within: str = "") -> Iterator[dict[str, Any]]:
    """Yield functions as chat has them, those of a namespace by its name and theirs, and no tools that the vendor runs."""
    for tool in tools:
        if tool.get("type") == "function" or "input_schema" in tool:
            named = {key: tool.get(key) for key in ("description", "parameters", "strict")}
            named |= {"name": within + tool["name"], "parameters": tool.get("input_schema", named["parameters"])}
            yield {"type": "function", "function": {key: part for key, part in named.items() if part is not None}}
        yield from _functions(tool.get("tools") or (), f"{tool.get('name')}{_IN}")


def _chat(asked: Object, messages: Sequence[Object], tools: Iterable[Object], **more: Any) -> dict[str, Any]:
    """Return the chat request. What is None in ``more`` is omitted."""
    more |= {
        "temperature": asked.get("temperature"),
        "tools": [*_functions(tools)] or None,
        "stream": asked.get("stream") or None,
    }
    kept = {key: part for key, part in more.items() if part is not None}
    return {"model": asked["model"], "messages": messages, **kept}


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
        system = [] if value.get("system") is None else [{"role": "system", "content": _text(value["system"])}]
        choice = value.get("tool_choice") or {}
        named = {"function": {"name": choice.get("name")}}
        more = {
            "max_tokens": value["max_tokens"],
            "stop": value.get("stop_sequences") or None,
            "tool_choice": {"any": "required", "tool": named}.get(choice.get("type", ""), choice.get("type")),
        }
        turns = [turn for each in value["messages"] for turn in _chat_turns(each)]
        return _chat(value, [*system, *turns], value.get("tools") or (), **more)

    def reply(self, completion: Object, asked: Object) -> dict[str, Any]:  # noqa: ARG002
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

    def events(self, completion: Object, asked: Object) -> Iterator[StreamedEvent]:
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

    def error(self, status: int, body: Object) -> dict[str, Any]:
        """Return the error with a type for its status."""
        error = {"type": _ERRORS.get(status, "api_error"), "message": body["error"]["message"]}
        return {"type": "error", "error": error, "request_id": None}


def _chat_turns(message: Object) -> Iterator[dict[str, Any]]:
    role, content = message["role"], message["content"]
    text, blocks = _text(content), () if isinstance(content, str) else content
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
        yield {"role": "tool", "content": _text(block.get("content", ""), "\n"), "tool_call_id": key}
    if text or not results:
        yield {"role": role, "content": text}


class SimulatedResponses(SimulatedChat):
    """``/responses``, OpenAI's. Nothing is stored, so a request carries its whole conversation."""

    def translated(self, value: Any) -> dict[str, Any]:
        """Return the chat request: instructions as its system message, items as its turns."""
        given, choice = value["input"], value.get("tool_choice")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        wanted, answer_format = (value.get("text") or {}).get("format"), None
        if wanted is not None:
            schema = {key: part for key, part in wanted.items() if key != "type" and part is not None}
            answer_format = {"type": wanted["type"]} | ({"json_schema": schema} if schema else {})
        more = {
            "max_tokens": value.get("max_output_tokens"),
            "tool_choice": {"function": choice} if isinstance(choice, dict) else choice,
            "response_format": answer_format,
        }
        return _chat(value, _chat_messages(value.get("instructions"), items), _tools_of(value), **more)

    def reply(self, completion: Object, asked: Object) -> dict[str, Any]:
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

    def events(self, completion: Object, asked: Object) -> Iterator[StreamedEvent]:
        """Yield named, numbered events from ``response.created`` to ``response.completed`` or ``.incomplete``."""
        response = self.reply(completion, asked)
        begun = {**response, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
        events = [("response.created", {"response": begun}), ("response.in_progress", {"response": begun})]
        for index, item in enumerate(response["output"]):
            events += _item_events(index, item)
        events.append((f"response.{response['status']}", {"response": response}))
        for number, (kind, data) in enumerate(events):
            yield {"type": kind, **data, "sequence_number": number}


def _digest_in(completion: Object) -> str:
    return str(completion["id"]).rpartition("-")[2]


def _tools_of(asked: Object) -> list[Object]:
    """Return the tools of a request, those among its items too."""
    items = () if isinstance(asked["input"], str) else asked["input"]
    return [*(asked.get("tools") or ()), *(tool for item in items for tool in item.get("tools") or ())]


def _chat_messages(instructions: str | None, items: Iterable[Object]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [] if instructions is None else [{"role": "system", "content": instructions}]
    for item in items:
        match item.get("type", "message"):
            case "message":
                messages.append({"role": item["role"], "content": _text(item["content"])})
            case "function_call":
                # A turn with text and calls comes as several items.
                turn = messages.pop() if messages and messages[-1]["role"] == "assistant" else {}
                space = "" if item.get("namespace") is None else f"{item['namespace']}{_IN}"
                call = called(item["call_id"], space + item["name"], item["arguments"])
                messages.append(_assistant(turn.get("content") or "", [*turn.get("tool_calls", ()), call]))
            case "function_call_output":
                text = _text(item["output"], "\n")
                messages.append({"role": "tool", "content": text, "tool_call_id": item["call_id"]})
    return messages


def _output(completion: Object, status: str, asked: Object) -> Iterator[dict[str, Any]]:
    message, digest = completion["choices"][0]["message"], _digest_in(completion)
    text, calls = message["content"] or "", message.get("tool_calls", ())
    if text or not calls:
        part: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
        yield {"id": f"msg_{digest}", "type": "message", "status": status, "role": "assistant", "content": [part]}
    spaces = [tool["name"] for tool in _tools_of(asked) if tool.get("type") == "namespace"]
    for index, call in enumerate(calls):
        named = {"id": f"fc_{digest}_{index}", "type": "function_call", "status": "completed", "call_id": call["id"]}
        whole = call["function"]["name"]
        space = next((each for each in spaces if whole.startswith(f"{each}{_IN}")), None)
        spaced = {} if space is None else {"namespace": space, "name": whole.removeprefix(f"{space}{_IN}")}
        yield {**named, **call["function"], **spaced}


def _item_events(index: int, item: Object) -> Iterator[tuple[str, dict[str, Any]]]:
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
