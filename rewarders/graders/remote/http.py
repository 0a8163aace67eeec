"""Connection pool for POST requests to grading services, with one client per event loop.

The client uses aiohttp, whose pool stays fast with hundreds of concurrent requests. No retries, no redirects; the caller
sets the time limit. The HTTP libraries are loaded with the first request.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from tfgrpo.stores.errors import GraderUnavailable

if TYPE_CHECKING:
    import httpx

_CONNECT_S: Final = 15.0
_CONNECTIONS: Final = 64
_KEEPALIVE_S: Final = 4.0
"""Seconds an idle connection is kept; less than the 5 s of uvicorn, which would close it during a request."""


class Reply(NamedTuple):
    """A complete response."""

    status: int
    content: bytes


class HttpPool:
    """The client of each event loop, opened on first use. Several graders and threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the clients, which loops in several threads look up
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            weakref.WeakKeyDictionary()
        )

    def __reduce__(self) -> tuple[type[HttpPool], tuple[()]]:
        return type(self), ()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], most_bytes: int) -> Reply:
        """Send a request and read the response.

        Raises ``ConnectionError`` for a failed connection, and ``GraderUnavailable`` for a response that is compressed or
        longer than ``most_bytes``, and for an invalid address.
        """
        import aiohttp  # noqa: PLC0415
        import httpx  # noqa: PLC0415

        try:
            client = self._client()
            request = client.build_request("POST", url, content=body, headers=dict(headers))
            response = await client.send(request, stream=True, follow_redirects=False)
            try:
                return Reply(response.status_code, await _content(response, most_bytes))
            finally:
                await response.aclose()
        except httpx.InvalidURL as error:
            # Of the address itself, or of the one that a redirect points to.
            raise GraderUnavailable(f"no usable address: {error}") from None
        except (httpx.HTTPError, httpx.StreamError, aiohttp.ClientError, OSError) as error:
            # The aiohttp transport passes some errors of its library through, and maps others to misleading ones.
            kind = type(error.__cause__ or error).__name__
            raise ConnectionError(f"{kind} {error}".strip()) from error

    async def aclose(self) -> None:
        """Close the client of the running loop, if it has one."""
        with self._lock:
            client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        with self._lock:
            client = self._clients.get(loop)
            if client is None:
                client = self._clients[loop] = _new_client()
            return client


def _new_client() -> httpx.AsyncClient:
    import httpx  # noqa: PLC0415
    from httpx_aiohttp import HttpxAiohttpClient  # noqa: PLC0415

    limits = httpx.Limits(
        max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS, keepalive_expiry=_KEEPALIVE_S
    )
    return HttpxAiohttpClient(timeout=httpx.Timeout(None, connect=_CONNECT_S), limits=limits)


async def _content(response: httpx.Response, most_bytes: int) -> bytes:
    """Read the raw bytes. A compressed response is refused: a small one may expand without bound."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding not in {"", "identity"}:
        raise GraderUnavailable(f"its answer is in the encoding {coding[:40]!r}, which was not asked for")
    size, parts = 0, []
    async for part in response.aiter_raw():
        size += len(part)
        if size > most_bytes:
            raise GraderUnavailable(f"its answer has more than {most_bytes} bytes; the rest was not read")
        parts.append(part)
    return b"".join(parts)
