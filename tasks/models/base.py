"""Interface to language models: one request, one reply, one protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

from tfgrpo.stores.ledger import Usage
from tfgrpo.stores.runs import CallKey

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "other"]

ChatInput: TypeAlias = str | Sequence[Mapping[str, str]]
"""A user message, or messages with ``role`` (system, user or assistant) and ``content``."""
# Reasons of an incomplete reply.
CUT_OFF: Final[tuple[FinishReason, ...]] = ("length", "content_filter")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of the model. ``arguments`` is the raw JSON text, unparsed: models get it wrong."""

    id: str
    name: str
    arguments: str
    extra: str = ""
    """As ``Message.extra``, for one call (Gemini's thought signatures)."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the chat protocol."""

    role: Role
    content: str | None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    extra: str = ""
    """JSON object of further fields, such as the model's reasoning, that the endpoint wants back with the tools' results.
    Opaque; empty without any."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it: name, description, JSON schema of the arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AnswerSchema:
    """A JSON schema the answer must follow (``response_format``)."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens as the endpoint counted them. ``cached`` is part of ``prompt``, ``reasoning`` part of ``completion``."""

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """The counts in order, as they are journalled."""
        return self.prompt, self.completion, self.cached, self.reasoning

    @property
    def total(self) -> int:
        """Prompt and completion together."""
        return self.prompt + self.completion


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One chat completion, or one request for embeddings. There is no ``n``: every rollout is a separate call."""

    model: str
    messages: tuple[Message, ...]
    temperature: float
    max_tokens: int
    seed: int | None = None
    tools: tuple[ToolSpec, ...] = ()
    answer_schema: AnswerSchema | None = None
    logprobs: bool = False
    embeds: bool = False
    """The messages are texts of which the reply has the vectors, as JSON: a call of ``/embeddings``, without a completion."""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A usable answer: it has text or tool calls."""

    message: Message
    finish_reason: FinishReason
    # None when the endpoint sent none: unknown, not zero.
    usage: TokenUsage | None = None
    latency_s: float = 0.0
    """Seconds of the successful attempt, without waits for a slot or for retries."""
    cost_usd: float | None = None
    model: str = ""
    response_id: str | None = None
    attempts: int = 1
    token_logprobs: tuple[float, ...] | None = None
    replayed: bool = False

    @property
    def used(self) -> Usage:
        """What the call used."""
        prompt, completion = (None, None) if self.usage is None else (self.usage.prompt, self.usage.completion)
        return Usage(1, prompt, completion, self.cost_usd)


class Chat(Protocol):
    """Ask the model of the run: the argument ``chat`` of an asynchronous agent. A blocking agent gets a blocking one.

    Takes a text, or messages with ``role`` and ``content``, and returns the text of the answer. The lessons go first, as the
    system message, unless the messages have one. Every call is measured, journalled and counted against the budget.

    Raises ``ModelCallError`` for a call without an answer, ``BudgetRefused`` at a cap, ``ActorError`` for an unknown role.

    Examples:
        >>> async def agent(prompt: str, chat: tfgrpo.Chat) -> str:
        ...     draft = await chat(prompt)
        ...     return await chat(f"{prompt} Check this answer and answer again: {draft}")
    """

    async def __call__(self, messages: ChatInput, /) -> str:
        """Return the answer to a user message, or to messages."""
        ...


class ChatModel(Protocol):
    """Interface of everything that answers chat requests."""

    async def complete(self, request: ChatRequest, key: CallKey) -> ChatReply:
        """Answer one request. Raises ``ModelCallError``, ``BudgetRefused`` or ``ReplayMiss``.

        ``key`` names the call within the run: the same request under the same key is never paid for twice.
        """
        ...
