"""What the service is asked and answers: chat completions, and texts in Messages and Responses.

No tool is called in the other two: no world of the product has any. Options that only shape a
sample change nothing, as agents send what their authors like, and structured output is left to the learning and judging
roles. What else an answer would have to show and cannot is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from tfgrpo.stores.json_values import compact_json, mapping_of

MODEL_NAME: Final = "simulated"
CHARS_PER_TOKEN: Final = 4
_PIECE: Final = 4 * CHARS_PER_TOKEN
"""Characters of one delta."""
Object: TypeAlias = Mapping[str, Any]


class _Part(BaseModel):
    """Part of a request; fields beyond those named are ignored."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True)


class _TextPart(_Part):
    type: Literal["text"]
    text: str


class _Function(_Part):
    name: str
    arguments: str


class MadeCall(_Part):
    """A call that the assistant made."""

    id: str
    function: _Function


class ChatMessage(_Part):
    """One message of the dialogue."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_TextPart] | None = None
    tool_calls: list[MadeCall] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """Return the content as one text."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class ChatBody(_Part):
    """The body of ``POST /v1/chat/completions``."""

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    seed: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    response_format: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: Literal[0] | None = None
    n: Literal[1] | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None

    @property
    def system(self) -> str:
        """Return the system messages as one text."""
        return "\n".join(message.text for message in self.messages if message.role in {"system", "developer"})

    @property
    def offered(self) -> frozenset[str]:
        """Return the names of the tools that may be called."""
        if self.tool_choice == "none":
            return frozenset()
        return frozenset(tool["function"]["name"] for tool in self.tools or ())

    @property
    def schema_body(self) -> dict[str, Any] | None:
        """Return the schema that the answer has to follow."""
        wanted = mapping_of(self.response_format).get("json_schema")
        return None if wanted is None else wanted.get("schema", {})


def framed(event: Object | str) -> bytes:
    """Return a server-sent event, named by the type in its data."""
    if isinstance(event, str):
        return f"data: {event}\n\n".encode()
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {compact_json(event)}\n\n".encode("utf-8", "replace")


def pieces(text: str) -> list[str]:
    """Cut a text into the deltas of a stream."""
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def text_of(content: Any, between: str = "") -> str:
    """Return the text of a content; ``between``: what separates blocks."""
    return content if isinstance(content, str) else between.join(filter(None, (each.get("text") for each in content)))


class SimulatedChat:
    """``/chat/completions``; the other dialects are what differs from it."""

    def chat(self, asked: Any) -> Any:
        """Return the chat request that asks the same. Raises ``LookupError`` or ``TypeError`` for what is no request."""
        return asked

    def reply(self, completion: Object) -> Object:
        """Return a chat completion as the answer to a request."""
        return completion

    def events(self, completion: Object, asked: Object) -> Iterator[Object | str]:
        """Yield the answer as a stream: role, text, one call each, finish reason, usage if asked for; then ``[DONE]``."""
        choice, usage = completion["choices"][0], (asked.get("stream_options") or {}).get("include_usage")
        common = {key: completion[key] for key in ("id", "created", "model", "system_fingerprint")}
        common |= {"object": "chat.completion.chunk"} | ({"usage": None} if usage else {})

        def chunk(delta: Object, finish: str | None = None) -> Object:
            return {**common, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}

        yield chunk({"role": "assistant", "content": "", "refusal": None})
        for piece in pieces(choice["message"]["content"] or ""):
            yield chunk({"content": piece})
        for index, call in enumerate(choice["message"].get("tool_calls", ())):
            yield chunk({"tool_calls": [{"index": index, **call}]})
        yield chunk({}, choice["finish_reason"])
        if usage:
            yield {**common, "choices": [], "usage": completion["usage"]}
        yield "[DONE]"


def chat_request(asked: Object, system: Any, turns: Any, limit: str) -> dict[str, Any]:
    """Return a chat request of a system text and turns; ``limit`` is the field of the token limit."""
    messages = [] if system is None else [{"role": "system", "content": text_of(system)}]
    messages += [{"role": turn["role"], "content": text_of(turn["content"])} for turn in turns if "content" in turn]
    more = {"temperature": asked.get("temperature"), "max_tokens": asked.get(limit), "stream": asked.get("stream") or None}
    return {"model": asked["model"], "messages": messages} | {k: part for k, part in more.items() if part is not None}


