"""One call of an agent: answered from the journal, or reserved, forwarded, passed on, settled and journalled.

Address and headers of the request are the agent's own, with the endpoint's key in place of the rollout's. A reply is passed
on whole, or event by event with signs of life while the endpoint is silent. Nothing is repeated here: clients repeat, and
each attempt is another request.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import pairwise
from math import inf
from time import perf_counter
from typing import TypeAlias

import httpx
from aiohttp import HttpVersion11, web
from aiohttp.web import BaseRequest

from tfgrpo.pipelines.settings.addresses import SECRET_NAME
from tfgrpo.stores.errors import BudgetRefused, ModelAuthRefused, ModelReplyMalformed, ModelTimeout, ReplayMiss, TfgrpoError
from tfgrpo.stores.json_values import json_of, mapping_of
from tfgrpo.stores.ledger import NANO, Reservation
from tfgrpo.stores.runs import GATEWAY, IDEMPOTENCY_KEY
from tfgrpo.stores.telemetry.setup import Attributes, SpanHandle
from tfgrpo.tasks.gateway.dialects import Dialect
from tfgrpo.tasks.gateway.session import AnswerKey, Caller, Outgoing, Recorded
from tfgrpo.tasks.models.base import ChatReply
from tfgrpo.tasks.models.chat import OVERLOADED, Bound, Charge, ChatClient, describe_reply
from tfgrpo.tasks.models.endpoint import Scrub
from tfgrpo.tasks.models.retry import hidden_status, read_refusal
from tfgrpo.tasks.models.transport import TRANSPORT_ERRORS, Chunks, Received, Take, chunks_of, close, read_whole, why_unreadable
from tfgrpo.tasks.models.wire import usage_of

KEY_HEADERS = ("authorization", "x-api-key", "api-key")
_SCHEME = re.compile("^bearer ", re.IGNORECASE)
_OF_THE_CONNECTION = re.compile(
    "connection|content-encoding|content-length|keep-alive|te|trailer|transfer-encoding|upgrade|proxy-.*"
)
_NOT_FORWARDED = re.compile(
    "accept-encoding|cookie|expect|host|forwarded|via|x-forwarded-.*|x-real-ip|x-tfgrpo-.*|.*(?:^|-)auth(?:orization)?"
)
"""In addition to those of the connection: what concerns this machine and its network, and credentials for others."""
_NOT_RETURNED = frozenset({"date", "server", "set-cookie"})
MAX_BODY = 64 << 20
"""Most bytes of a reply: embeddings of 2,048 texts have 34 MB."""
_PIECE = 1 << 18
_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?=[^\n])){2}")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_OVERLAP = 3
"""A blank line has at most four bytes, so that all but its last one may be in earlier chunks."""
SILENCE_S = 15.0
"""Seconds of an endpoint's silence after which a stream gets a comment, so that no client or proxy gives up."""
_COMMENT = b": waiting for the model\n\n"
_UNSENT = 1 << 16
"""Most bytes that wait for an agent before the endpoint waits, too."""
_DRAIN_S = 0.2
"""Most seconds to wait for the end of a connection whose last event has come, so that it can be used again."""
Finished: TypeAlias = Callable[[bytes], None]
"""Called with the whole answer before the agent sees the end of it."""


class Upstream:
    """The run's client, and the addresses and headers of its endpoint, which are the same for all calls."""

    def __init__(self, client: ChatClient, *, callers_keys: bool = False) -> None:
        """``callers_keys``: a client's own key is passed on; the endpoint's own must be None then."""
        self.client = client
        self.refused: set[tuple[str, str]] = set()
        """Models, and which of the gateway's additions each of them does not take."""
        self._url = lru_cache(maxsize=64)(client.endpoint.url)
        own = {name.lower(): value for name, value in client.endpoint.headers().items()}
        own = {name: value for name, value in own.items() if name not in {"accept", "content-type"}}  # the agent's hold
        own["accept-encoding"] = "identity"  # a compressed stream could not be passed on event by event
        self._passed_keys = KEY_HEADERS if callers_keys else ()
        self._own = self._with_x_api_key = own
        key = client.endpoint.api_key
        if key is not None and own.get("authorization") == f"Bearer {key.reveal()}":
            without = {name: value for name, value in own.items() if name != "authorization"}
            self._with_x_api_key = {**without, "x-api-key": key.reveal()}

    def forwarded(self, request: BaseRequest, path: str, body: bytes | None, call: str | None = None) -> httpx.Request:
        """Return the request to the endpoint. The key is in the header that the client uses, unless that is Azure's.

        ``call``: its idempotency key, which is not sent to an endpoint that refuses it.
        """
        own = self._with_x_api_key if "x-api-key" in request.headers else self._own
        dropped = _named_in_connection(request.headers).union(own)
        if call is not None:
            dropped |= {IDEMPOTENCY_KEY}
        # aiohttp reads bytes of headers that are no UTF-8 as surrogates, and httpx encodes texts as ASCII only.
        headers = [
            (name.encode(), value.encode("utf-8", "surrogateescape"))
            for name, value in ((name.lower(), value) for name, value in request.headers.items())
            if name not in dropped and (name in self._passed_keys or _is_forwarded(name))
        ]
        headers += [(name.encode(), value.encode()) for name, value in own.items()]
        if call is not None and "idempotency_key" not in self.client.omitted:
            headers.append((IDEMPOTENCY_KEY.encode(), call.encode("utf-8", "surrogateescape")))
        url = self._url(path)
        if request.query_string:
            # Azure clients say which version they speak; the endpoint's own address says which one it has.
            url = url.copy_merge_params(httpx.QueryParams(request.query_string).remove("api-version"))
        if body is None or len(body) <= _PIECE:
            return httpx.Request(request.method, url, content=body, headers=headers)
        headers.append((b"content-length", b"%d" % len(body)))  # else httpx sends chunked encoding
        return httpx.Request(request.method, url, content=_pieces(body), headers=headers)


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    """Yield a long body in pieces, between which other calls go on."""
    for start in range(0, len(body), _PIECE):
        yield body[start : start + _PIECE]


