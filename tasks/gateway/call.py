"""One call of an agent: answered from the journal, or reserved, forwarded, passed on, settled and journalled.

Address and headers of the request are the agent's own, with the endpoint's key in place of the rollout's. A reply is passed
on whole, or event by event with signs of life while the endpoint is silent. Nothing is repeated here: clients repeat, and
each attempt is another request.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import pairwise
from secrets import token_hex
from time import perf_counter
from typing import Any, Final

import httpx
from aiohttp import HttpVersion11, web
from aiohttp.web import BaseRequest

from tfgrpo.pipelines.settings.addresses import SECRET_NAME
from tfgrpo.stores.errors import BudgetRefused, ModelAuthRefused, ModelReplyMalformed, ModelTimeout, ReplayMiss, TfgrpoError
from tfgrpo.stores.json_values import json_of, mapping_of
from tfgrpo.stores.ledger import NANO, Reservation
from tfgrpo.stores.numeric import count_or_none
from tfgrpo.stores.runs import GATEWAY, IDEMPOTENCY_KEY
from tfgrpo.stores.telemetry.setup import Attributes, Facts, SpanHandle
from tfgrpo.tasks.gateway.dialects import PROTOCOLS, Dialect, is_usage_alone
from tfgrpo.tasks.gateway.session import AnswerKey, Caller, Outgoing, Recorded
from tfgrpo.tasks.models.base import ChatReply
from tfgrpo.tasks.models.chat import OVERLOADED, Bound, Charge, ChatClient, count_call, describe_reply
from tfgrpo.tasks.models.endpoint import Endpoint, Scrub
from tfgrpo.tasks.models.retry import hidden_status, read_refusal
from tfgrpo.tasks.models.transport import TRANSPORT_ERRORS, Chunks, Received, chunks_of, close, read_whole, why_unreadable
from tfgrpo.tasks.models.wire import usage_of
from tfgrpo.tasks.shapes import Frame

KEY_HEADERS: Final = ("authorization", "x-api-key", "api-key")
_SCHEME: Final = re.compile("^bearer ", re.IGNORECASE)
_OF_THE_CONNECTION: Final = re.compile(
    "connection|content-encoding|content-length|keep-alive|te|trailer|transfer-encoding|upgrade|proxy-.*"
)
# In addition to those of the connection: what concerns this machine and its network, and credentials for others.
_NOT_FORWARDED: Final = re.compile(
    "accept-encoding|cookie|expect|host|forwarded|via|x-forwarded-.*|x-real-ip|x-tfgrpo-.*|.*(?:^|-)auth(?:orization)?"
)
_NOT_RETURNED: Final = frozenset({"date", "server", "set-cookie"})
MAX_BODY: Final = 64 << 20
"""Most bytes of a reply: embeddings of 2,048 texts have 34 MB."""
_PIECE: Final = 1 << 18
_BLANK_LINE: Final = re.compile(rb"(?:\r\n|\n|\r(?=[^\n])){2}")
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
# A blank line has at most four bytes, so that all but its last one may be in earlier chunks.
_OVERLAP: Final = 3
SILENCE_S: Final = 15.0
"""Seconds of an endpoint's silence after which a stream gets a comment, so that no client or proxy gives up."""
_COMMENT: Final = b": waiting for the model\n\n"
# Most bytes that wait for an agent before the endpoint waits, too.
_UNSENT: Final = 1 << 16
# Most seconds to wait for the end of a connection whose last event has come, so that it can be used again.
_DRAIN_S: Final = 0.2


