"""Answer one chat request, from the journal or over HTTP: slot, reservation, request, settlement, and another attempt.

The journal is in front of any model; without a model behind it, a call that it does not hold is a ``ReplayMiss``. A failure
is not journalled here, because the flow decides whether it is final. Failures are returned as values and raised outside any
handler: exceptions of the HTTP library hold the request with its key and must not be chained to ours.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, Unpack

import httpx

from tfgrpo.pipelines.settings.tree import ModelRole, ModelSettings
from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.errors import (
    BudgetRefused,
    ModelAuthRefused,
    ModelCallError,
    ModelNotFound,
    ModelReplyMalformed,
    ModelTimeout,
    ModelUnreachable,
    ReplayMiss,
    TfgrpoError,
)
from tfgrpo.stores.json_values import json_of, sha256_hex
from tfgrpo.stores.ledger import NANO, Ledger, Price, Reservation
from tfgrpo.stores.numeric import is_cost
from tfgrpo.stores.runs import IDEMPOTENCY_KEY, CallKey, Journal, idempotency_key
from tfgrpo.stores.telemetry.setup import Facts, SpanHandle, Telemetry, TelemetryOptions
from tfgrpo.tasks.models import wire
from tfgrpo.tasks.models.base import ChatModel, ChatReply, ChatRequest, Message, TokenUsage, ToolCall
from tfgrpo.tasks.models.endpoint import Endpoint, display_url, scrubbed
from tfgrpo.tasks.models.retry import (
    FailedAttempt,
    Outages,
    Refusal,
    RetryPolicy,
    failure_of,
    hidden_status,
    read_refusal,
    reset_after,
    retry_after,
    vendor_hint,
)
from tfgrpo.tasks.models.transport import (
    TRANSPORT_ERRORS,
    Received,
    client_over,
    exchange,
    is_certificate_error,
    never_sent,
    words_of,
)

Charge: TypeAlias = Callable[[Reservation], None]
# Statuses by which an endpoint asks for fewer calls.
OVERLOADED = frozenset({429, 503, 529})


@dataclass(frozen=True, slots=True)
class Bound:
    """Most that a call to a model can use: no tokenizer makes more tokens than there are bytes."""

    model: str
    tokens: int
    nano_usd: int | None
    price: Price | None
    texts: int = 0

    def settled(self, usage: TokenUsage | None) -> tuple[TokenUsage | None, int | None, Charge]:
        """Return reported usage, unknown if it is implausible, its cost, and how the reservation ends."""
        if usage is None:
            return None, None, partial(Reservation.lose, answered=True)
        # What endpoints add (templates, hidden reasoning, results of their tools) stays below both limits.
        if usage.total > max(10 * self.tokens, 100_000):
            return None, None, _settled(self.tokens, self.nano_usd, believed=False)
        nano_usd = self.price.cost(usage.prompt, usage.completion, usage.cached) if self.price is not None else None
        return usage, nano_usd, _settled(usage.total, nano_usd)


@dataclass(frozen=True, slots=True)
class _Attempt:
    result: ChatReply | FailedAttempt
    # Lost if it may have been charged without a known usage, released if it was never sent.
    charge: Charge = Reservation.lose
    status: int | None = None


class AdaptiveLimiter:
    """At most ``cap`` calls in flight, fewer while the endpoint pushes back; first come first served.

    Additive increase, multiplicative decrease, as in congestion control (Chiu and Jain 1989). A call that is refused for
    overload (429, 503) halves the limit, but only if it *started* after the last halving: calls that were in flight then
    belong to the same congestion. Each served call adds ``1 / limit``: about one more call in flight per round trip, up to
    the cap, with which it starts. The limit never falls below one. For one event loop, so without a lock.
    """

    def __init__(self, cap: int) -> None:
        if cap < 1:
            raise ValueError(f"cap must be at least 1, got {cap}")
        self._cap, self._limit = cap, float(cap)
        self._in_flight = self._round = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """Calls that may be in flight now."""
        return int(self._limit)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[int]:
        """Wait for permission for one call. Yields the round in which it starts, for ``pushed_back``."""
        if self._waiting or self._in_flight >= self.limit:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                # The slot was granted meanwhile: pass it on.
                if turn.done() and not turn.cancelled():
                    self._leave()
                raise
        else:
            self._in_flight += 1
        try:
            yield self._round
        finally:
            self._leave()

    def served(self) -> None:
        """Report, before the slot is left, that the endpoint accepted a call."""
        self._limit = min(float(self._cap), self._limit + 1.0 / self._limit)
        self._admit()

    def pushed_back(self, started: int) -> None:
        """Report, before the slot is left, that the endpoint asked for fewer calls."""
        if started == self._round:
            self._limit = max(1.0, self._limit / 2.0)
            self._round += 1

    def _leave(self) -> None:
        self._in_flight -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and (self._waiting[0].done() or self._in_flight < self.limit):
            turn = self._waiting.popleft()
            # Cancelled waiters stay in the queue until here.
            if not turn.done():
                self._in_flight += 1
                turn.set_result(None)


@dataclass(repr=False, eq=False)
class ChatClient:
    """``ChatModel`` over an OpenAI-compatible endpoint.

    Every attempt is reserved with the ledger before it is sent, and settled with the usage that the reply reports; without
    one it stays there at its upper bound. ``transport`` is the client of ``open_transport``, or any httpx transport.
    """

    endpoint: Endpoint
    transport: httpx.AsyncClient | httpx.AsyncBaseTransport
    _: KW_ONLY
    concurrency: int
    ledger: Ledger
    prices: Mapping[str, Price]
    retry: RetryPolicy
    rng: random.Random
    run: str = ""
    """Name that no other run has, for idempotency keys."""
    outages: Outages = field(default_factory=Outages)
    ends: bool = False
    """Whether no further call is sent after one that shows a refused key or an empty account; a service asks again."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Clock = utc_now
    timer: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        self.limiter = AdaptiveLimiter(self.concurrency)
        transport = self.transport
        self.http = transport if isinstance(transport, httpx.AsyncClient) else client_over(transport)
        self._shown_url = self.endpoint.display_url
        self._url, self._embedding_url = self.endpoint.url("/chat/completions"), self.endpoint.url("/embeddings")
        self._headers = httpx.Headers({**self.http.headers, **self.endpoint.headers()})
        # Why no further call is sent; None while calls are.
        self.ended: ModelAuthRefused | BudgetRefused | None = None
        # Models that have answered, so that the key is known to be good for them.
        self.answering: set[str] = set()
        # What calls do without since the endpoint refused it, of ``OMITTABLE``.
        self.omitted: set[str] = set()

    def sharing(self, endpoint: Endpoint, retry: RetryPolicy) -> ChatClient:
        """Return a client for other requests to the same address, with these connections and this limiter."""
        other = replace(self, endpoint=endpoint, transport=self.http, retry=retry)
        other.limiter = self.limiter
        return other

    async def aclose(self) -> None:
        """Close the connections."""
        await self.http.aclose()

    async def complete(self, request: ChatRequest, key: CallKey) -> ChatReply:
        """Answer one request. Raises ``ModelCallError`` or ``BudgetRefused``."""
        number, waited, omitted = 1, 0.0, frozenset(self.omitted)
        body, bound = self._prepare(request)
        failed: FailedAttempt | None = None
        while True:
            call = None if "idempotency_key" in omitted else idempotency_key(self.run, key.text(sha256_hex(body)))
            try:
                result = await self._attempt(body, bound, call)
            except BudgetRefused as refused:
                if failed is None:
                    raise
                raise BudgetRefused(f"{refused}; the call had failed before: {failed.error}") from failed.error
            if isinstance(result, ChatReply):
                self.outages.answered(self._shown_url, self.clock)
                return result if number == 1 else replace(result, attempts=number)
            if result.refused and result.refused not in omitted:
                self.omitted.add(result.refused)
                omitted = frozenset(self.omitted)
                body, bound = self._prepare(request)
                continue
            wait = self.retry.wait(number, result, waited, self.rng)
            if wait is None:
                raise result.error
            failed = result
            if failed.unavailable:
                self.outages.silent(self._shown_url, self.retry.unavailable_s, self.clock())
            waited += wait
            number += 1
            await self.sleep(wait)

    def _prepare(self, request: ChatRequest) -> tuple[bytes, Bound]:
        body = wire.encode_request(request, self.endpoint.wire, reasoning="reasoning" not in self.omitted)
        bound = self.bound(request.model, len(body), 0 if request.embeds else request.max_tokens)
        return body, replace(bound, texts=len(request.messages)) if request.embeds else bound

    def bound(self, model: str, size: int, completion: int) -> Bound:
        """Return the most that a request of ``size`` bytes can use with so many tokens of completion."""
        price = self.prices.get(model)
        return Bound(model, size + completion, None if price is None else price.cost(size, completion, 0), price)

    async def reserve(self, bound: Bound) -> Reservation:
        """Reserve the most that a call can use, before it is sent. Raises ``BudgetRefused``, and what has ended the client."""
        if self.ended is not None:
            # One of its own for each call: they are raised with notes.
            raise type(self.ended)(*self.ended.args)
        return await self.ledger.reserve(calls=1, tokens=bound.tokens, nano_usd=bound.nano_usd, model=bound.model)

    async def _attempt(self, body: bytes, bound: Bound, key: str | None) -> ChatReply | FailedAttempt:
        async with self.limiter.slot() as started:
            # Only now: the bounds of all calls in the queue together would look like a budget that is used up.
            reservation = await self.reserve(bound)
            try:
                attempt = await self._send(body, bound, key)
            except BaseException:
                # Cancelled, or an unexpected error: the endpoint may charge for it.
                reservation.lose()
                raise
            attempt.charge(reservation)
            if attempt.status in OVERLOADED:
                self.limiter.pushed_back(started)
            # A broken connection is a sign neither of overload nor of its end.
            elif attempt.status is not None:
                self.limiter.served()
            return attempt.result

    async def _send(self, body: bytes, bound: Bound, key: str | None) -> _Attempt:
        limit, started = self.endpoint.timeout_s, self.timer()
        try:
            # Not ``build_request``, which merges the same headers again for every call.
            url = self._embedding_url if bound.texts else self._url
            request = httpx.Request("POST", url, content=body, headers=self._headers)
            if key is not None:
                request.headers[IDEMPOTENCY_KEY] = key
            received = await exchange(self.http, request, limit)
        # Before TRANSPORT_ERRORS: it is an OSError.
        except TimeoutError:
            late = ModelTimeout(f"no complete reply within {limit:g} s from {self.endpoint.display_url}")
            return _Attempt(FailedAttempt(late, retryable=True))
        except TRANSPORT_ERRORS as error:
            return _Attempt(*self.disconnected(error))
        except ModelReplyMalformed as oversized:
            return _Attempt(FailedAttempt(ModelReplyMalformed(str(oversized)), retryable=False))
        return self._received(bound, received, self.timer() - started)

    def disconnected(self, error: Exception) -> tuple[FailedAttempt, Charge]:
        """Return the failure that one of ``TRANSPORT_ERRORS`` is, and how its reservation ends."""
        where = self.endpoint.display_url
        cause = self.endpoint.excerpt(words_of(error)) or type(error).__name__
        if is_certificate_error(error):
            text = f"no connection to {where}: {cause}; for a certificate authority of your own set SSL_CERT_FILE"
            return FailedAttempt(ModelUnreachable(text), retryable=False), Reservation.release
        if never_sent(error):
            unsent = ModelUnreachable(f"no connection to {where}: {cause}")
            return FailedAttempt(unsent, retryable=True, unavailable=True), Reservation.release
        broken = ModelUnreachable(f"connection to {where} broke: {cause}")
        return FailedAttempt(broken, retryable=True), Reservation.lose

    def _received(self, bound: Bound, received: Received, latency_s: float) -> _Attempt:
        status, model = received.status, bound.model
        if not received.ok:
            return _Attempt(*self.refused(model, received, read_refusal(status, received.content)), status)
        body = json_of(received.content)
        if not isinstance(body, dict):
            if received.is_page and model not in self.answering:
                text = f"{self.endpoint.display_url} sent a page of HTML ({len(received.content)} bytes){self.endpoint.advice}"
                # Retried: a proxy may show a page while the endpoint starts.
                return _Attempt(FailedAttempt(ModelNotFound(text), retryable=True), status=status)
            kind = "no JSON" if body is None else f"a JSON {type(body).__name__}, not an object"
            malformed = ModelReplyMalformed(f"the reply is {kind} ({len(received.content)} bytes)")
            return _Attempt(FailedAttempt(malformed, retryable=True), status=status)
        hidden = hidden_status(body)
        if hidden is not None:
            failed, _ = self.refused(model, received, read_refusal(hidden, received.content))
            # Lost, as it may have been charged: the endpoint took the call.
            return _Attempt(failed, status=hidden)
        self.answering.add(model)
        # Whether or not the body can be decoded.
        usage, nano_usd, charge = bound.settled(wire.decode_usage(body))
        try:
            reply = wire.decode_embeddings(body, bound.texts) if bound.texts else wire.decode_reply(body)
        except ModelReplyMalformed as error:
            malformed = ModelReplyMalformed(self.endpoint.excerpt(str(error)))
            return _Attempt(FailedAttempt(malformed, retryable=not wire.repeats_empty(body)), charge, status)
        # The endpoint may have echoed the key.
        scrub = self.endpoint.scrub
        measured = replace(
            reply,
            message=scrubbed(reply.message, scrub),
            model=scrub(reply.model) or model,
            response_id=scrubbed(reply.response_id, scrub),
            usage=usage,
            latency_s=latency_s,
            cost_usd=None if nano_usd is None else nano_usd / NANO,
        )
        return _Attempt(measured, charge, status)

    def refused(self, model: str, received: Received, refusal: Refusal) -> tuple[FailedAttempt, Charge]:
        """Return the failure that a refusal of a call to ``model`` is, and how its reservation ends."""
        charge = Reservation.lose if refusal.unreadable else _settled(0, 0)
        reason = self.endpoint.excerpt(refusal.message) or "an empty body"
        if received.moved_to is not None:
            there = self.endpoint.scrub(display_url(received.moved_to))
            reason = f"it moved to {there}; give that as the base URL, without /chat/completions"
        text = f"{refusal.status} from {self.endpoint.display_url}: {reason}{vendor_hint(refusal.status, refusal.words)}"
        if refusal.no_credit:
            text = f"the account at the endpoint has nothing left: {text}; once it has, the run can be resumed"
            return self._ended_by(BudgetRefused(text)), charge
        now = self.clock()
        after_s = retry_after(received.headers, now)
        if after_s is None and refusal.status == 429:
            after_s = reset_after(refusal.headers or received.headers, now)
        failed = failure_of(refusal, text, after_s, answered=model in self.answering)
        # A key that is refused for one model may be good for another.
        if isinstance(failed.error, ModelAuthRefused) and not (refusal.status == 403 and self.answering):
            failed = self._ended_by(failed.error)
        return failed, charge

    def _ended_by(self, error: ModelAuthRefused | BudgetRefused) -> FailedAttempt:
        self.ended = error if self.ends else None
        return FailedAttempt(error, retryable=False)


