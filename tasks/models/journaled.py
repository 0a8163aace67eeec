"""Was this call answered before? The journal in front of any other model: look up, or ask, append and then hand out.

With no model behind it, it replays: what the journal does not hold is a ``ReplayMiss``. Failures are raised with the
key of their call and are not journalled here: the flow decides whether a failure is final. A refused budget never is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tfgrpo.stores.errors import ModelCallError, ReplayMiss, TfgrpoError
from tfgrpo.stores.numeric import is_cost
from tfgrpo.stores.runs.journal import CallKey, Journal
from tfgrpo.tasks.models.base import ChatModel, ChatReply, ChatRequest, Message, ToolCall
from tfgrpo.tasks.models.replies import believable, usage_of
from tfgrpo.tasks.models.wire import WireOptions, encode_request, messages_text, request_digest

if TYPE_CHECKING:
    from tfgrpo.stores.telemetry.setup import SpanHandle, Telemetry

_KEY_ATTRIBUTE = "_tfgrpo_call_key"


def call_key_of(error: BaseException) -> str | None:
    """Key text of the call that raised the error, as it stands in the journal; None when no call is known."""
    key_text = error.__dict__.get(_KEY_ATTRIBUTE)
    return key_text if isinstance(key_text, str) else None


def _mark(error: TfgrpoError, key_text: str) -> None:
    error.__dict__[_KEY_ATTRIBUTE] = key_text
    error.add_note(f"call {key_text}")


class JournaledModel:
    """``ChatModel`` that answers from the journal where it can.

    ``inner`` None: nothing is ever sent. ``journal`` None: nothing is kept, for what is never resumed. Calls with one key
    that run at the same time are made once; the others get the same reply, marked as replayed. Every call is a span;
    only calls that were made count in the metrics. For one event loop.
    """

    def __init__(
        self,
        inner: ChatModel | None,
        journal: Journal | None,
        telemetry: Telemetry | None = None,
        *,
        timer: Callable[[], float] = time.perf_counter,
        send_temperature: bool = True,
        send_seed: bool = True,
        provider: str = "openai",
    ) -> None:
        """``send_temperature`` and ``send_seed`` say whether the endpoint is told of them, and so whether a span is.

        ``provider`` is what spans and metrics call the endpoint: the protocol's, or ``simulated``.
        """
        self._inner = inner
        self._journal = journal
        self._telemetry = telemetry
        self._timer = timer
        self._send_temperature = send_temperature
        self._send_seed = send_seed
        self._provider = provider
        self._running: dict[str, asyncio.Future[ChatReply | ModelCallError]] = {}

    async def complete(self, request: ChatRequest, key: CallKey) -> ChatReply:
        """Answer from the journal or the model. A journalled failure is raised again as what it was."""
        key_text = key.text(request_digest(request))
        while (running := self._running.get(key_text)) is not None:
            # Not awaited itself: its owner's cancellation is not ours.
            await asyncio.wait([running])
            if not running.cancelled():
                return _shared(running.result())
        found = self._found(key_text, request)
        if found is not None:
            with self._span(request, key) as span:
                self._asked(span, request)
                if isinstance(found, TfgrpoError):
                    _mark(found, key_text)
                    raise found
                return _told(span, found)
        if self._inner is None:
            raise ReplayMiss(f"the journal holds no call {key_text}")
        return await self._ask(self._inner, request, key, key_text)

    def _found(self, key_text: str, request: ChatRequest) -> ChatReply | TfgrpoError | None:
        if self._journal is None:
            return None
        return self._journal.answer(key_text, partial(_replay, request), final=self._inner is None)

    async def _ask(self, inner: ChatModel, request: ChatRequest, key: CallKey, key_text: str) -> ChatReply:
        running: asyncio.Future[ChatReply | ModelCallError] = asyncio.get_running_loop().create_future()
        self._running[key_text] = running
        try:
            reply = await self._observed(inner, request, key)
            if self._journal is not None:
                self._journal.append(key_text, reply_to_json(reply))
            running.set_result(reply)
        except ModelCallError as error:
            _mark(error, key_text)
            running.set_result(error)
            raise
        finally:
            del self._running[key_text]
            running.cancel()  # no effect when there is a result; otherwise the next in line asks for itself
        return reply

    async def _observed(self, inner: ChatModel, request: ChatRequest, key: CallKey) -> ChatReply:
        with self._span(request, key) as span:
            self._asked(span, request)
            started = self._timer()
            try:
                reply = await inner.complete(request, key)
            except ModelCallError as error:
                self._count(request, key, self._timer() - started, error_type=type(error).__name__)
                raise
            usage = reply.usage
            self._count(
                request,
                key,
                reply.latency_s,
                input_tokens=usage.prompt if usage else None,
                output_tokens=usage.completion if usage else None,
                cost_usd=reply.cost_usd,
            )
            return _told(span, reply)

    def _span(self, request: ChatRequest, key: CallKey) -> AbstractContextManager[SpanHandle | None]:
        if self._telemetry is None:
            return nullcontext()
        return self._telemetry.chat_span(
            model=request.model,
            role=key.role,
            provider=self._provider,
            temperature=request.temperature if self._send_temperature else None,
            max_tokens=request.max_tokens,
            seed=request.seed if self._send_seed else None,
        )

    def _asked(self, span: SpanHandle | None, request: ChatRequest) -> None:
        if span is not None and self._telemetry is not None and self._telemetry.options.content:
            span.content("input", messages_text(request))

    def _count(
        self,
        request: ChatRequest,
        key: CallKey,
        duration_s: float,
        *,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cost_usd: float | None = None,
        error_type: str | None = None,
    ) -> None:
        if self._telemetry is not None:
            self._telemetry.record_llm_call(
                epoch=key.epoch,
                phase="train" if key.arm == "train" else "eval",
                role=key.role,
                model=request.model,
                duration_s=duration_s,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cost_usd=cost_usd,
                error_type=error_type,
                provider=self._provider,
            )


def _told(span: SpanHandle | None, reply: ChatReply) -> ChatReply:
    """The reply, after the span has been told of it."""
    if span is not None:
        usage = reply.usage
        span.reply(
            model=reply.model,
            response_id=reply.response_id,
            finish_reason=reply.finish_reason,
            input_tokens=usage.prompt if usage else None,
            output_tokens=usage.completion if usage else None,
            cached_tokens=usage.cached if usage else None,
            reasoning_tokens=usage.reasoning if usage else None,
            cost_usd=reply.cost_usd,
            replayed=reply.replayed or None,
        )
        span.content("output", reply.message.content or "")
    return reply


def _shared(outcome: ChatReply | ModelCallError) -> ChatReply:
    if isinstance(outcome, ModelCallError):
        raise outcome
    return replace(outcome, replayed=True)


def _replay(request: ChatRequest, payload: Mapping[str, Any]) -> ChatReply:
    """The reply to ``request``; usage far above what that could use is unknown."""
    reply = reply_of_json(payload)
    if reply.usage is None or believable(reply.usage, 0):
        return reply
    bound = len(encode_request(request, WireOptions())) + request.max_tokens
    return reply if believable(reply.usage, bound) else replace(reply, usage=None, cost_usd=None)


def reply_to_json(reply: ChatReply) -> dict[str, Any]:
    """A reply as the journal keeps it. What is absent or ordinary is left out."""
    message, usage = reply.message, reply.usage
    payload: dict[str, Any] = {
        "content": message.content,
        "finish_reason": reply.finish_reason,
        "usage": None if usage is None else [usage.prompt, usage.completion, usage.cached, usage.reasoning],
        "latency_s": reply.latency_s,
        "cost_usd": reply.cost_usd,
        "model": reply.model,
        "response_id": reply.response_id,
        "attempts": reply.attempts,
    }
    if message.tool_calls:
        payload["tool_calls"] = [
            [call.id, call.name, call.arguments, *([call.extra] if call.extra else ())] for call in message.tool_calls
        ]
    if message.extra:
        payload["extra"] = message.extra
    if reply.token_logprobs is not None:
        payload["token_logprobs"] = list(reply.token_logprobs)
    return payload


def reply_of_json(payload: Mapping[str, Any]) -> ChatReply:
    """The reply that ``reply_to_json`` wrote, marked as replayed."""
    usage, logprobs, cost = usage_of(payload["usage"]), payload.get("token_logprobs"), payload["cost_usd"]
    nonsense = payload["usage"] is not None and usage is None
    calls = tuple(ToolCall(*call) for call in payload.get("tool_calls", ()))
    return ChatReply(
        message=Message("assistant", payload["content"], tool_calls=calls, extra=payload.get("extra", "")),
        finish_reason=payload["finish_reason"],
        usage=usage,
        latency_s=payload["latency_s"],
        cost_usd=None if nonsense or not is_cost(cost) else cost,
        model=payload["model"],
        response_id=payload["response_id"],
        attempts=payload["attempts"],
        token_logprobs=None if logprobs is None else tuple(logprobs),
        replayed=True,
    )
