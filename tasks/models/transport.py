"""Send bytes to the endpoint through one pooled ``httpx.AsyncClient`` per process and event loop.

The client runs over aiohttp, whose pool stays cheap with hundreds of calls in flight where httpx's own does not. Retries
are the caller's.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache, partial
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp
import httpx
from httpx_aiohttp import HttpxAiohttpClient
from httpx_aiohttp.transport import AiohttpResponseStream

from tfgrpo.stores.errors import EndpointError, ModelReplyMalformed

CONNECT_S = 15.0
# An idle connection is kept for less than the 5 s of uvicorn (vLLM), so that calls never meet a closing server.
KEEPALIVE_S = 4.0
# The largest real replies, with log-probabilities of every token, stay below 3 MB.
MAX_REPLY_BYTES = 16 << 20

# Encodings of bodies that are read, with ``zlib``'s number of each.
ENCODINGS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}
# Header of requests: the libraries would ask for whatever is installed.
ACCEPTED: Final = {"accept-encoding": "gzip, deflate"}
# Most bytes that are decoded at once.
_PIECE: Final = 1 << 20
# The aiohttp transport lets some errors of its library through unmapped, and httpx parses the address of every redirect
# (``InvalidURL``), followed or not.
TRANSPORT_ERRORS = (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, aiohttp.ClientError, OSError)

Take: TypeAlias = Callable[[bytes], bool]
"""Takes a chunk, without waiting. Returns whether it takes the next one at once."""
Chunks: TypeAlias = Callable[[Take], Awaitable[bool]]
"""Passes chunks on until ``Take`` stops it or the body ends. Returns whether there may be more, for the next call. Raises
what ``Take`` raises, and one of ``TRANSPORT_ERRORS``."""


class Received(NamedTuple):
    """A reply, read to its end."""

    url: httpx.URL
    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def is_page(self) -> bool:
        """Whether it is a page for a browser: the address is that of something else."""
        return self.content.lstrip()[:1] == b"<"

    @property
    def moved_to(self) -> httpx.URL | None:
        """Address of a redirect; none is followed, because the key would be sent along."""
        location = self.headers.get("location", "") if 300 <= self.status < 400 else ""
        try:
            url = self.url.join(location) if location else self.url
        except httpx.InvalidURL:
            return None
        return url if location and url.scheme in {"http", "https"} and url.host else None


class _Client(HttpxAiohttpClient):
    """Client without credentials, hooks, redirects and cookies, whose handling in httpx takes a quarter of a call."""

    async def _send_handling_auth(self, request: httpx.Request, *_: Any, **__: Any) -> httpx.Response:
        return await self._transport_for_url(request.url).handle_async_request(request)


async def exchange(
    client: httpx.AsyncClient, request: httpx.Request, limit_s: float | None = None, max_bytes: int = MAX_REPLY_BYTES
) -> Received:
    """Send a request and read the reply, all of it within ``limit_s``.

    Raises ``TimeoutError``, one of ``TRANSPORT_ERRORS``, or ``ModelReplyMalformed`` for a reply longer than ``max_bytes``.
    """
    async with asyncio.timeout(limit_s):
        response = await client.send(request, stream=True)
        try:
            content = await read_whole(response, max_bytes)
        finally:
            await close(response)
    return Received(request.url, response.status_code, response.headers, content)


async def close(response: httpx.Response) -> None:
    """Close a reply."""
    reply = _plain_reply(response)
    # At its end the HTTP library has let go of it, and going through all layers would change nothing.
    if reply is None or not reply.content.at_eof():
        await response.aclose()


async def read_whole(response: httpx.Response, max_bytes: int = MAX_REPLY_BYTES) -> bytes:
    """Return the body of a reply. Raises as ``exchange`` does."""
    size, chunks = 0, []
    async for chunk in _decoded_bytes(response):
        size += len(chunk)
        if size > max_bytes:
            raise ModelReplyMalformed(f"the reply has more than {max_bytes} bytes; the rest was not read")
        chunks.append(chunk)
    return b"".join(chunks)


def _decoded_bytes(response: httpx.Response) -> AsyncIterator[bytes]:
    reply, stream = _plain_reply(response), response.stream
    if reply is not None:
        return reply.content.iter_any()
    chunks = aiter(stream) if isinstance(stream, httpx.AsyncByteStream) else response.aiter_raw()
    # Not by httpx, which would decode any number of encodings, without a bound.
    return _readable(response, chunks) if "content-encoding" in response.headers else chunks


async def _readable(response: httpx.Response, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if unreadable := why_unreadable(response.headers):
        raise ModelReplyMalformed(unreadable)
    try:
        async for chunk in decoded(chunks, encoding_of(response.headers)):
            yield chunk
    except zlib.error as error:
        raise httpx.DecodingError(str(error), request=response.request) from None


def encoding_of(headers: Mapping[str, str]) -> str:
    """Return how a body is encoded, several encodings with commas between; empty for not at all."""
    named = (each.strip().lower() for each in headers.get("content-encoding", "").split(","))
    return ", ".join(each for each in named if each not in {"", "identity"})


def why_unreadable(headers: Mapping[str, str]) -> str:
    """Return why the body of a reply cannot be read; empty for one that can."""
    encoding = encoding_of(headers)
    return f"the reply is encoded as {encoding}, which was not asked for" if encoding and encoding not in ENCODINGS else ""


async def decoded(chunks: AsyncIterator[bytes], encoding: str, *, strict: bool = False) -> AsyncIterator[bytes]:
    """Yield a body without its encoding, one of ``ENCODINGS`` or none, in small pieces. Raise ``zlib.error``.

    ``strict``: also for anything but one whole encoded body; else an end may be missing, as such a reply is paid for.
    """
    decoder = None
    async for chunk in chunks:
        if not encoding:
            yield chunk
            continue
        left = chunk
        while left:
            if decoder is None or decoder.eof:
                if decoder is not None and _ends_before(left, encoding, strict=strict):
                    break
                # Some send deflate without its header.
                decoder = zlib.decompressobj(-15 if encoding == "deflate" and left[0] & 0xF != 8 else ENCODINGS[encoding])
            if piece := decoder.decompress(left, _PIECE):
                yield piece
            left = decoder.unconsumed_tail or decoder.unused_data
    if decoder is not None:
        if piece := decoder.flush():
            yield piece
        if strict and not decoder.eof:
            raise zlib.error("less than one encoded body")


def _ends_before(rest: bytes, encoding: str, *, strict: bool) -> bool:
    if strict:
        raise zlib.error("more than one encoded body")
    # A further member of gzip is read; anything else is padding.
    return encoding == "deflate" or rest[0] != 0x1F


def _plain_reply(response: httpx.Response) -> aiohttp.ClientResponse | None:
    # That of the HTTP library below, if its body has no content encoding; None of other transports.
    stream = response.stream
    if "content-encoding" in response.headers or not isinstance(stream, AiohttpResponseStream):
        return None
    return stream._aiohttp_response  # noqa: SLF001 - several frames fewer for each chunk


def open_transport(
    *, concurrency: int = 64, app: Callable[..., Any] | None = None, trust_env: bool = True
) -> httpx.AsyncClient:
    """Return the client for all calls of this process, at most ``concurrency`` at once; close it with ``aclose``.

    ``app``: an ASGI application to call in process. ``trust_env``: heed proxy and certificate variables of the environment.
    """
    if app is not None:
        # An exception of the application becomes a 500, or half an answer, as of a real server.
        return client_over(httpx.ASGITransport(app=app, raise_app_exceptions=False))
    # The preflight and a late close must not wait.
    room = concurrency + 4
    return _Client(
        verify=_certificates(trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")),
        timeout=httpx.Timeout(None, connect=CONNECT_S),
        limits=httpx.Limits(max_connections=room, max_keepalive_connections=room, keepalive_expiry=KEEPALIVE_S),
        trust_env=trust_env,
        headers=ACCEPTED,
    )


# Read once for what the environment names: it takes 20 ms.
@cache
def _certificates(trust_env: bool, _file: str | None, _directory: str | None) -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=trust_env)


def refuse_socks(url: httpx.URL) -> None:
    """Raise ``EndpointError`` if the environment names a proxy for ``url`` that is no HTTP proxy."""
    # aiohttp would send it plain HTTP all the same, with the key in it.
    proxies = getproxies_environment()
    name = url.scheme if url.scheme in proxies else "all"
    scheme, separator, _ = proxies.get(name, "").partition("://")
    if separator and scheme.lower() not in {"http", "https"} and not proxy_bypass(url.host):
        accepted = f"an http(s) proxy; SOCKS is not supported. Or add {url.host} to NO_PROXY"
        raise EndpointError.one(f"{name.upper()}_PROXY", f"{scheme}://…", accepted)


def client_over(transport: httpx.AsyncBaseTransport) -> httpx.AsyncClient:
    """Return a client over the caller's transport."""
    return httpx.AsyncClient(transport=transport, timeout=httpx.Timeout(None), trust_env=False)