def _settled(tokens: int, nano_usd: int | None, *, believed: bool = True) -> Charge:
    return lambda reservation: reservation.settle(tokens, nano_usd, believed=believed)


# By those of call keys; all others reflect, curate or shorten.
_ROLES: Mapping[str, ModelRole] = {"rollout": "actor", "judge": "judge"}


@dataclass(frozen=True, slots=True)
class RoleModels:
    """``ChatModel`` that asks the one of the call's role."""

    models: Mapping[ModelRole, ChatModel]

    async def complete(self, request: ChatRequest, key: CallKey) -> ChatReply:
        """Answer one request as the model of its role does."""
        return await self.models[_ROLES.get(key.role, "reflection")].complete(request, key)


@dataclass(slots=True, eq=False)
class JournaledModel:
    """``ChatModel`` that answers from the journal where it can; without ``inner``, from it alone. For one event loop."""

    inner: ChatModel | None
    journal: Journal | None
    telemetry: Telemetry = field(default_factory=lambda: Telemetry(TelemetryOptions()))
    wire: ModelSettings = field(default_factory=ModelSettings)
    """Settings of the endpoint by which requests, and therefore spans, are written."""
    provider: str = "openai"
    """The endpoint on spans and metrics: the protocol's name, or ``simulated``."""

    async def complete(self, request: ChatRequest, key: CallKey) -> ChatReply:
        """Answer from the journal or the model. A journalled failure is raised again as what it was."""
        key_text = key.text(wire.request_digest(request))
        journal = self.journal
        answer = None if journal is None else journal.answer(key_text, reply_of_json, final=self.inner is None)
        if answer is not None:
            with self._span(request, key) as span:
                if isinstance(answer, TfgrpoError):
                    answer.add_note(f"call {key_text}")
                    raise answer
                describe_reply(span, answer)
                return answer
        if self.inner is None:
            raise ReplayMiss(f"the journal holds no call {key_text}")
        about: Facts = {"epoch": key.group.epoch, "phase": key.group.phase, "role": key.role}
        about |= {"model": request.model, "provider": self.provider}
        with self._span(request, key) as span:
            started = time.perf_counter()
            try:
                reply = await self.inner.complete(request, key)
            except ModelCallError as error:
                error.add_note(f"call {key_text}")
                count_call(self.telemetry, type(error).__name__, time.perf_counter() - started, **about)
                raise
            count_call(self.telemetry, reply, reply.latency_s, **about)
            describe_reply(span, reply)
        # Before anything uses the answer, so that none is paid for twice.
        if journal is not None:
            journal.append(key_text, reply_to_json(reply))
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
                span.content("input", wire.messages_text(request))
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


