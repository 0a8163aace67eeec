"""How is one chat request answered over HTTP? Slot, reservation, request, settlement; again if that can help.

It journals nothing and repairs no answers. The time limit covers a whole attempt, so a body that trickles does not
extend it. Failures are built as values and raised outside any handler: no exception of the HTTP library, which holds
the request with its key, hangs on to ours.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import httpx

from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.errors import BudgetRefused, ModelReplyMalformed, ModelTimeout, ModelUnreachable
from tfgrpo.stores.ledger.ledger import Ledger, Reservation
from tfgrpo.stores.ledger.prices import Price, PriceBook
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.tasks.models.base import ChatReply, ChatRequest, Usage
from tfgrpo.tasks.models.endpoint import Endpoint, shown
from tfgrpo.tasks.models.hints import hint_of
from tfgrpo.tasks.models.limiter import AdaptiveLimiter, Slot
from tfgrpo.tasks.models.refusals import Refusal, hidden_status, read_refusal
from tfgrpo.tasks.models.replies import Answer, believable, decode_answer, decode_usage, is_spent, parse_body
from tfgrpo.tasks.models.retry import Fault, RetryPolicy, fault_of, reset_after, retry_after
from tfgrpo.tasks.models.transport import TRANSPORT_ERRORS, Received, exchange, never_sent, over, untrusted
from tfgrpo.tasks.models.wire import encode_request

_PUSH_BACK = frozenset({429, 503, 529})
_NANO = 1e9
_AGAIN = {"true": True, "false": False}
"""What a server says that knows whether another attempt makes sense, as OpenAI's does."""
_Charge: TypeAlias = Literal["settled", "lost", "released"]


