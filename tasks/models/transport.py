"""How do bytes get to the endpoint? One pooled ``httpx.AsyncClient`` per process and event loop.

The client runs over aiohttp, whose pool stays cheap with hundreds of calls in flight where httpx's own does not. Sets
no total time limit (the caller holds one around the whole exchange) and retries nothing.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp
import httpx
from httpx_aiohttp import HttpxAiohttpClient

from tfgrpo.stores.errors import EndpointError, ModelReplyMalformed

CONNECT_S = 15.0
"""Seconds to establish a connection."""
KEEPALIVE_S = 4.0
"""Seconds an idle connection is kept. Shorter than the 5 s of uvicorn (vLLM), or a call would meet a closing server."""

MAX_REPLY_BYTES = 16 << 20
"""Most bytes of one reply. The largest honest ones, with log-probabilities of every token, stay below 3 MB."""

TRANSPORT_ERRORS = (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, aiohttp.ClientError, OSError)
"""What sending may raise. The aiohttp transport lets some errors of its library through unmapped, and httpx reads the
address that a reply redirects to, whether or not anybody will follow it."""


class Received(NamedTuple):
    """A reply, read to its end."""

    url: httpx.URL
    """Where it was asked for."""
    status: int
    headers: Mapping[str, str]
    """Looks names up in any case."""
    content: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is one of success."""
        return 200 <= self.status < 300

    @property
    def moved_to(self) -> httpx.URL | None:
        """Another address that a redirect points to; none is followed, because the key would go along."""
        place = self.headers.get("location", "") if 300 <= self.status < 400 else ""
        try:
            url = self.url.join(place) if place else self.url
        except httpx.InvalidURL:
            return None
        return url if place and url.scheme in {"http", "https"} and url.host else None


class _Client(HttpxAiohttpClient):
    """Sends with nothing around it.

    What httpx does there costs a quarter of a call: a search for credentials, hooks and redirects, of which there are
    none, and for cookies, which aiohttp's session has read already.
    """

    async def _send_handling_auth(
        self,
        request: httpx.Request,
        auth: httpx.Auth,  # noqa: ARG002
        follow_redirects: bool,  # noqa: ARG002
        history: list[httpx.Response],  # noqa: ARG002
    ) -> httpx.Response:
        return await self._transport_for_url(request.url).handle_async_request(request)


async def exchange(client: httpx.AsyncClient, request: httpx.Request, max_bytes: int = MAX_REPLY_BYTES) -> Received:
    """Send a request and read the reply, at most ``max_bytes`` of it.

    Raises one of ``TRANSPORT_ERRORS``, and ``ModelReplyMalformed`` for a longer reply, whose connection is dropped. How
    long it may take is the caller's to bound.
    """
    response = await client.send(request, stream=True)
    try:
        size, parts = 0, []
        async for part in _plain_bytes(response):
            size += len(part)
            if size > max_bytes:
                raise ModelReplyMalformed(f"the reply has more than {max_bytes} bytes; the rest was not read")
            parts.append(part)
    finally:
        await response.aclose()
    return Received(request.url, response.status_code, response.headers, b"".join(parts))


def _plain_bytes(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body without its content encoding. Most have none, and need not go through httpx's decoders."""
    if "content-encoding" in response.headers or not isinstance(response.stream, httpx.AsyncByteStream):
        return response.aiter_bytes()
    return aiter(response.stream)


def open_transport(
    *, concurrency: int = 64, app: Callable[..., Any] | None = None, trust_env: bool = True
) -> httpx.AsyncClient:
    """The client through which every call of this process goes; close it with ``aclose``.

    ``concurrency``: calls in flight at once; there are connections for all of them. ``app``: an ASGI application to be
    called in process instead of the network. ``trust_env``: heed proxy and certificate variables of the environment.
    """
    if app is not None:
        # An application that breaks is a server that breaks: it answers 500, or half an answer.
        return over(httpx.ASGITransport(app=app, raise_app_exceptions=False))
    return _Client(
        verify=httpx.create_ssl_context(trust_env=trust_env),  # built once: it costs 20 ms
        timeout=httpx.Timeout(None, connect=CONNECT_S),
        limits=httpx.Limits(
            max_connections=concurrency + 4,  # the preflight and a late close must not wait
            max_keepalive_connections=concurrency + 4,
            keepalive_expiry=KEEPALIVE_S,
        ),
        trust_env=trust_env,
    )


def refuse_socks(url: httpx.URL) -> None:
    """Raise ``EndpointError`` where the environment names a proxy for ``url`` that is none for HTTP.

    aiohttp would speak HTTP to it all the same: in the clear, with the key.
    """
    proxies = getproxies_environment()
    name = url.scheme if url.scheme in proxies else "all"
    scheme, separator, _ = proxies.get(name, "").partition("://")
    if separator and scheme.lower() not in {"http", "https"} and not proxy_bypass(url.host):
        accepted = f"an http(s) proxy; SOCKS is not spoken here. Or put {url.host} into NO_PROXY"
        raise EndpointError.one(f"{name.upper()}_PROXY", f"{scheme}://…", accepted)


def over(transport: httpx.AsyncBaseTransport) -> httpx.AsyncClient:
    """A client over a transport of the caller's."""
    return httpx.AsyncClient(transport=transport, timeout=httpx.Timeout(None), trust_env=False)


def untrusted(error: BaseException) -> bool:
    """Whether the connection failed over the server's certificate, which asking again does not mend."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError | aiohttp.ClientConnectorCertificateError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def never_sent(error: BaseException) -> bool:
    """Whether an error says that no byte of the request left: no connection came about.

    The aiohttp transport reports refused connections and servers that hang up alike as ``httpx.ConnectTimeout``, so its
    cause is asked first.
    """
    cause = error.__cause__
    if isinstance(cause, aiohttp.ClientError):
        return isinstance(
            cause, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.ClientHttpProxyError
        )
    return isinstance(
        error,
        httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError | httpx.UnsupportedProtocol,
    )
