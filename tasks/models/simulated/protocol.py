"""What the service is asked and answers: chat completions, and texts in Messages and Responses.

No tool is called in the other two, as no world of the product has any. Options that only shape a sample change nothing;
what else an answer would have to show and cannot is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from tfgrpo.stores.json_values import compact_json, mapping_of

MODEL_NAME: Final = "simulated"
CHARS_PER_TOKEN: Final = 4
Object: TypeAlias = Mapping[str, Any]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True)


class ChatMessage(_Part):
    """One message of the dialogue."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """The content as one text."""
        return text_of(self.content or "")


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
        """The system messages as one text."""
        return "\n".join(message.text for message in self.messages if message.role in {"system", "developer"})

    @property
    def schema_body(self) -> dict[str, Any] | None:
        """The schema that the answer has to follow."""
        wanted = mapping_of(self.response_format).get("json_schema")
        return None if wanted is None else wanted.get("schema", {})


def framed(event: Object | str) -> bytes:
    """Return a server-sent event, named by the type in its data; those of chat have none."""
    name = f"event: {event['type']}\n" if isinstance(event, Mapping) and "type" in event else ""
    return f"{name}data: {event if isinstance(event, str) else compact_json(event)}\n\n".encode("utf-8", "replace")


def text_of(content: Any, between: str = "") -> str:
    """Return the text of a content; ``between``: what separates blocks."""
    return content if isinstance(content, str) else between.join(filter(None, (each.get("text") for each in content)))


def digest_in(completion: Object) -> str:
    """Return the digest that a completion is called by."""
    return str(completion["id"]).rpartition("-")[2]


class SimulatedChat:
    """``/chat/completions``; the other dialects are what differs from it."""

    def chat(self, body: Any) -> Any:
        """Return the chat request that asks the same. Raises ``LookupError`` or ``TypeError`` for what is no request."""
        return body

    def reply(self, completion: Object) -> Object:
        """Return a chat completion as the answer to a request."""
        return completion

    def events(self, reply: Object, *, usage: bool) -> Iterator[Object | str]:
        """Yield an answer as a stream: role, text, one call each, finish reason, usage if asked for; then ``[DONE]``."""
        (choice,) = reply["choices"]
        common = {key: reply[key] for key in ("id", "created", "model", "system_fingerprint")}
        common |= {"object": "chat.completion.chunk"} | ({"usage": None} if usage else {})
        text, calls = choice["message"]["content"], choice["message"].get("tool_calls", ())
        deltas: list[Object] = [{"role": "assistant", "content": "", "refusal": None}]
        deltas += [{"content": text}] if text else []
        deltas += ({"tool_calls": [{"index": index, **call}]} for index, call in enumerate(calls))
        for delta in (*deltas, {}):
            finish = None if delta else choice["finish_reason"]
            yield {**common, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}
        if usage:
            yield {**common, "choices": [], "usage": reply["usage"]}
        yield "[DONE]"


def chat_request(body: Object, system: Any, turns: Any, limit: str) -> dict[str, Any]:
    """Return a chat request of a system text and turns; ``limit`` is the field of the token limit."""
    messages = [] if system is None else [{"role": "system", "content": text_of(system)}]
    messages += [{"role": turn["role"], "content": text_of(turn["content"])} for turn in turns if "content" in turn]
    more = {"temperature": body.get("temperature"), "max_tokens": body.get(limit), "stream": body.get("stream") or None}
    return {"model": body["model"], "messages": messages} | {k: part for k, part in more.items() if part is not None}


class SimulatedMessages(SimulatedChat):
    """``/messages``, Anthropic's."""

    def chat(self, body: Any) -> Any:
        """Return the chat request: ``system`` as its first message."""
        return chat_request(body, body.get("system"), body["messages"], "max_tokens")

    def reply(self, completion: Object) -> Object:
        """Return a message with a block for the text."""
        choice, usage = completion["choices"][0], completion["usage"]
        message = {"id": f"msg_{digest_in(completion)}", "type": "message", "role": "assistant", "model": completion["model"]}
        return message | {
            "content": [{"type": "text", "text": choice["message"]["content"]}],
            "stop_reason": "max_tokens" if choice["finish_reason"] == "length" else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]},
        }

    def events(self, reply: Object, *, usage: bool) -> Iterator[Object | str]:  # noqa: ARG002 - a message always tells its usage
        """Yield named events from ``message_start`` to ``message_stop``."""
        tokens = reply["usage"]
        # Anthropic counts one output token at the start, and all of them at the end.
        start: Object = {"content": [], "stop_reason": None, "usage": {**tokens, "output_tokens": 1}}
        yield {"type": "message_start", "message": {**reply, **start}}
        for index, block in enumerate(reply["content"]):
            empty, delta = self.delta(block)
            yield {"type": "content_block_start", "index": index, "content_block": {**block, **empty}}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        end = {"stop_reason": reply["stop_reason"], "stop_sequence": None}
        yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": tokens["output_tokens"]}}
        yield {"type": "message_stop"}

    def delta(self, block: Object) -> tuple[Object, Object]:
        """Return the empty content of a block, and the delta that fills it."""
        return {"text": ""}, {"type": "text_delta", "text": block["text"]}


