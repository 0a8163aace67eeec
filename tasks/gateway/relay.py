"""Pass a reply on to the agent: whole, or event by event with signs of life while the endpoint is silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import NamedTuple, TypeAlias

from aiohttp import web

from tfgrpo.tasks.gateway.outgoing import Outgoing
from tfgrpo.tasks.gateway.sse import EventReader, data_of

SILENCE_S = 15.0
"""Seconds of an endpoint's silence after which a stream gets a comment, so that no client or proxy gives up."""
_COMMENT = b": waiting for the model\n\n"
_DRAIN_S = 0.2
"""Most seconds to wait for the end of a connection whose last event has come, so that it can be used again."""

Finished: TypeAlias = Callable[[Sequence[bytes]], None]
"""Called with the whole answer, one body or all events, before the agent sees the end of it."""


class Limit(NamedTuple):
    """Longest silence of the endpoint."""

    timer: asyncio.Timeout
    seconds: float


class ClientGone(Exception):
    """The agent closed the connection."""


class EventRelay:
    """Passes one stream on. Every byte reaches the agent, except a chunk of usage that it did not ask for."""

    def __init__(
        self,
        request: web.BaseRequest,
        out: Outgoing,
        finished: Finished,
        mask: Callable[[bytes], bytes] | None = None,
        limit: Limit | None = None,
    ) -> None:
        """``mask`` removes the endpoint's key from an event."""
        self._request = request
        self._dialect = out.dialect
        self._hides_usage = out.hides_usage
        self._finished = finished
        self._mask = mask
        self._limit = limit
        self._kept: list[bytes] = []
        self._ended = False
        self._last = perf_counter()
        self.first: float | None = None
        """When the first chunk came."""

    async def run(self, response: web.StreamResponse, chunks: AsyncIterator[bytes]) -> None:
        """Send the stream. Raises ``ClientGone``."""
        with _noticing_the_client():
            await response.prepare(self._request)
        signs = asyncio.ensure_future(self._signs_of_life(response))
        try:
            await self._pass_on(response, chunks)
        finally:
            signs.cancel()
        if self._ended:
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_S):
                    async for _ in chunks:
                        pass

    async def _pass_on(self, response: web.StreamResponse, chunks: AsyncIterator[bytes]) -> None:
        reader = EventReader()
        async for chunk in chunks:
            self._last = perf_counter()
            self.first = self.first or self._last
            shown = b"".join([event for event in map(self._masked, reader.feed(chunk)) if self._shown(event)])
            if shown:
                await self._write(response, shown)
            if self._ended:
                break
        rest = self._masked(reader.rest())
        if not self._ended:
            self._finished([*self._kept, rest])
        if rest:
            await self._write(response, rest)
        with _noticing_the_client():
            await response.write_eof()

    def _masked(self, event: bytes) -> bytes:
        return event if self._mask is None else self._mask(event)

    def _shown(self, event: bytes) -> bool:
        """Keep an event; finish with the last one. Return whether the agent sees it."""
        data = data_of(event)
        if not self._ended:
            self._kept.append(event)
            if self._dialect.ends(data):
                self._ended = True
                self._finished(self._kept)
        return not (self._hides_usage and self._dialect.is_usage_alone(data))

    async def _signs_of_life(self, response: web.StreamResponse) -> None:
        """Bridge silence by comments, and count the time limit from the last chunk: a stream may outlast a call."""
        said, pause_s = self._last, SILENCE_S
        if self._limit is not None:
            pause_s = min(pause_s, self._limit.seconds / 2)
        with suppress(ClientGone):
            while True:
                await asyncio.sleep(pause_s)
                now = perf_counter()
                if self._limit is not None:
                    left_s = max(0.0, self._limit.seconds - (now - self._last))
                    self._limit.timer.reschedule(asyncio.get_running_loop().time() + left_s)
                if now - max(said, self._last) >= SILENCE_S - pause_s / 2:
                    said = now
                    await self._write(response, _COMMENT)

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        try:
            await response.write(data)
        except ConnectionError:
            raise ClientGone from None


async def send(request: web.BaseRequest, response: web.Response) -> web.Response:
    """Send a whole answer now, to learn whether the agent is there to take it. Raises ``ClientGone``."""
    with _noticing_the_client():
        await response.prepare(request)
        await response.write_eof()
    return response


@contextmanager
def _noticing_the_client() -> Iterator[None]:
    """Keep a connection that the agent closed apart from one that the endpoint closed."""
    try:
        yield
    except ConnectionError:
        raise ClientGone from None
