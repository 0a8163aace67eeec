"""What is the seam to language models? One request, one reply, one protocol; everything else implements it.

Implementations: ``tfgrpo.tasks.models.chat`` (OpenAI-compatible HTTP), ``journaled`` (journal in front of any other).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

from tfgrpo.stores.runs.journal import CallKey

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "other"]

CUT_OFF: Final[tuple[FinishReason, ...]] = ("length", "content_filter")
"""Ends of a reply that is not whole."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model wants made. ``arguments`` is the raw JSON text, unparsed: models get it wrong."""

    id: str
    name: str
    arguments: str
    extra: str = ""
    """As ``Message.extra``; of one call (Gemini's thought signatures)."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the chat protocol."""

    role: Role
    content: str | None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    extra: str = ""
    """JSON object of fields beyond the protocol that the endpoint sent and wants to see again, when the tools have
    answered: what the model thought. Opaque; empty without any."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model is told of it: name, description, JSON schema of the arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AnswerSchema:
    """A JSON schema the answer must follow (``response_format``)."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the endpoint counted them. ``cached`` is part of ``prompt``, ``reasoning`` part of ``completion``."""

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        """Prompt and completion together."""
        return self.prompt + self.completion


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One chat completion to be asked for. No ``n``: every rollout is a call of its own."""

    model: str
    messages: tuple[Message, ...]
    temperature: float
    max_tokens: int
    seed: int | None = None
    tools: tuple[ToolSpec, ...] = ()
    answer_schema: AnswerSchema | None = None
    logprobs: bool = False


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A usable answer: it has text or tool calls."""

    message: Message
    finish_reason: FinishReason
    usage: Usage | None
    """None when the endpoint sent none: unknown, not zero."""
    latency_s: float
    """Of the successful attempt; waiting for a slot and for retries not included."""
    cost_usd: float | None
    """None when the price or the usage is unknown."""
    model: str
    response_id: str | None = None
    attempts: int = 1
    token_logprobs: tuple[float, ...] | None = None
    replayed: bool = False
    """True when it came from the journal and nothing was sent."""


class ChatModel(Protocol):
    """Anything that answers chat requests."""

    async def complete(self, request: ChatRequest, key: CallKey) -> ChatReply:
        """Answer, or raise ``ModelCallError``, ``BudgetRefused`` or ``ReplayMiss``.

        ``key`` says which call of the run this is; a call with the same key and the same request is never paid for twice.
        """
        ...
