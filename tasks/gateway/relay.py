"""Pass a reply on to the agent: whole, or event by event with signs of life while the endpoint is silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TypeAlias

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


Mask: TypeAlias = Callable[[bytes], bytes] | None
"""Removes the endpoint's key from an event."""


class ClientGone(Exception):
    """The agent closed the connection."""


class EventRelay:
    """Passes one stream on. Every byte reaches the agent, except a chunk of usage that it did not ask for."""

    def __init__(self, request: web.BaseRequest, out: Outgoing, finished: Finished, mask: Mask) -> None:
        self._request = request
        self._out = out
        self._finished = finished
        self._mask = mask or (lambda event: event)
        self._kept: list[bytes] = []
        self._ended = False
        self._last = monotonic()

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
            self._last = monotonic()
            events = map(self._mask, reader.feed(chunk))
            await self._write(response, b"".join(event for event in events if self._shown(event)))
            if self._ended:
                break
        else:
            self._kept.append(reader.rest())
            self._finished(self._kept)
        await self._write(response, reader.rest())
        with _noticing_the_client():
            await response.write_eof()

    def _shown(self, event: bytes) -> bool:
        """Keep an event; finish with the last one. Return whether the agent sees it."""
        data = data_of(event)
        if not self._ended:
            self._kept.append(event)
            if self._out.dialect.ends(data):
                self._ended = True
                self._finished(self._kept)
        return not (self._out.hides_usage and self._out.dialect.is_usage_alone(data))

    async def _signs_of_life(self, response: web.StreamResponse) -> None:
        with suppress(ClientGone):
            while True:
                silent = monotonic() - self._last
                if silent >= SILENCE_S:
                    await self._write(response, _COMMENT)
                    self._last = monotonic()
                else:
                    await asyncio.sleep(SILENCE_S - silent)

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        if data:
            with _noticing_the_client():
                await response.write(data)


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