@dataclass(frozen=True, slots=True)
class _Call:
    """One request made ready: what every attempt at it has in common."""

    model: str
    body: bytes
    price: Price | None
    tokens: int
    """Most it can use: no tokenizer makes more tokens than there are bytes."""
    nano_usd: int | None


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What came of one attempt, and what to tell the ledger and the limiter of it."""

    outcome: ChatReply | Fault
    charge: _Charge
    tokens: int = 0
    nano_usd: int | None = 0
    status: int | None = None
    """HTTP status; None when no reply came."""
    believed: bool = True
    """False when the usage that came back was far above what the request could use."""


class ChatClient:
    """``ChatModel`` over an OpenAI-compatible endpoint.

    Every attempt is reserved with the ledger before it leaves, and settled with the usage that came back. Attempts that
    may have been charged but brought no usage stay on the ledger at their upper bound. ``transport`` is the client of
    ``open_transport``, or any httpx transport.
    """

    def __init__(  # noqa: PLR0913 - each is a decision of its own, passed in
        self,
        endpoint: Endpoint,
        transport: httpx.AsyncClient | httpx.AsyncBaseTransport,
        *,
        limiter: AdaptiveLimiter,
        ledger: Ledger,
        prices: PriceBook,
        retry: RetryPolicy,
        rng: random.Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Clock = utc_now,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._endpoint = endpoint
        self._http = transport if isinstance(transport, httpx.AsyncClient) else over(transport)
        self._limiter = limiter
        self._ledger = ledger
        self._prices = prices
        self._retry = retry
        self._rng = rng
        self._sleep = sleep
        self._clock = clock
        self._timer = timer
        self._url = endpoint.url("/chat/completions")
        self._answering: set[str] = set()
        """Models that have answered, so that the key is known to be good for them."""
        self._headers = httpx.Headers({**self._http.headers, **endpoint.headers()})

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def complete(self, request: ChatRequest, key: CallKey) -> ChatReply:
        """Answer one request; ``key`` is for whoever journals. Raises ``ModelCallError`` or ``BudgetRefused``."""
        del key
        call = self._prepare(request)
        attempt, waited = 1, 0.0
        while True:
            outcome = await self._attempt(call)
            if isinstance(outcome, ChatReply):
                return outcome if attempt == 1 else replace(outcome, attempts=attempt)
            wait = self._retry.wait(attempt, outcome, waited, self._rng)
            if wait is None:
                raise outcome.error
            waited += wait
            attempt += 1
            await self._sleep(wait)

    def _prepare(self, request: ChatRequest) -> _Call:
        body = encode_request(request, self._endpoint.wire)
        price = self._prices.price(request.model)
        nano_usd = price.cost(len(body), request.max_tokens, 0) if price is not None else None
        return _Call(request.model, body, price, len(body) + request.max_tokens, nano_usd)

    async def _attempt(self, call: _Call) -> ChatReply | Fault:
        async with self._limiter.slot() as slot:
            reservation = await self._ledger.reserve(calls=1, tokens=call.tokens, nano_usd=call.nano_usd)
            try:
                verdict = await self._send(call)
            except BaseException:
                # Cancelled, or broken in a way nobody foresaw: the endpoint may charge for it.
                reservation.lose()
                raise
            _settle(reservation, verdict)
            _report(slot, verdict.status)
            return verdict.outcome

    async def _send(self, call: _Call) -> _Verdict:
        """Make the exchange within the time limit and say what came of it."""
        limit = self._endpoint.timeout_s
        started = self._timer()
        try:
            async with asyncio.timeout(limit):
                # Not ``build_request``, which puts the same headers together for every call.
                request = httpx.Request("POST", self._url, content=call.body, headers=self._headers)
                received = await exchange(self._http, request)
        except TimeoutError:
            error = ModelTimeout(f"no complete reply within {limit:g} s from {self._endpoint.shown}")
            return _Verdict(Fault(error, again=True), "lost")
        except TRANSPORT_ERRORS as broken:
            return self._judge_break(broken)
        except ModelReplyMalformed as oversized:
            return _Verdict(_malformed(str(oversized), again=False), "lost")
        return self._judge(call, received, self._timer() - started)

    def _judge_break(self, broken: Exception) -> _Verdict:
        where = self._endpoint.shown
        said = self._endpoint.excerpt(str(broken)) or type(broken).__name__
        if untrusted(broken):
            text = f"no connection to {where}: {said}; for a certificate authority of your own set SSL_CERT_FILE"
            return _Verdict(Fault(ModelUnreachable(text), again=False), "released")
        if never_sent(broken):
            return _Verdict(Fault(ModelUnreachable(f"no connection to {where}: {said}"), again=True), "released")
        return _Verdict(Fault(ModelUnreachable(f"connection to {where} broke: {said}"), again=True), "lost")

    def _judge(self, call: _Call, received: Received, latency_s: float) -> _Verdict:
        status = received.status
        if not received.ok:
            refusal = read_refusal(status, received.content)
            charge: _Charge = "lost" if refusal.slip else "settled"
            return _Verdict(self._fault(call, received, refusal), charge, status=status)
        try:
            body = parse_body(received.content)
        except ModelReplyMalformed as error:
            return _Verdict(_malformed(str(error), again=True), "lost", status=status)
        hidden = hidden_status(body)
        if hidden is not None:
            return _Verdict(self._fault(call, received, read_refusal(hidden, received.content)), "lost", status=hidden)
        self._answering.add(call.model)
        usage = decode_usage(body)
        if usage is not None and not believable(usage, call.tokens):
            outcome = self._read(body, call.model, None, latency_s, None)
            return _Verdict(outcome, "settled", call.tokens, call.nano_usd, status, believed=False)
        cost = call.price.cost(usage.prompt, usage.completion, usage.cached) if usage and call.price else None
        outcome = self._read(body, call.model, usage, latency_s, cost)
        if usage is None:
            return _Verdict(outcome, "lost", status=status)
        return _Verdict(outcome, "settled", tokens=usage.total, nano_usd=cost, status=status)

    def _read(
        self, body: Mapping[str, Any], model: str, usage: Usage | None, latency_s: float, nano_usd: int | None
    ) -> ChatReply | Fault:
        """What a body says; what it cost is settled whatever comes of this."""
        try:
            return _reply(self._endpoint.without_key(decode_answer(body)), model, usage, latency_s, nano_usd)
        except ModelReplyMalformed as error:
            return _malformed(self._endpoint.excerpt(str(error)), again=not is_spent(body))

    def _fault(self, call: _Call, received: Received, refusal: Refusal) -> Fault:
        said = self._endpoint.excerpt(refusal.message) or "an empty body"
        moved = received.moved_to
        if moved is not None:
            said = f"it moved to {shown(moved)}; give that as the base URL, without /chat/completions"
        text = f"{refusal.status} from {self._endpoint.shown}: {said}{hint_of(refusal.status, refusal.words)}"
        if refusal.spent:
            said = f"the account at the endpoint has nothing left: {text}; once it has, the run can be resumed"
            return Fault(BudgetRefused(said), again=False)
        fault = fault_of(refusal, text, self._after(received, refusal), answered=call.model in self._answering)
        told = _AGAIN.get(received.headers.get("x-should-retry", ""))
        return fault if told is None else replace(fault, again=told)

    def _after(self, received: Received, refusal: Refusal) -> float | None:
        now = self._clock()
        after_s = retry_after(received.headers, now)
        if after_s is None and refusal.status == 429:
            after_s = reset_after(refusal.headers or received.headers, now)
        return after_s


def _settle(reservation: Reservation, verdict: _Verdict) -> None:
    if verdict.charge == "released":
        reservation.release()
    elif verdict.charge == "lost":
        reservation.lose()
    else:
        reservation.settle(verdict.tokens, verdict.nano_usd, believed=verdict.believed)


def _report(slot: Slot, status: int | None) -> None:
    """Tell the limiter; a connection that broke says nothing about how many calls are welcome."""
    if status in _PUSH_BACK:
        slot.pushed_back()
    elif status is not None:
        slot.served()


def _malformed(text: str, *, again: bool) -> Fault:
    return Fault(ModelReplyMalformed(text), again=again)


def _reply(answer: Answer, asked_model: str, usage: Usage | None, latency_s: float, nano_usd: int | None) -> ChatReply:
    return ChatReply(
        message=answer.message,
        finish_reason=answer.finish_reason,
        usage=usage,
        latency_s=latency_s,
        cost_usd=None if nano_usd is None else nano_usd / _NANO,
        model=answer.model or asked_model,
        response_id=answer.response_id,
        token_logprobs=answer.token_logprobs,
    )
