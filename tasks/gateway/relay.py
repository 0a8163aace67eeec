"""Pass a reply on to the agent: whole, or event by event with signs of life while the endpoint is silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import inf
from time import perf_counter
from typing import TypeAlias

from aiohttp import web

from tfgrpo.stores.errors import ModelReplyMalformed
from tfgrpo.tasks.gateway.outgoing import Outgoing
from tfgrpo.tasks.gateway.sse import EventReader, data_of, events_in
from tfgrpo.tasks.gateway.upstream import MAX_BODY
from tfgrpo.tasks.models.transport import TRANSPORT_ERRORS

SILENCE_S = 15.0
"""Seconds of an endpoint's silence after which a stream gets a comment, so that no client or proxy gives up."""
_COMMENT = b": waiting for the model\n\n"
_DRAIN_S = 0.2
"""Most seconds to wait for the end of a connection whose last event has come, so that it can be used again."""

Finished: TypeAlias = Callable[[bytes], None]
"""Called with the whole answer before the agent sees the end of it."""


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
        self._kept: list[bytes] = []
        self._ended = False
        self._last = perf_counter()
        self.first: float | None = None
        """When the first chunk came."""

    async def run(self, headers: Mapping[str, str], chunks: AsyncIterator[bytes]) -> web.StreamResponse:
        """Send the stream. Raises ``ClientGone``, and ``ModelReplyMalformed`` beyond ``MAX_BODY``: all of it is kept."""
        response, reader, size, shown = web.StreamResponse(headers=headers), EventReader(), 0, b""
        with noticing_the_client():
            await response.prepare(self._request)
        signs = asyncio.ensure_future(self._signs_of_life(response))
        try:
            async for chunk in chunks:
                self._last = perf_counter()
                self.first = self.first or self._last
                size += len(chunk)
                if size > MAX_BODY:
                    raise ModelReplyMalformed(f"the reply has more than {MAX_BODY} bytes; the rest was not read")
                shown = self._shown(reader.feed(chunk))
                if self._ended:
                    break
                if shown:
                    try:  # as below, without the cost of a context for each event
                        await response.write(shown)
                    except ConnectionError:
                        raise ClientGone from None
                    shown = b""
        finally:
            signs.cancel()
        rest = self._masked(reader.rest())
        if not self._ended:  # it broke off, or lacks the last event
            self._finished(b"".join([*self._kept, rest]))
        with noticing_the_client():
            await response.write_eof(shown + rest)  # with the last event in one write: each one wakes the agent
        return response

    async def drain(self, chunks: AsyncIterator[bytes]) -> None:
        """Read what follows the last event, so that the connection can be used again."""
        if self._ended:
            with suppress(*TRANSPORT_ERRORS):  # the answer is whole; TimeoutError is an OSError
                async with asyncio.timeout(_DRAIN_S):
                    async for _ in chunks:
                        pass

    def _shown(self, events: bytes) -> bytes:
        """Keep events; finish with the last one. Return what the agent sees of them."""
        events = self._masked(events)  # whole events: a chunk may end within a key
        if self._dialect.is_plain(events):
            self._kept.append(events)
            return events
        shown = []
        for event in events_in(events):
            data = data_of(event)
            if not self._ended:
                self._kept.append(event)
                if self._dialect.ends(data):
                    self._ended = True
                    self._finished(b"".join(self._kept))
            if not (self._hides_usage and self._dialect.is_usage_alone(data)):
                shown.append(event)
        return b"".join(shown)

    async def _signs_of_life(self, response: web.StreamResponse) -> None:
        """Bridge silence by comments, and count the time limit from the last chunk: a stream may outlast a call."""
        said = self._last
        if self._timer is not None:
            self._timer.reschedule(None)
        with suppress(ConnectionError):  # told by the next chunk, or by the handler's cancellation
            while (left_s := self._limit_s - (perf_counter() - self._last)) > 0.0:
                quiet_s = perf_counter() - max(said, self._last)
                if quiet_s >= SILENCE_S:
                    said, quiet_s = perf_counter(), 0.0
                    await response.write(_COMMENT)
                await asyncio.sleep(min(left_s, SILENCE_S - quiet_s))
            if self._timer is not None:  # now: the call's own task raises the TimeoutError
                self._timer.reschedule(asyncio.get_running_loop().time())


@contextmanager
def noticing_the_client() -> Iterator[None]:
    """Keep a connection that the agent closed apart from one that the endpoint closed."""
    try:
        yield
    except ConnectionError:
        raise ClientGone from None