@lru_cache(maxsize=512)
def _is_forwarded(name: str) -> bool:
    """Return whether a header of a client is for the endpoint: not of the connection (RFC 9110), and no one's key."""
    if _OF_THE_CONNECTION.fullmatch(name) or _NOT_FORWARDED.fullmatch(name):
        return False
    return name == IDEMPOTENCY_KEY or SECRET_NAME.search(name) is None


def _named_in_connection(headers: Mapping[str, str]) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in headers.get("connection", "").split(","))


def returned_headers(headers: Mapping[str, str], scrub: Scrub) -> dict[str, str]:
    """Return the headers of a reply that concern the agent, without secrets."""
    dropped = _NOT_RETURNED | _named_in_connection(headers)
    lowered = ((name, name.lower(), value) for name, value in headers.items())
    return {name: scrub(value) for name, low, value in lowered if low not in dropped and not _OF_THE_CONNECTION.fullmatch(low)}


def keys_in(request: BaseRequest) -> list[str]:
    """Return the keys that a client sent, in any of the forms."""
    sent = (request.headers.get(name) for name in KEY_HEADERS)
    return [_SCHEME.sub("", key).strip() for key in sent if key]


class EventReader:
    """Collects chunks, and gives whole events: those that end with a blank line."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._tail = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return the events that are complete by now, as they came."""
        if not self._pieces and chunk.endswith(b"\n\n"):  # nearly every chunk
            return chunk
        self._pieces.append(chunk)
        recent = self._tail + chunk
        self._tail = recent[-_OVERLAP:]
        end = max(_ends(recent), default=0)
        if not end:
            return b""
        whole = b"".join(self._pieces)
        end += len(whole) - len(recent)
        self._pieces, self._tail = [whole[end:]] if end < len(whole) else [], whole[end:][-_OVERLAP:]
        return whole[:end]

    def rest(self) -> bytes:
        """Return what follows the last whole event."""
        return b"".join(self._pieces)


def events_in(body: bytes) -> list[bytes]:
    """Return the events of a stream; the last one may lack its blank line."""
    if b"\r" not in body:  # nearly every stream, at a quarter of the cost
        *whole, rest = body.split(b"\n\n")
        return [event + b"\n\n" for event in whole] + [rest] * (rest != b"")
    places = [0, *_ends(body), len(body)]
    return [body[start:end] for start, end in pairwise(places) if start < end]


def _ends(text: bytes) -> Iterator[int]:
    if b"\r" in text:
        yield from (match.end() for match in _BLANK_LINE.finditer(text))
        return
    at = 0  # nearly every stream, at a tenth of the cost
    while (at := text.find(b"\n\n", at) + 2) >= 2:
        yield at


def is_events(content_type: str) -> bool:
    """Whether a body of this content type is a stream of events."""
    return content_type.lower().startswith("text/event-stream")


def data_of(event: bytes) -> bytes:
    """Return the data of an event; empty for comments and events without any."""
    if event[:6] == b"data: " and event[-2:] == b"\n\n" and event.find(b"\n") == len(event) - 2 and b"\r" not in event:
        return event[6:-2]  # nearly every event
    lines = _LINE_END.split(event)
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))


class ClientGone(Exception):
    """The agent closed the connection."""