class Upstream:
    """The run's client, and the addresses and headers of its endpoint, which are the same for all calls."""

    def __init__(self, client: ChatClient, *, callers_keys: bool = False) -> None:
        """``callers_keys``: a client's own key is passed on; the endpoint's own must be None then."""
        self.client = client
        self.refused: set[tuple[str, str]] = set()
        """Models, and which of the gateway's additions each of them does not take, as ``outgoing`` has it."""
        self._url = lru_cache(maxsize=64)(client.endpoint.url)
        headers = ((name.lower(), value) for name, value in client.endpoint.headers().items())
        own = {name: value for name, value in headers if name not in {"accept", "content-type"}}  # the agent's hold
        own["accept-encoding"] = "identity"  # a compressed stream could not be passed on event by event
        self._passed_keys = KEY_HEADERS if callers_keys else ()
        self._own = self._with_x_api_key = own
        key = client.endpoint.api_key
        if key is not None and own.get("authorization") == f"Bearer {key.reveal()}":
            without = {name: value for name, value in own.items() if name != "authorization"}
            self._with_x_api_key = {**without, "x-api-key": key.reveal()}

    def forwarded(self, request: BaseRequest, path: str, body: bytes | None, call: str | None = None) -> httpx.Request:
        """Return the request to the endpoint, with its key where the client has one; ``call``: its idempotency key."""
        # Azure's own header stays what it is.
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
    values = (request.headers.get(name) for name in KEY_HEADERS)
    return [_SCHEME.sub("", key).strip() for key in values if key]


def is_key_of(request: BaseRequest, key: str) -> bool:
    """Return whether a client sent this key. Comparing takes constant time."""
    return any(hmac.compare_digest(sent.encode("utf-8", "replace"), key.encode()) for sent in keys_in(request))


def whole_events(pending: bytearray, chunk: bytes) -> bytes:
    """Return the events that end with this chunk, by a blank line, as they came; what follows waits in ``pending``."""
    if not pending and chunk.endswith(b"\n\n"):  # nearly every chunk
        return chunk
    start = max(0, len(pending) - _OVERLAP)
    pending += chunk
    end = max(_ends(pending, start), default=0)
    events = bytes(pending[:end])
    del pending[:end]
    return events


def events_in(body: bytes) -> list[bytes]:
    """Return the events of a stream; the last one may lack its blank line."""
    return [body[start:end] for start, end in pairwise([0, *_ends(body), len(body)]) if start < end]


def _ends(text: bytes | bytearray, at: int = 0) -> Iterator[int]:
    if text.find(b"\r", at) >= 0:
        yield from (match.end() for match in _BLANK_LINE.finditer(text, at))
        return
    while (at := text.find(b"\n\n", at) + 2) >= 2:  # nearly every stream, at a tenth of the cost
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


@dataclass(slots=True, eq=False)
class EventRelay:
    """Passes one stream on. Every byte reaches the agent, except a chunk of usage that it did not ask for."""

    request: web.BaseRequest
    out: Outgoing
    endpoint: Endpoint
    """Its secrets are removed, and it may be silent for its time limit."""
    finished: Callable[[bytes], None]
    """Called with the whole answer before the agent sees the end of it."""
    timer: asyncio.Timeout
    first: float | None = None
    """When the first chunk came."""
    _pending: bytearray = field(default_factory=bytearray)
    _size: int = 0
    _kept: list[bytes] = field(default_factory=list)
    _ended: bool = False
    _unread: bool = False
    _at_last: bytes = b""
    """What the agent sees of the last events."""
    _last: float = field(default_factory=perf_counter)
    """When the last chunk came."""
    _commented: float = field(default_factory=perf_counter)
    _watching: asyncio.TimerHandle = field(init=False)

    async def run(self, headers: Mapping[str, str], chunks: Chunks) -> web.StreamResponse:
        """Send the stream. Raises ``ClientGone``, and ``ModelReplyMalformed`` beyond ``MAX_BODY``: all of it is kept."""
        response = web.StreamResponse(headers=headers)
        if self.request.version >= HttpVersion11:
            response.enable_chunked_encoding()
        else:  # the end of the connection is the end of the stream
            response.force_close()
        with noticing_the_client():
            await response.prepare(self.request)
        self.timer.reschedule(None)
        self._watch()
        try:
            while (unread := await chunks(self._take)) and not self._ended:
                with noticing_the_client():
                    await self.request.writer.drain()
        finally:
            self._watching.cancel()
        self._unread = unread
        # The last event may lack its blank line. What follows it is no part of the answer.
        rest = self.endpoint.scrub(bytes(self._pending)) if self._ended else self._shown(bytes(self._pending))
        self.finished(b"".join(self._kept))
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
        shown = self._shown(whole_events(self._pending, chunk))
        if self._ended:
            self._at_last = shown
            return False
        return not shown or self._write(shown)

    def _write(self, shown: bytes) -> bool:
        transport = self.request.transport
        if transport is None or transport.is_closing():
            raise ClientGone
        # As the library does, whose way takes five calls and a turn of the event loop.
        chunked = self.request.version >= HttpVersion11
        transport.write(b"%x\r\n%b\r\n" % (len(shown), shown) if chunked else shown)
        return transport.get_write_buffer_size() <= _UNSENT

    def _shown(self, events: bytes) -> bytes:
        """Keep events, up to the last one. Return what the agent sees of them."""
        events = self.endpoint.scrub(events)  # whole events: a chunk may end within a key
        if self.out.dialect.marks.search(events) is None:
            self._kept.append(events)
            return events
        shown = []
        for event in events_in(events):
            data = data_of(event)
            if not self._ended:
                self._kept.append(event)
                self._ended = self.out.dialect.ends(data)
            if not (self.out.hides_usage and is_usage_alone(data)):
                shown.append(event)
        return b"".join(shown)

    def _watch(self) -> None:
        """Bridge silence by comments, and count the time limit from the last chunk: a stream may outlast a call."""
        loop, now = asyncio.get_running_loop(), perf_counter()
        left_s, quiet_s = self.endpoint.timeout_s - (now - self._last), now - max(self._commented, self._last)
        if left_s <= 0.0:  # the call's own task raises the TimeoutError
            self.timer.reschedule(loop.time())
            return
        if quiet_s >= SILENCE_S:
            self._commented, quiet_s = now, 0.0
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


