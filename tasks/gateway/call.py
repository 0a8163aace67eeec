"""One call of an agent: answered from the journal, or reserved, forwarded, settled and journalled.

Nothing is repeated here: clients repeat, and each attempt is another request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import httpx
from aiohttp import web

from tfgrpo.stores.errors import BudgetRefused, ModelAuthRefused, ModelReplyMalformed, ReplayMiss, TfgrpoError
from tfgrpo.stores.ledger.ledger import Reservation
from tfgrpo.stores.ledger.state import NANO
from tfgrpo.stores.numeric import is_cost
from tfgrpo.stores.runs.journal import Journal
from tfgrpo.stores.telemetry.names import SentArm
from tfgrpo.stores.telemetry.setup import SpanHandle, Telemetry
from tfgrpo.tasks.gateway.dialect import Dialect
from tfgrpo.tasks.gateway.outgoing import Additions, Outgoing
from tfgrpo.tasks.gateway.relay import EventRelay, Finished, Limit, send
from tfgrpo.tasks.gateway.session import ROLE
from tfgrpo.tasks.gateway.sse import data_of
from tfgrpo.tasks.gateway.upstream import Upstream, returned_headers
from tfgrpo.tasks.models.base import ChatReply
from tfgrpo.tasks.models.chat import OVERLOADED, ChatClient
from tfgrpo.tasks.models.journaled import describe_reply
from tfgrpo.tasks.models.retry import hidden_status, read_refusal
from tfgrpo.tasks.models.transport import TRANSPORT_ERRORS, Received, decoded_bytes, never_sent, read_whole
from tfgrpo.tasks.models.wire import is_plausible, json_of, mapping_of, usage_of

_EVENTS = "text/event-stream"


class Caller(Protocol):
    """Who makes calls through the gateway: the agent of one rollout, or in production one request of a client."""

    running: set[asyncio.Task[Any]]
    """Tasks of its calls in flight."""
    journal: Journal | None
    telemetry: Telemetry
    carrier: Mapping[str, str]
    """Position in the trace."""
    provider: str
    arm: SentArm | None
    """Which lessons its calls get, in production."""
    max_tokens: int
    """Most tokens of a completion for a request that does not say."""
    headers: Mapping[str, str]
    """Added to every answer of the endpoint."""

    def scrub(self, text: str, /) -> str:
        """Return a text without secrets."""

    def additions_for(self, dialect: Dialect, body: Mapping[str, Any]) -> Additions:
        """Return what is written into a request."""

    def begin(self, request: Outgoing) -> int:
        """Note a call; return its place among all. Raises the error that ended the attempt."""

    def take_number(self, digest: str) -> int:
        """Return the lowest free number of a request among equal ones, and take it."""

    def free_number(self, digest: str, number: int) -> None:
        """Give a number back: the call failed, or its answer did not reach the client."""

    def key_text(self, digest: str, number: int) -> str:
        """Return the call's key in the journal."""

    def answered(self, place: int, request: Outgoing, reply: ChatReply) -> None:
        """Record an answer."""

    def stop(self, error: TfgrpoError) -> None:
        """Take note of a failure after which no further call makes sense."""

    def count(self, model: str, result: ChatReply | str, took_s: float) -> None:
        """Count a call in the metrics; ``result``: the reply, or the kind of a failure, which took ``took_s``."""


class GatewayRefusal(Exception):
    """A request that the gateway answers with an error of its own."""

    def __init__(self, status: int, kind: str, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.status, self.kind, self.retry = status, kind, retry


class _Recorded(NamedTuple):
    """An answer as journalled."""

    content_type: str
    body: bytes
    latency_s: float
    cost_usd: float | None
    usage: Sequence[int] | None
    """Tokens as ``usage_of`` takes them, for reports; None when unknown, empty in older journals."""

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "body": self.body.decode("utf-8", "surrogateescape")}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> _Recorded:
        cost, body = value["cost_usd"], value["body"].encode("utf-8", "surrogateescape")
        known = cost if is_cost(cost) else None
        return cls(value["content_type"], body, float(value["latency_s"]), known, value.get("usage", ()))


