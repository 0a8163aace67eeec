"""Hand over the chunks of a reply in the callback of the connection that receives them.

A task that is woken for each chunk costs another turn of the event loop, and with it a sixth of what it takes to pass one
on. Replies of other transports, and encoded ones, are iterated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TypeAlias

import aiohttp
import httpx

from tfgrpo.tasks.models.transport import decoded_bytes, plain_reply

Take: TypeAlias = Callable[[bytes], bool]
"""Takes a chunk, without waiting. Returns whether it takes the next one at once."""
Chunks: TypeAlias = Callable[[Take], Awaitable[bool]]
"""Passes chunks on until ``Take`` stops it or the body ends. Returns whether there may be more, for the next call. Raises
what ``Take`` raises, and one of ``TRANSPORT_ERRORS``."""


def chunks_of(response: httpx.Response) -> Chunks:
    """Return the body of a reply, without its content encoding."""
    reply = plain_reply(response)
    return partial(_iterated, decoded_bytes(response)) if reply is None else partial(_arriving, reply)


async def _iterated(chunks: AsyncIterator[bytes], take: Take) -> bool:
    async for chunk in chunks:
        if not take(chunk):
            return True
    return False


async def _arriving(reply: aiohttp.ClientResponse, take: Take) -> bool:
    content = reply.content
    turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def arrived() -> None:
        try:
            while not turn.done() and (chunk := content.read_nowait()):
                if not take(chunk):
                    turn.set_result(not content.at_eof())
            if content.is_eof() and not turn.done():
                turn.set_result(False)
        except Exception as error:  # noqa: BLE001 - raised below: the event loop calls this
            turn.set_exception(error)

    arrived()  # what came with the headers
    library = None if reply.connection is None else reply.connection.protocol
    if library is None or library.transport is None:  # all has come
        return await turn
    with _Tap(library, library.transport, arrived):
        return await turn


class _Tap(asyncio.Protocol):
    """Stands before the HTTP library on a connection, and calls ``arrived`` after it has read what came."""

    def __init__(self, library: asyncio.Protocol, transport: asyncio.Transport, arrived: Callable[[], None]) -> None:
        self._library, self._transport, self._arrived = library, transport, arrived

    def __enter__(self) -> None:
        self._transport.set_protocol(self)

    def __exit__(self, *_: object) -> None:
        self._transport.set_protocol(self._library)

    def data_received(self, data: bytes) -> None:
        self._library.data_received(data)
        self._arrived()

    def eof_received(self) -> None:
        self._library.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._library.connection_lost(error)
        self._arrived()

    def pause_writing(self) -> None:
        self._library.pause_writing()

    def resume_writing(self) -> None:
        self._library.resume_writing()