# Types of errors by status, as the SDKs know them.
_KINDS: Final = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    504: "timeout_error",
}


class GatewayRefusal(Exception):
    """A request that the gateway answers with its own error. ``retry``: another attempt makes sense."""

    def __init__(self, status: int, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.status, self.retry = status, retry
        self.kind = _KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")


@dataclass(slots=True)
class Call:
    """One request of an agent on its way."""

    session: Caller
    request: web.BaseRequest
    out: Outgoing
    upstream: Upstream | None
    """None: the journal alone answers."""
    rewrite: Callable[..., Outgoing]
    """Returns the request without additions that are ``refused``."""
    _refused_additions: set[tuple[str, str]] = field(default_factory=set)
    _slot: list[Frame] = field(default_factory=list)
    _key: AnswerKey = field(init=False)
    _answered: bool = False
    """Whether there is a journalled answer with this key that is not known to have arrived."""
    _noted: bool = False
    """Whether it is the second attempt at an answer that the session has noted."""
    _bound: Bound = field(init=False)
    _span: SpanHandle = field(init=False)
    _reservation: Reservation | None = None
    """Until the call is charged for."""
    _began: float = 0.0
    _idempotency_key: str | None = None

    async def respond(self) -> web.StreamResponse:
        """Answer the agent. Raises ``GatewayRefusal``, ``TfgrpoError`` or ``ClientGone``."""
        session, out = self.session, self.out
        self._slot = session.begin(out)
        about: Attributes = {"model": out.model, "role": GATEWAY, "provider": session.provider, "arm": session.facts.get("arm")}
        temperature = out.body.get("temperature")
        sent_temperature = temperature if isinstance(temperature, int | float) else None
        span = partial(session.telemetry.chat_span, temperature=sent_temperature, max_tokens=out.max_tokens)
        with session.telemetry.attached(session.carrier), span(**about) as self._span:
            if session.telemetry.options.content:
                self._span.content("input", session.scrub(out.raw.decode("utf-8", "replace")))
            try:
                return await self._answer()
            except BaseException:
                if self._answered and session.answers is not None:  # the agent has not got all of it
                    session.answers.give_back(self._key)
                raise

    async def _answer(self) -> web.StreamResponse:
        upstream, answers = self.upstream, self.session.answers
        own_key: AbstractContextManager[str] = nullcontext(self.request.headers.get(IDEMPOTENCY_KEY) or token_hex(16))
        if answers is not None:
            self._key, answer, self._noted = answers.next(self.out.digest, final=upstream is None)
            if answer is not None:
                return await self._replayed(answer)
            own_key = answers.idempotency_key(self._key)
        if upstream is None:
            raise ReplayMiss(f"the journal holds no answer {self._key.number} to request {self._key.digest[:16]}")
        client, completions = upstream.client, count_or_none(self.out.body.get("n")) or 1
        most = (self.out.max_tokens or self.session.max_tokens) * completions
        self._bound = bound = client.bound(self.out.model, self.out.size, most)
        async with client.limiter.slot() as started:
            self._reservation = await client.reserve(bound)
            try:
                with own_key as self._idempotency_key:
                    return await self._exchange(upstream, started)
            finally:
                self._charge(Reservation.lose)  # a call without a known end

    async def _replayed(self, answer: Recorded) -> web.StreamResponse:
        self._answered = True
        body, reply = answer.body, read_reply(self.out.dialect, answer.content_type, answer.body)
        if self.out.hides_usage and is_events(answer.content_type):
            body = b"".join(event for event in events_in(body) if not is_usage_alone(data_of(event)))
        if reply is not None:
            usage, took_s, cost_usd = usage_of(answer.usage), answer.latency_s, answer.cost_usd
            self._note(replace(reply, usage=usage, latency_s=took_s, cost_usd=cost_usd, replayed=True))
        return await self._whole({"content-type": answer.content_type}, body)

    async def _exchange(self, upstream: Upstream, started: int) -> web.StreamResponse:
        client, endpoint = upstream.client, upstream.client.endpoint
        self._began = perf_counter()
        try:
            async with asyncio.timeout(endpoint.timeout_s) as timer:
                response: web.StreamResponse | None = None
                while response is None:
                    path, raw = self.out.dialect.path, self.out.raw
                    request = upstream.forwarded(self.request, path, raw, self._idempotency_key)
                    reply = await client.http.send(request, stream=True)
                    try:
                        if reply.status_code in OVERLOADED:
                            client.limiter.pushed_back(started)
                        else:
                            client.limiter.served()
                        if 200 <= reply.status_code < 300:
                            response = await self._passed_on(upstream, reply, timer)
                        else:
                            response = await self._refused(upstream, reply)
                    finally:
                        await close(reply)
                return response
        except TimeoutError:  # before TRANSPORT_ERRORS: it is an OSError
            late = ModelTimeout(f"no reply within {endpoint.timeout_s:g} s from {endpoint.display_url}")
            raise self._broken(late, 504, retry=True) from None
        except TRANSPORT_ERRORS as error:
            failed, charge = client.disconnected(error)
            self._charge(charge)
            raise self._broken(failed.error, retry=failed.retryable) from None
        except ModelReplyMalformed as error:  # oversized, for example
            raise self._broken(error) from None

    async def _passed_on(self, upstream: Upstream, reply: httpx.Response, timer: asyncio.Timeout) -> web.StreamResponse:
        received = dict(reply.headers.items())  # once: they are decoded for each look
        kind, endpoint = received.get("content-type", ""), upstream.client.endpoint
        if self.out.body.get("stream") is True and "json" not in kind.lower():
            kind = "text/event-stream"  # under any name, or none: SDKs go by what they asked for
        upstream.refused |= self._refused_additions
        if unreadable := why_unreadable(received):
            raise ModelReplyMalformed(unreadable)
        headers, finished = self._headers(received, endpoint.scrub), partial(self._finished, upstream.client, kind)
        if not is_events(kind):
            body = endpoint.scrub(await read_whole(reply, MAX_BODY))
            finished(body)
            return await self._whole(headers, body, reply.status_code)
        self.session.unanswered(None)  # an agent may stop reading when it has seen enough
        relay = EventRelay(self.request, self.out, endpoint, finished, timer)
        chunks = chunks_of(reply)
        response = await relay.run(headers, chunks)
        self._answered = False  # arrived: clients leave at the last event, and an equal request is another call
        if relay.first is not None:
            self._span.set(first_chunk_s=relay.first - self._began)
        await relay.drain(chunks)
        return response

    async def _whole(self, headers: Mapping[str, str], body: bytes, status: int = 200) -> web.StreamResponse:
        response = web.Response(status=status, body=body, headers=headers)
        with noticing_the_client():  # sent here, not by the library, to learn whether the agent is there to take it
            await response.prepare(self.request)
            await response.write_eof()
        return response

    async def _refused(self, upstream: Upstream, reply: httpx.Response) -> web.Response | None:
        """Pass a refusal on; None to ask again without what the gateway has added and the endpoint does not take."""
        client, status = upstream.client, reply.status_code
        content = why_unreadable(reply.headers).encode() or await read_whole(reply, MAX_BODY)
        refusal = read_refusal(status, content)
        if IDEMPOTENCY_KEY in reply.request.headers and refusal.refused == "idempotency_key":
            client.omitted.add(refusal.refused)
            return None
        addition = self.out.refused_in(content.decode("utf-8", "replace")) if status in {400, 422} else None
        if addition is not None:
            self._refused_additions.add((self.out.model, addition))
            self.out = self.rewrite(refused=upstream.refused | self._refused_additions)
            return None
        received = Received(reply.request.url, status, reply.headers, content)
        failed, charge = client.refused(self.out.model, received, refusal)
        error = failed.error
        # A key that is good for one model may not be for another one that the agent tries.
        other_model = status == 403 and bool(client.answering)
        if isinstance(error, BudgetRefused) or (isinstance(error, ModelAuthRefused) and not other_model):
            self.session.stop(error)
        self._failed(error)
        self._charge(charge)
        if received.moved_to is not None or status < 400:  # a client that follows would leave the gateway
            raise GatewayRefusal(502, str(error))
        scrub = client.endpoint.scrub
        return web.Response(status=status, body=scrub(content), headers=self._headers(reply.headers, scrub))

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
        if self.session.answers is not None:
            self._key = self.session.answers.record(self._key, Recorded(content_type, body, latency_s, cost_usd, counts))
            self._answered = True
        reply = replace(reply, usage=usage, latency_s=latency_s, cost_usd=cost_usd)
        self._count(reply, latency_s)
        self._note(reply)

    def _note(self, reply: ChatReply) -> None:
        if not reply.model:
            reply = replace(reply, model=self.out.model)
        describe_reply(self._span, reply)
        if not self._noted:
            self.session.answered(self._slot, self.out, reply)

    def _broken(self, error: TfgrpoError, status: int = 502, *, retry: bool = False) -> GatewayRefusal:
        self._failed(error)
        return GatewayRefusal(status, str(error), retry=retry)

    def _failed(self, error: TfgrpoError) -> None:
        self._span.fail(type(error).__name__)
        self._count(type(error).__name__, perf_counter() - self._began)
        self.session.unanswered(error)

    def _count(self, result: ChatReply | str, took_s: float) -> None:
        facts: Facts = {**self.session.facts, "model": self.out.model, "provider": self.session.provider, "role": GATEWAY}
        count_call(self.session.telemetry, result, took_s, **facts)

    def _charge(self, how: Charge) -> None:
        # A call is charged for once: the first time that its end is known.
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
            if any(event.get("error") or event.get("type") == "error" for event in events):  # SDKs raise it, too
                return None
            return dialect.read(dialect.fold(events, any(map(dialect.ends, datas[-1:]))))
        value = mapping_of(json_of(body))
        return None if hidden_status(value) is not None else dialect.read(value)
    except (AttributeError, LookupError, TypeError, ValueError):  # fields of types that no endpoint should send
        return None


def read_answer(payload: Mapping[str, Any]) -> ChatReply | None:
    """Return what a journalled answer says, whichever protocol it is of; None for what cannot be read."""
    answer = Recorded.from_json(payload)
    replies = (read_reply(dialect, answer.content_type, answer.body) for dialect in PROTOCOLS.values())
    return next((reply for reply in replies if reply is not None), None)
