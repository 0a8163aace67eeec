"""One call of an agent: answered from the journal, or reserved, forwarded, settled and journalled.

Nothing is repeated here: clients repeat, and each attempt is another request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter

import httpx
from aiohttp import web

from tfgrpo.stores.errors import BudgetRefused, ModelAuthRefused, ModelReplyMalformed, ModelTimeout, ReplayMiss, TfgrpoError
from tfgrpo.stores.json_values import json_of, mapping_of
from tfgrpo.stores.ledger import NANO, Reservation
from tfgrpo.stores.runs import GATEWAY, IDEMPOTENCY_KEY
from tfgrpo.stores.telemetry.setup import Attributes, SpanHandle
from tfgrpo.tasks.gateway.dialects import Dialect
from tfgrpo.tasks.gateway.outgoing import Outgoing
from tfgrpo.tasks.gateway.relay import (
    MAX_BODY,
    EventRelay,
    Finished,
    Upstream,
    data_of,
    events_in,
    is_events,
    noticing_the_client,
    returned_headers,
    why_unreadable,
)
from tfgrpo.tasks.gateway.session import AnswerKey, Caller, Recorded
from tfgrpo.tasks.models.base import ChatReply
from tfgrpo.tasks.models.chat import OVERLOADED, Bound, Charge, ChatClient
from tfgrpo.tasks.models.endpoint import Scrub
from tfgrpo.tasks.models.journaled import describe_reply
from tfgrpo.tasks.models.retry import hidden_status, read_refusal
from tfgrpo.tasks.models.transport import TRANSPORT_ERRORS, Received, Take, chunks_of, close, read_whole
from tfgrpo.tasks.models.wire import usage_of


class GatewayRefusal(Exception):
    """A request that the gateway answers with its own error."""

    def __init__(self, status: int, kind: str, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.status, self.kind, self.retry = status, kind, retry


@dataclass(slots=True)
class Call:
    """One request of an agent on its way."""

    session: Caller
    request: web.BaseRequest
    out: Outgoing
    upstream: Upstream | None
    """None: the journal alone answers."""
    rewrite: Callable[[Collection[str]], Outgoing]
    """Returns the request without additions that the endpoint refuses."""
    _left_out: tuple[str, ...] = ()
    """Additions that the endpoint has refused for this call."""
    _place: int = 0
    _key: AnswerKey = field(init=False)
    _answered: bool = False
    """Whether there is an answer with this key that is not known to have arrived."""
    _noted: bool = False
    """Whether it is the second attempt at an answer that the session has noted."""
    _bound: Bound = field(init=False)
    _span: SpanHandle = field(init=False)
    _reservation: Reservation | None = None
    """Until the call is charged for."""
    _began: float = 0.0
    _call: str | None = None

    async def respond(self) -> web.StreamResponse:
        """Answer the agent. Raises ``GatewayRefusal``, ``TfgrpoError`` or ``ClientGone``."""
        session, out = self.session, self.out
        self._place = session.begin(out)
        chat_span = partial(session.telemetry.chat_span, model=out.model, role=GATEWAY, provider=session.provider)
        sampling: Attributes = {"temperature": out.temperature, "max_tokens": out.max_tokens, "arm": session.arm}
        with session.telemetry.attached(session.carrier), chat_span(**sampling) as self._span:
            if session.telemetry.options.content:
                self._span.content("input", session.scrub(out.raw.decode("utf-8", "replace")))
            try:
                return await self._answer()
            except BaseException:
                if self._answered:  # the agent has not got all of it
                    session.give_back(self._key)
                raise

    async def _answer(self) -> web.StreamResponse:
        upstream = self.upstream
        self._key, known, self._noted = self.session.recorded(self.out, final=upstream is None)
        if known is not None:
            self._answered = True
            headers, finished = {"content-type": known.content_type}, partial(self._replayed, known)
            if is_events(known.content_type):
                return await EventRelay(self.request, self.out, finished).run(headers, partial(_once, known.body))
            return await self._whole(headers, known.body, finished)
        if upstream is None:
            raise ReplayMiss(f"the journal holds no answer {self._key.number} to request {self._key.digest[:16]}")
        client, most = upstream.client, (self.out.max_tokens or self.session.max_tokens) * self.out.completions
        self._bound = bound = client.bound(self.out.model, self.out.size, most)
        async with client.limiter.slot() as started:
            self._reservation = await client.ledger.reserve(calls=1, tokens=bound.tokens, nano_usd=bound.nano_usd)
            try:
                with self.session.idempotency_key(self._key) as self._call:
                    return await self._exchange(upstream, started)
            finally:
                self._charge(Reservation.lose)  # a call without a known end

    async def _exchange(self, upstream: Upstream, started: int) -> web.StreamResponse:
        client, endpoint = upstream.client, upstream.client.endpoint
        self._began = perf_counter()
        try:
            async with asyncio.timeout(endpoint.timeout_s) as timer:
                response = None
                while response is None:
                    request = upstream.forwarded(self.request, self.out.dialect.path, self.out.raw, self._call)
                    reply = await client.http.send(request, stream=True)
                    try:
                        if reply.status_code in OVERLOADED:
                            client.limiter.pushed_back(started)
                        else:
                            client.limiter.served()
                        response = await self._passed_on(upstream, reply, timer)
                    finally:
                        await close(reply)
                return response
        except TimeoutError:  # before TRANSPORT_ERRORS: it is an OSError
            text = f"no reply within {endpoint.timeout_s:g} s from {endpoint.display_url}"
            raise self._broken(ModelTimeout(text), 504, "timeout_error", retry=True) from None
        except TRANSPORT_ERRORS as error:
            failed, charge = client.disconnected(error)
            self._charge(charge)
            raise self._broken(failed.error, 502, retry=failed.retryable) from None
        except ModelReplyMalformed as error:  # oversized, for example
            raise self._broken(error, 502) from None

    async def _passed_on(self, upstream: Upstream, reply: httpx.Response, timer: asyncio.Timeout) -> web.StreamResponse | None:
        """Pass a reply on; None to ask again without what the gateway has added and the endpoint refuses."""
        client = upstream.client
        received = dict(reply.headers.items())  # once: they are decoded for each look
        kind, endpoint = received.get("content-type", ""), client.endpoint
        unreadable = why_unreadable(received)
        if not 200 <= reply.status_code < 300:
            content = unreadable.encode() or await read_whole(reply, MAX_BODY)
            refused = read_refusal(reply.status_code, content).refused
            if IDEMPOTENCY_KEY in reply.request.headers and refused == "idempotency_key":
                client.omitted.add(refused)
                return None
            named = self.out.refused_in(content.decode("utf-8", "replace")) if reply.status_code in {400, 422} else None
            if named is not None:
                self._left_out = (*self._left_out, named)
                self.out = self.rewrite(self._left_out)
                return None
            return self._refused(client, Received(reply.request.url, reply.status_code, reply.headers, content))
        upstream.refused.update((self.out.model, name) for name in self._left_out)
        if unreadable:
            raise ModelReplyMalformed(unreadable)
        headers, finished = self._headers(received, endpoint.scrub), partial(self._finished, client, kind)
        if not is_events(kind):
            return await self._whole(headers, endpoint.scrub(await read_whole(reply, MAX_BODY)), finished)
        self.session.unanswered(None)  # an agent may stop reading when it has seen enough
        relay = EventRelay(self.request, self.out, finished, endpoint.scrub, timer, endpoint.timeout_s)
        chunks = chunks_of(reply)
        response = await relay.run(headers, chunks)
        self._answered = False  # arrived: clients leave at the last event, and an equal request is another call
        if relay.first is not None:
            self._span.set(first_chunk_s=relay.first - self._began)
        await relay.drain(chunks)
        return response

    async def _whole(self, headers: Mapping[str, str], body: bytes, finished: Finished) -> web.StreamResponse:
        finished(body)
        response = web.Response(body=body, headers=headers)
        with noticing_the_client():  # sent here, not by the library, to learn whether the agent is there to take it
            await response.prepare(self.request)
            await response.write_eof()
        return response

    def _refused(self, client: ChatClient, received: Received) -> web.Response:
        refusal = read_refusal(received.status, received.content)
        failed, charge = client.refused(self.out.model, received, refusal)
        error = failed.error
        # A key that is good for one model may not be for another one that the agent tries.
        other_model = received.status == 403 and bool(client.answering)
        if isinstance(error, BudgetRefused) or (isinstance(error, ModelAuthRefused) and not other_model):
            self.session.stop(error)
        self._failed(error)
        self._charge(charge)
        if received.moved_to is not None or received.status < 400:  # a client that follows would leave the gateway
            raise GatewayRefusal(502, "api_error", str(error))
        body = client.endpoint.scrub(received.content)
        return web.Response(status=received.status, body=body, headers=self._headers(received.headers, client.endpoint.scrub))

    def _headers(self, received: Mapping[str, str], scrub: Scrub) -> dict[str, str]:
        return {**returned_headers(received, scrub), **self.session.headers}

    def _finished(self, client: ChatClient, content_type: str, body: bytes) -> None:
        """Settle and journal a whole answer, before the agent sees the end of it."""
        latency_s = perf_counter() - self._began
        reply = read_reply(self.out.dialect, content_type, body)
        if reply is None:  # a stream that broke off, or an error behind a success status: it stays reserved, as lost
            self._failed(ModelReplyMalformed(f"an answer of {client.endpoint.display_url} broke off, or cannot be read"))
            return
        client.answering.add(self.out.model)
        usage, nano_usd, charge = self._bound.settled(reply.usage)
        self._charge(charge)
        cost_usd, counts = None if nano_usd is None else nano_usd / NANO, None if usage is None else usage.counts
        self._key = self.session.record(self._key, Recorded(content_type, body, latency_s, cost_usd, counts))
        self._answered = True
        reply = replace(reply, usage=usage, latency_s=latency_s, cost_usd=cost_usd)
        self._count(reply)
        self._note(reply)

    def _replayed(self, known: Recorded, body: bytes) -> None:
        reply = read_reply(self.out.dialect, known.content_type, body)
        if reply is not None:
            usage, took_s, cost_usd = usage_of(known.usage), known.latency_s, known.cost_usd
            self._note(replace(reply, usage=usage, latency_s=took_s, cost_usd=cost_usd, replayed=True))

    def _note(self, reply: ChatReply) -> None:
        if not reply.model:
            reply = replace(reply, model=self.out.model)
        describe_reply(self._span, reply)
        if not self._noted:
            self.session.answered(self._place, self.out, reply)

    def _broken(self, error: TfgrpoError, status: int, kind: str = "api_error", *, retry: bool = False) -> GatewayRefusal:
        self._failed(error)
        return GatewayRefusal(status, kind, str(error), retry=retry)

    def _failed(self, error: TfgrpoError) -> None:
        self._span.fail(type(error).__name__)
        self._count(type(error).__name__)
        self.session.unanswered(error)

    def _count(self, result: ChatReply | str) -> None:
        self.session.count(self.out.model, result, perf_counter() - self._began)

    def _charge(self, how: Charge) -> None:
        """End the reservation, the first time that this is called."""
        reservation, self._reservation = self._reservation, None
        if reservation is not None:
            how(reservation)


def read_reply(dialect: Dialect, content_type: str, body: bytes) -> ChatReply | None:
    """Return what an answer says; None for none, and for what cannot be read."""
    try:
        if is_events(content_type):
            datas = [data_of(event) for event in events_in(body)]
            # As one array: many small texts take twice the time to parse.
            events = json_of(b"[%b]" % b",".join(data for data in datas if data.startswith(b"{"))) or ()
            return dialect.read(dialect.fold(events, ended=any(map(dialect.ends, datas[-1:]))))
        value = mapping_of(json_of(body))
        return None if hidden_status(value) is not None else dialect.read(value)
    except (AttributeError, LookupError, TypeError, ValueError):  # fields of types that no endpoint should send
        return None


async def _once(body: bytes, take: Take) -> bool:
    take(body)
    return False