_PLAIN_FIELDS = ("finish_reason", "latency_s", "cost_usd", "model", "response_id", "attempts")


def reply_to_json(reply: ChatReply) -> dict[str, Any]:
    """Return a reply in the form of the journal, without fields that are empty."""
    message, usage = reply.message, reply.usage
    payload: dict[str, Any] = {"content": message.content, "usage": None if usage is None else list(usage.counts)}
    payload |= {name: getattr(reply, name) for name in _PLAIN_FIELDS}
    calls = [[call.id, call.name, call.arguments, *filter(None, [call.extra])] for call in message.tool_calls]
    logprobs = None if reply.token_logprobs is None else list(reply.token_logprobs)
    optional = {"tool_calls": calls or None, "extra": message.extra or None, "token_logprobs": logprobs}
    return payload | {name: value for name, value in optional.items() if value is not None}


def reply_of_json(payload: Mapping[str, Any]) -> ChatReply:
    """Return the reply that ``reply_to_json`` wrote, marked as replayed."""
    usage, logprobs, cost = wire.usage_of(payload["usage"]), payload.get("token_logprobs"), payload["cost_usd"]
    # A cost of tokens that cannot be is none either.
    invalid = payload["usage"] is not None and usage is None
    calls = tuple(ToolCall(*call) for call in payload.get("tool_calls", ()))
    fields = {name: payload[name] for name in _PLAIN_FIELDS}
    fields |= {"usage": usage, "cost_usd": None if invalid or not is_cost(cost) else cost}
    return ChatReply(
        Message("assistant", payload["content"], tool_calls=calls, extra=payload.get("extra", "")),
        token_logprobs=None if logprobs is None else tuple(logprobs),
        replayed=True,
        **fields,
    )
