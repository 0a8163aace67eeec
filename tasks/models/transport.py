"""How do bytes get to the endpoint? One pooled ``httpx.AsyncClient`` per process and event loop.

The client runs over aiohttp, whose pool stays cheap with hundreds of calls in flight where httpx's own does not. Sets
no total time limit (the caller holds one around the whole exchange) and retries nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aiohttp
import httpx
from httpx_aiohttp import HttpxAiohttpClient

CONNECT_S = 15.0
"""Seconds to establish a connection."""
KEEPALIVE_S = 4.0
"""Seconds an idle connection is kept. Shorter than the 5 s of uvicorn (vLLM), or a call would meet a closing server."""

TRANSPORT_ERRORS = (httpx.HTTPError, httpx.StreamError, aiohttp.ClientError, OSError)
"""What sending may raise. The aiohttp transport lets some errors of its library through unmapped."""


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
    return HttpxAiohttpClient(
        verify=httpx.create_ssl_context(trust_env=trust_env),  # built once: it costs 20 ms
        timeout=httpx.Timeout(None, connect=CONNECT_S),
        limits=httpx.Limits(
            max_connections=concurrency + 4,  # the preflight and a late close must not wait
            max_keepalive_connections=concurrency + 4,
            keepalive_expiry=KEEPALIVE_S,
        ),
        trust_env=trust_env,
    )


def over(transport: httpx.AsyncBaseTransport) -> httpx.AsyncClient:
    """A client over a transport of the caller's."""
    return httpx.AsyncClient(transport=transport, timeout=httpx.Timeout(None), trust_env=False)


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
