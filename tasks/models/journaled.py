"""Journal in front of any model: look a call up, or ask, append the reply and then return it.

Without a model behind it, it replays: a call that is not in the journal is a ``ReplayMiss``. Failures are raised with the
key of their call and not journalled here, because the flow decides whether they are final. A refused budget never is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Unpack

from tfgrpo.pipelines.settings.tree import ModelRole, ModelSettings
from tfgrpo.stores.errors import ModelCallError, ReplayMiss, TfgrpoError
from tfgrpo.stores.numeric import is_cost
from tfgrpo.stores.runs import CallKey, Journal
from tfgrpo.stores.telemetry.setup import Facts, SpanHandle, Telemetry, TelemetryOptions
from tfgrpo.tasks.models.base import ChatModel, ChatReply, ChatRequest, Message, ToolCall
from tfgrpo.tasks.models.wire import messages_text, request_digest, usage_of

_ROLES: Mapping[str, ModelRole] = {"rollout": "actor", "judge": "judge"}
"""Roles by those of call keys; all others reflect, curate or shorten."""


@dataclass(frozen=True, slots=True)
class RoleModels:
    """``ChatModel`` that asks the one of the call's role."""

    models: Mapping[ModelRole, ChatModel]

    async def complete(self, request: ChatRequest, key: CallKey) -> ChatReply:
        """Answer one request as the model of its role does."""
        return await self.models[_ROLES.get(key.role, "reflection")].complete(request, key)


@dataclass(slots=True, eq=False)
class JournaledModel:
    """``ChatModel`` that answers from the journal where it can. For one event loop.

    ``inner`` None: replay only. ``journal`` None: replies are not kept, for what is never resumed. Every call is a span;
    only calls that were made count in the metrics.
    """

    inner: ChatModel | None
    journal: Journal | None
    telemetry: Telemetry = field(default_factory=lambda: Telemetry(TelemetryOptions()))
    timer: Callable[[], float] = time.perf_counter
    wire: ModelSettings = field(default_factory=ModelSettings)
    """Settings of the endpoint by which requests, and therefore spans, are written."""
    provider: str = "openai"
    """The endpoint on spans and metrics: the protocol's name, or ``simulated``."""

    async def complete(self, request: ChatRequest, key: CallKey) -> ChatReply:
        """Answer from the journal or the model. A journalled failure is raised again as what it was."""
        key_text = key.text(request_digest(request))
        known = None
        if self.journal is not None:
            known = self.journal.answer(key_text, reply_of_json, final=self.inner is None)
        if known is not None:
            with self._span(request, key) as span:
                if isinstance(known, TfgrpoError):
                    known.add_note(f"call {key_text}")
                    raise known
                describe_reply(span, known)
                return known
        if self.inner is None:
            raise ReplayMiss(f"the journal holds no call {key_text}")
        try:
            reply = await self._observed(self.inner, request, key)
        except ModelCallError as error:
            error.add_note(f"call {key_text}")
            raise
        if self.journal is not None:
            self.journal.append(key_text, reply_to_json(reply))
        return reply

    async def _observed(self, inner: ChatModel, request: ChatRequest, key: CallKey) -> ChatReply:
        about: Facts = {"epoch": key.group.epoch, "phase": key.group.phase, "role": key.role}
        about |= {"model": request.model, "provider": self.provider}
        with self._span(request, key) as span:
            started = self.timer()
            try:
                reply = await inner.complete(request, key)
            except ModelCallError as error:
                count_call(self.telemetry, type(error).__name__, self.timer() - started, **about)
                raise
            count_call(self.telemetry, reply, reply.latency_s, **about)
            describe_reply(span, reply)
            return reply

    @contextmanager
    def _span(self, request: ChatRequest, key: CallKey) -> Iterator[SpanHandle]:
        opened = self.telemetry.chat_span(
            model=request.model,
            role=key.role,
            provider=self.provider,
            temperature=request.temperature if self.wire.send_temperature else None,
            max_tokens=request.max_tokens,
            request_seed=request.seed if self.wire.send_seed else None,
        )
        with opened as span:
            if self.telemetry.options.content:
                span.content("input", messages_text(request))
            yield span


def count_call(telemetry: Telemetry, result: ChatReply | str, took_s: float, **about: Unpack[Facts]) -> None:
    """Count a call in the metrics; ``result``: the reply, or the kind of a failure, which took ``took_s``."""
    if isinstance(result, str):
        telemetry.record("llm_call", **(about | {"duration_s": took_s, "error_type": result}))
        return
    about |= {"duration_s": result.latency_s, "llm_cost_usd": result.cost_usd}
    if result.usage is not None:
        about |= {"input_tokens": result.usage.prompt, "output_tokens": result.usage.completion}
    telemetry.record("llm_call", **about)


def describe_reply(span: SpanHandle, reply: ChatReply) -> None:
    """Set what a reply says of itself."""
    usage = reply.usage
    span.set(
        response_model=reply.model,
        response_id=reply.response_id,
        finish_reasons=(reply.finish_reason,),
        input_tokens=usage.prompt if usage else None,
        output_tokens=usage.completion if usage else None,
        cached_tokens=usage.cached if usage else None,
        reasoning_tokens=usage.reasoning if usage else None,
        llm_cost_usd=reply.cost_usd,
        replayed=reply.replayed or None,
    )
    span.content("output", reply.message.content or "")


def reply_to_json(reply: ChatReply) -> dict[str, Any]:
    """Return a reply in the form of the journal, without fields that are empty."""
    message = reply.message
    payload: dict[str, Any] = {
        "content": message.content,
        "finish_reason": reply.finish_reason,
        "usage": None if reply.usage is None else list(reply.usage.counts),
        "latency_s": reply.latency_s,
        "cost_usd": reply.cost_usd,
        "model": reply.model,
        "response_id": reply.response_id,
        "attempts": reply.attempts,
    }
    calls = [[call.id, call.name, call.arguments, *filter(None, [call.extra])] for call in message.tool_calls]
    logprobs = None if reply.token_logprobs is None else list(reply.token_logprobs)
    optional = {"tool_calls": calls or None, "extra": message.extra or None, "token_logprobs": logprobs}
    return payload | {name: value for name, value in optional.items() if value is not None}


def reply_of_json(payload: Mapping[str, Any]) -> ChatReply:
    """Return the reply that ``reply_to_json`` wrote, marked as replayed."""
    usage, logprobs, cost = usage_of(payload["usage"]), payload.get("token_logprobs"), payload["cost_usd"]
    invalid = payload["usage"] is not None and usage is None
    calls = tuple(ToolCall(*call) for call in payload.get("tool_calls", ()))
    return ChatReply(
        message=Message("assistant", payload["content"], tool_calls=calls, extra=payload.get("extra", "")),
        finish_reason=payload["finish_reason"],
        usage=usage,
        latency_s=payload["latency_s"],
        cost_usd=None if invalid or not is_cost(cost) else cost,
        model=payload["model"],
        response_id=payload["response_id"],
        attempts=payload["attempts"],
        token_logprobs=None if logprobs is None else tuple(logprobs),
        replayed=True,
    )