class SimulatedMessages(SimulatedChat):
    """``/messages``, Anthropic's."""

    def chat(self, asked: Any) -> Any:
        """Return the chat request: ``system`` as its first message."""
        return chat_request(asked, asked.get("system"), asked["messages"], "max_tokens")

    def reply(self, completion: Object) -> Object:
        """Return a message with a block for the text."""
        choice, usage = completion["choices"][0], completion["usage"]
        return {
            "id": f"msg_{digest_in(completion)}",
            "type": "message",
            "role": "assistant",
            "model": completion["model"],
            "content": [{"type": "text", "text": choice["message"]["content"]}],
            "stop_reason": "max_tokens" if choice["finish_reason"] == "length" else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]},
        }

    def events(self, completion: Object, asked: Object) -> Iterator[Object | str]:  # noqa: ARG002
        """Yield named events from ``message_start`` to ``message_stop``."""
        message = self.reply(completion)
        usage = message["usage"]
        begun: Object = {"content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
        yield {"type": "message_start", "message": {**message, **begun}}
        for index, block in enumerate(message["content"]):
            empty, deltas = self.begun(block)
            yield {"type": "content_block_start", "index": index, "content_block": {**block, **empty}}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage["output_tokens"]}}
        yield {"type": "message_stop"}

    def begun(self, block: Object) -> tuple[Object, Iterator[Object]]:
        """Return the empty content of a block, and the deltas that fill it."""
        return {"text": ""}, ({"type": "text_delta", "text": piece} for piece in pieces(block["text"]))


class SimulatedResponses(SimulatedChat):
    """``/responses``, OpenAI's. Nothing is stored, so a request carries its whole conversation."""

    def chat(self, asked: Any) -> Any:
        """Return the chat request: instructions as its system message, messages among the items as its turns."""
        turns = asked["input"]
        turns = [{"role": "user", "content": turns}] if isinstance(turns, str) else turns
        return chat_request(asked, asked.get("instructions"), turns, "max_output_tokens")

    def reply(self, completion: Object) -> Object:
        """Return a response with a message item for the text."""
        choice, usage, digest = completion["choices"][0], completion["usage"], digest_in(completion)
        cut = choice["finish_reason"] == "length"
        status = "incomplete" if cut else "completed"
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": choice["message"]["content"]}
        item = {"id": f"msg_{digest}", "type": "message", "status": status, "role": "assistant", "content": [part]}
        return {
            "id": f"resp_{digest}",
            "object": "response",
            "created_at": completion["created"],
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "model": completion["model"],
            "output": [item],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
        }

    def events(self, completion: Object, asked: Object) -> Iterator[Object | str]:  # noqa: ARG002
        """Yield named, numbered events from ``response.created`` to ``response.completed`` or ``.incomplete``."""
        response = self.reply(completion)
        begun = {**response, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
        events: list[tuple[str, Object]] = [("created", {"response": begun})]
        for index, item in enumerate(response["output"]):
            events += self.item_events(index, item)
        events.append((response["status"], {"response": response}))
        for number, (kind, data) in enumerate(events):
            yield {"type": f"response.{kind}", **data, "sequence_number": number}

    def item_events(self, index: int, item: Object) -> Iterator[tuple[str, Object]]:
        """Yield the events of one item."""
        (part,) = item["content"]
        at = {"item_id": item["id"], "output_index": index, "content_index": 0}
        begun = {**item, "status": "in_progress", "content": []}
        yield "output_item.added", {"output_index": index, "item": begun}
        yield "content_part.added", {**at, "part": {**part, "text": ""}}
        for piece in pieces(part["text"]):
            yield "output_text.delta", {**at, "delta": piece, "logprobs": []}
        yield "output_text.done", {**at, "text": part["text"], "logprobs": []}
        yield "content_part.done", {**at, "part": part}
        yield "output_item.done", {"output_index": index, "item": item}


def digest_in(completion: Object) -> str:
    """Return the digest that a completion is called by."""
    return str(completion["id"]).rpartition("-")[2]


DIALECTS: Final[Mapping[str, SimulatedChat]] = {
    "/v1/chat/completions": SimulatedChat(),
    "/v1/messages": SimulatedMessages(),
    "/v1/responses": SimulatedResponses(),
}