@dataclass(slots=True)
class Call:
    """One request of an agent on its way."""

    session: Caller
    request: web.BaseRequest
    out: Outgoing
    upstream: Upstream | None
    """None: the journal alone answers."""
    _place: int = 0
    _span: SpanHandle = field(init=False)
    _reservation: Reservation | None = None
    """Until the call is charged for."""
    _began: float = 0.0
    _answered: bool = False

    async def respond(self) -> web.StreamResponse:
        """Answer the agent. Raises ``GatewayRefusal``, ``TfgrpoError`` or ``ClientGone``."""
        session, digest = self.session, self.out.digest
        self._place = session.begin(self.out)
        number = session.take_number(digest)
        delivered = False
        try:
            with self._opened_span() as self._span:
                response = await self._answer(session.key_text(digest, number))
                delivered = self._answered
                return response
        finally:
            if not delivered:
                session.free_number(digest, number)

    @contextmanager
    def _opened_span(self) -> Iterator[SpanHandle]:
        session, out = self.session, self.out
        telemetry = session.telemetry
        with (
            telemetry.attached(session.carrier),
            telemetry.chat_span(
                model=out.model,
                role=ROLE,
                provider=session.provider,
                arm=session.arm,
                temperature=out.temperature,
                max_tokens=out.max_tokens,
            ) as span,
        ):
            if telemetry.options.content:
                span.content("input", session.scrub(out.raw.decode("utf-8", "replace")))
            yield span

    async def _answer(self, key_text: str) -> web.StreamResponse:
        journal, upstream = self.session.journal, self.upstream
        known = None if journal is None else journal.answer(key_text, _Recorded.from_json, final=upstream is None)
        if isinstance(known, TfgrpoError):
            raise known
        if known is not None:
            headers = {"content-type": known.content_type}
            return await self._relay(headers, _once(known.body), partial(self._replayed, known))
        if upstream is None:
            raise ReplayMiss(f"the journal holds no call {key_text}")
        client = upstream.client
        most = self.out.max_tokens or self.session.max_tokens
        price, size = client.prices.get(self.out.model), len(self.out.raw)
        nano_usd = price.cost(size, most, 0) if price is not None else None
        async with client.limiter.slot() as started:
            # No tokenizer makes more tokens than there are bytes.
            self._reservation = await client.ledger.reserve(calls=1, tokens=size + most, nano_usd=nano_usd)
            try:
                return await self._exchange(upstream, started, partial(self._finished, client, key_text, size + most))
            finally:
                self._charge(Reservation.lose)  # a call without a known end

    async def _exchange(
        self, upstream: Upstream, started: int, finished: Callable[[str, Sequence[bytes]], None]
    ) -> web.StreamResponse:
        """Forward the request, and pass the reply on."""
        client, endpoint = upstream.client, upstream.client.endpoint
        self._began = perf_counter()
        try:
            async with asyncio.timeout(endpoint.timeout_s) as timer:
                request = upstream.forwarded(self.request, self.out.dialect.path, self.out.raw)
                reply = await client.http.send(request, stream=True)
                try:
                    if reply.status_code in OVERLOADED:
                        client.limiter.pushed_back(started)
                    else:
                        client.limiter.served()
                    return await self._passed_on(client, reply, timer, finished)
                finally:
                    await reply.aclose()
        except TimeoutError:
            text = f"no reply within {endpoint.timeout_s:g} s from {endpoint.display_url}"
            raise self._broken("ModelTimeout", 504, "timeout_error", text) from None
        except TRANSPORT_ERRORS as error:
            if never_sent(error):
                self._charge(Reservation.release)
            cause = endpoint.excerpt(str(error)) or type(error).__name__
            text = f"connection to {endpoint.display_url} failed: {cause}"
        except ModelReplyMalformed as error:  # oversized
            text = str(error)
        raise self._broken("ModelUnreachable", 502, "api_error", text)

    async def _passed_on(
        self,
        client: ChatClient,
        reply: httpx.Response,
        timer: asyncio.Timeout,
        finished: Callable[[str, Sequence[bytes]], None],
    ) -> web.StreamResponse:
        kind, endpoint = reply.headers.get("content-type", ""), client.endpoint
        if not 200 <= reply.status_code < 300:
            received = Received(reply.request.url, reply.status_code, reply.headers, await read_whole(reply))
            return self._refused(client, received)
        chunks = decoded_bytes(reply) if kind.startswith(_EVENTS) else _once(await read_whole(reply))
        mask, limit = endpoint.scrub_bytes if endpoint.secrets else None, Limit(timer, endpoint.timeout_s)
        return await self._relay(self._headers(reply.headers), chunks, partial(finished, kind), mask, limit)

    async def _relay(
        self,
        headers: Mapping[str, str],
        chunks: AsyncIterator[bytes],
        finished: Finished,
        mask: Callable[[bytes], bytes] | None = None,
        limit: Limit | None = None,
    ) -> web.StreamResponse:
        """Pass an answer on to the agent, whole or event by event."""
        if headers.get("content-type", "").startswith(_EVENTS):
            response = web.StreamResponse(headers=headers)
            relay = EventRelay(self.request, self.out, finished, mask, limit)
            await relay.run(response, chunks)
            if limit is not None and relay.first is not None:
                self._span.set(first_chunk_s=relay.first - self._began)
            return response
        body = b"".join([chunk async for chunk in chunks])
        body = mask(body) if mask is not None else body
        finished((body,))
        return await send(self.request, web.Response(body=body, headers=headers))

    def _refused(self, client: ChatClient, received: Received) -> web.Response:
        """Pass a refusal on as it is; one that concerns the whole run ends the attempt."""
        refusal = read_refusal(received.status, received.content)
        error = client.refused(self.out.model, received, refusal).error
        # A key that is good for one model may not be for another one that the agent tries.
        other_model = received.status == 403 and bool(client.answering)
        if isinstance(error, BudgetRefused) or (isinstance(error, ModelAuthRefused) and not other_model):
            self.session.stop(error)
        self._failed(type(error).__name__)
        if refusal.unreadable:
            self._charge(Reservation.lose)
        else:
            self._charge(lambda reservation: reservation.settle(0, 0))
        if received.moved_to is not None or received.status < 400:  # a client that follows would leave the gateway
            raise GatewayRefusal(502, "api_error", str(error))
        body = client.endpoint.scrub_bytes(received.content)
        return web.Response(status=received.status, body=body, headers=self._headers(received.headers))

    def _headers(self, received: Mapping[str, str]) -> dict[str, str]:
        return {**returned_headers(received), **self.session.headers}

    def _finished(
        self, client: ChatClient, key_text: str, bound: int, content_type: str, events: Sequence[bytes]
    ) -> None:
        """Settle and journal a whole answer, before the agent sees the end of it."""
        latency_s = perf_counter() - self._began
        reply = self._read(content_type, events)
        if reply is None:  # a stream that broke off, or an error behind a success status
            self._failed(ModelReplyMalformed.__name__)
            return
        client.answering.add(self.out.model)
        price = client.prices.get(self.out.model)
        usage = reply.usage if reply.usage is not None and is_plausible(reply.usage, bound) else None
        nano_usd = price.cost(usage.prompt, usage.completion, usage.cached) if price and usage else None
        if usage is not None:
            self._charge(lambda reservation: reservation.settle(usage.total, nano_usd))
        elif reply.usage is not None:
            worst = price.cost(bound, 0, 0) if price else None
            self._charge(lambda reservation: reservation.settle(bound, worst, believed=False))
        cost_usd = None if nano_usd is None else nano_usd / NANO
        if (journal := self.session.journal) is not None:
            body, counts = b"".join(events), None if usage is None else astuple(usage)
            journal.append(key_text, _Recorded(content_type, body, latency_s, cost_usd, counts).to_json())
        reply = replace(reply, usage=usage, latency_s=latency_s, cost_usd=cost_usd)
        self._count(reply)
        self._record(reply)

    def _replayed(self, known: _Recorded, events: Sequence[bytes]) -> None:
        reply = self._read(known.content_type, events)
        if reply is not None:
            usage = reply.usage if known.usage == () else usage_of(known.usage)
            self._record(replace(reply, usage=usage, latency_s=known.latency_s, cost_usd=known.cost_usd, replayed=True))

    def _record(self, reply: ChatReply) -> None:
        reply = replace(reply, model=reply.model or self.out.model)
        describe_reply(self._span, reply)
        self._answered = True
        self.session.answered(self._place, self.out, reply)

    def _read(self, content_type: str, events: Sequence[bytes]) -> ChatReply | None:
        """Return what an answer says: of one body, or of the events of a stream."""
        dialect = self.out.dialect
        if not content_type.startswith(_EVENTS):
            body = mapping_of(json_of(b"".join(events)))
            return None if hidden_status(body) is not None else dialect.read(body)
        datas = (data for event in events if (data := data_of(event)).startswith(b"{"))
        # As one array: many small texts take twice the time to parse.
        return dialect.read(dialect.fold(json_of(b"[%b]" % b",".join(datas)) or ()))

    def _broken(self, error_type: str, status: int, kind: str, message: str) -> GatewayRefusal:
        self._failed(error_type)
        return GatewayRefusal(status, kind, message, retry=True)

    def _failed(self, error_type: str) -> None:
        self._span.fail(error_type)
        self._count(error_type)

    def _count(self, result: ChatReply | str) -> None:
        self.session.count(self.out.model, result, perf_counter() - self._began)

    def _charge(self, how: Callable[[Reservation], None]) -> None:
        """End the reservation, the first time that this is called."""
        reservation, self._reservation = self._reservation, None
        if reservation is not None:
            how(reservation)


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body