class SimulatedResponses(SimulatedChat):
    """``/responses``, OpenAI's. Nothing is stored, so a request carries its whole conversation."""

    def chat(self, body: Any) -> Any:
        """Return the chat request: instructions as its system message, messages among the items as its turns."""
        turns = body["input"]
        turns = [{"role": "user", "content": turns}] if isinstance(turns, str) else turns
        return chat_request(body, body.get("instructions"), turns, "max_output_tokens")

    def reply(self, completion: Object) -> Object:
        """Return a response with a message item for the text."""
        choice, usage, digest = completion["choices"][0], completion["usage"], digest_in(completion)
        cut = choice["finish_reason"] == "length"
        status = "incomplete" if cut else "completed"
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": choice["message"]["content"]}
        item = {"id": f"msg_{digest}", "type": "message", "status": status, "role": "assistant", "content": [part]}
        tokens = {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]}
        tokens |= {"total_tokens": usage["total_tokens"], "output_tokens_details": {"reasoning_tokens": 0}}
        tokens |= {"input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}
        ending = {"reason": "max_output_tokens"} if cut else None
        response = {"id": f"resp_{digest}", "object": "response", "created_at": completion["created"], "error": None}
        response |= {"model": completion["model"], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        return response | {"status": status, "incomplete_details": ending, "output": [item], "usage": tokens}

    def events(self, reply: Object, *, usage: bool) -> Iterator[Object | str]:  # noqa: ARG002 - a response always tells its usage
        """Yield named, numbered events from ``response.created`` to ``response.completed`` or ``.incomplete``."""
        empty = {**reply, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
        events: list[tuple[str, Object]] = [("created", {"response": empty})]
        for index, item in enumerate(reply["output"]):
            events += self.item_events(index, item)
        events.append((reply["status"], {"response": reply}))
        for number, (kind, data) in enumerate(events):
            yield {"type": f"response.{kind}", **data, "sequence_number": number}

    def item_events(self, index: int, item: Object) -> Iterator[tuple[str, Object]]:
        """Yield the events of one item."""
        (part,) = item["content"]
        at = {"item_id": item["id"], "output_index": index, "content_index": 0}
        yield "output_item.added", {"output_index": index, "item": {**item, "status": "in_progress", "content": []}}
        yield "content_part.added", {**at, "part": {**part, "text": ""}}
        yield "output_text.delta", {**at, "delta": part["text"], "logprobs": []}
        yield "output_text.done", {**at, "text": part["text"], "logprobs": []}
        yield "content_part.done", {**at, "part": part}
        yield "output_item.done", {"output_index": index, "item": item}


DIALECTS: Final[Mapping[str, SimulatedChat]] = {
    "/v1/chat/completions": SimulatedChat(),
    "/v1/messages": SimulatedMessages(),
    "/v1/responses": SimulatedResponses(),
}