def is_certificate_error(error: BaseException) -> bool:
    """Whether the connection failed because of the server's certificate, which no retry mends."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError | aiohttp.ClientConnectorCertificateError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def words_of(error: BaseException) -> str:
    """Return what an error says; of a connection that could not be made, what the system said."""
    cause = error.__cause__
    # Of a host without an encrypted connection, too, the library's own text ends in settings of encryption.
    if isinstance(cause, aiohttp.ClientConnectorError) and not is_certificate_error(cause):
        return f"{cause.host}:{cause.port}: {cause.os_error}"
    return str(error)


def never_sent(error: BaseException) -> bool:
    """Whether an error means that no connection was made, so that no byte of the request was sent."""
    # The aiohttp transport maps refused connections and dropped ones alike to httpx.ConnectTimeout: the cause decides.
    cause = error.__cause__
    if isinstance(cause, aiohttp.ClientError):
        return isinstance(cause, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.ClientHttpProxyError)
    return isinstance(
        error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError | httpx.UnsupportedProtocol
    )


def chunks_of(response: httpx.Response) -> Chunks:
    """Return the body of a reply, without its content encoding, in the callback of the connection that receives it."""
    # A task that is woken for each chunk costs another turn of the event loop, a sixth of what it takes to pass one on.
    reply, chunks = _plain_reply(response), _decoded_bytes(response)

    async def iterated(take: Take) -> bool:
        async for chunk in chunks:
            if not take(chunk):
                return True
        return False

    return iterated if reply is None else partial(_arriving, reply)


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
    transport: Any = library.transport
    transport.set_protocol(_Tap(library, arrived))
    try:
        return await turn
    finally:
        transport.set_protocol(library)


class _Tap:
    """Precedes the HTTP library's protocol on a connection, and calls ``arrived`` after it has read what came."""

    def __init__(self, library: asyncio.Protocol, arrived: Callable[[], None]) -> None:
        self._library, self._arrived = library, arrived

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def data_received(self, data: bytes) -> None:
        self._library.data_received(data)
        self._arrived()

    def connection_lost(self, error: Exception | None) -> None:
        self._library.connection_lost(error)
        self._arrived()