class EventRelay:
    """Passes one stream on. Every byte reaches the agent, except a chunk of usage that it did not ask for."""

    def __init__(
        self,
        request: web.BaseRequest,
        out: Outgoing,
        finished: Finished,
        mask: Callable[[bytes], bytes] = bytes,
        timer: asyncio.Timeout | None = None,
        limit_s: float = inf,
    ) -> None:
        """``mask`` removes secrets from events. ``timer`` ends the call when the endpoint is silent for ``limit_s``."""
        self._request = request
        self._dialect = out.dialect
        self._hides_usage = out.hides_usage
        self._finished = finished
        self._masked = mask
        self._timer, self._limit_s = timer, limit_s
        self._chunked = request.version >= HttpVersion11
        self._reader = EventReader()
        self._size = 0
        self._kept: list[bytes] = []
        self._ended = self._unread = False
        self._at_last = b""
        """What the agent sees of the last events."""
        self._last = self._said = perf_counter()
        """When the last chunk came, and the last comment went."""
        self.first: float | None = None

    async def run(self, headers: Mapping[str, str], chunks: Chunks) -> web.StreamResponse:
        """Send the stream. Raises ``ClientGone``, and ``ModelReplyMalformed`` beyond ``MAX_BODY``: all of it is kept."""
        response = web.StreamResponse(headers=headers)
        if self._chunked:
            response.enable_chunked_encoding()
        else:  # the end of the connection is the end of the stream
            response.force_close()
        with noticing_the_client():
            await response.prepare(self._request)
        if self._timer is not None:
            self._timer.reschedule(None)
        self._watch()
        try:
            while (unread := await chunks(self._take)) and not self._ended:
                with noticing_the_client():
                    await self._request.writer.drain()
        finally:
            self._watching.cancel()
        self._unread = unread
        rest = self._masked(self._reader.rest())
        # Without the last event it broke off, or lacks it: then the rest is a part of it.
        self._finished(b"".join(self._kept if self._ended else [*self._kept, rest]))
        with noticing_the_client():
            await response.write_eof(self._at_last + rest)  # in one write: each one wakes the agent
        return response

    async def drain(self, chunks: Chunks) -> None:
        """Read what follows the last event, so that the connection can be used again."""
        if self._unread:
            with suppress(*TRANSPORT_ERRORS):  # the answer is whole; TimeoutError is an OSError
                async with asyncio.timeout(_DRAIN_S):
                    await chunks(lambda _: True)

    def _take(self, chunk: bytes) -> bool:
        """Pass a chunk on. Return whether the next one may come at once: neither at the last event nor to a slow agent."""
        self._last = perf_counter()
        self.first = self.first or self._last
        self._size += len(chunk)
        if self._size > MAX_BODY:
            raise ModelReplyMalformed(f"the reply has more than {MAX_BODY} bytes; the rest was not read")
        shown = self._shown(self._reader.feed(chunk))
        if self._ended:
            self._at_last = shown
            return False
        return not shown or self._write(shown)

    def _write(self, shown: bytes) -> bool:
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ClientGone
        # As the library does, whose way takes five calls and a turn of the event loop.
        transport.write(b"%x\r\n%b\r\n" % (len(shown), shown) if self._chunked else shown)
        return transport.get_write_buffer_size() <= _UNSENT

    def _shown(self, events: bytes) -> bytes:
        """Keep events, up to the last one. Return what the agent sees of them."""
        events = self._masked(events)  # whole events: a chunk may end within a key
        if self._dialect.is_plain(events):
            self._kept.append(events)
            return events
        shown = []
        for event in events_in(events):
            data = data_of(event)
            if not self._ended:
                self._kept.append(event)
                self._ended = self._dialect.ends(data)
            if not (self._hides_usage and self._dialect.is_usage_alone(data)):
                shown.append(event)
        return b"".join(shown)

    def _watch(self) -> None:
        """Bridge silence by comments, and count the time limit from the last chunk: a stream may outlast a call."""
        loop, now = asyncio.get_running_loop(), perf_counter()
        left_s, quiet_s = self._limit_s - (now - self._last), now - max(self._said, self._last)
        if left_s <= 0.0 and self._timer is not None:  # the call's own task raises the TimeoutError
            self._timer.reschedule(loop.time())
            return
        if quiet_s >= SILENCE_S:
            self._said, quiet_s = now, 0.0
            with suppress(ClientGone):  # noticed by the next chunk, or by the handler's cancellation
                self._write(_COMMENT)
        self._watching = loop.call_later(min(left_s, SILENCE_S - quiet_s), self._watch)


@contextmanager
def noticing_the_client() -> Iterator[None]:
    """Keep a connection that the agent closed apart from one that the endpoint closed."""
    try:
        yield
    except ConnectionError:
        raise ClientGone from None


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
            self._reservation = await client.reserve(bound)
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
