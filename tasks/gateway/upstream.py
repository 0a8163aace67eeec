"""Address and headers of a forwarded request: the agent's own, with the endpoint's key in place of the rollout's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import httpx
from aiohttp.web import BaseRequest

from tfgrpo.tasks.models.chat import ChatClient

KEY_HEADERS = ("authorization", "x-api-key", "api-key")
_OF_THE_CONNECTION = frozenset(
    {"connection", "content-encoding", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
_NOT_FORWARDED = frozenset({*_OF_THE_CONNECTION, *KEY_HEADERS, "accept-encoding", "cookie", "expect", "host"})
_NOT_RETURNED = frozenset({*_OF_THE_CONNECTION, "date", "server", "set-cookie"})
_OWN_PREFIX = "x-tfgrpo-"
_PIECE = 1 << 18


class _Pieces(httpx.AsyncByteStream):
    """A long body in pieces, between which other calls go on."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), _PIECE):
            yield self._body[start : start + _PIECE]


class Upstream:
    """The run's client, and the addresses and headers of its endpoint, which are the same for all calls."""

    def __init__(self, client: ChatClient, *, callers_keys: bool = False) -> None:
        """``callers_keys``: a client's own key is passed on; the endpoint's own must be None then."""
        self.client = client
        self._dropped = _NOT_FORWARDED if not callers_keys else _NOT_FORWARDED.difference(KEY_HEADERS)
        self._urls: dict[str, httpx.URL] = {}
        own = client.endpoint.headers()
        self._headers = {name: value for name, value in own.items() if name not in {"accept", "content-type"}}
        self._with_x_api_key = dict(self._headers)
        key = client.endpoint.api_key
        if key is not None and self._headers.get("authorization") == f"Bearer {key.reveal()}":
            del self._with_x_api_key["authorization"]
            self._with_x_api_key["x-api-key"] = key.reveal()

    def forwarded(self, request: BaseRequest, path: str, body: bytes | None) -> httpx.Request:
        """Return the request to the endpoint. The key is in the header that the client uses, unless that is Azure's."""
        headers = {
            name: value
            for name, value in ((name.lower(), value) for name, value in request.headers.items())
            if name not in self._dropped and not name.startswith(_OWN_PREFIX)
        }
        headers["accept-encoding"] = "identity"  # a compressed stream could not be passed on event by event
        headers |= self._with_x_api_key if "x-api-key" in request.headers else self._headers
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = self.client.endpoint.url(path)
        # Azure clients say which version they speak; the endpoint's own address says which one it has.
        query = {name: value for name, value in request.query.items() if name != "api-version"}
        url = url.copy_merge_params(query) if query else url
        if body is None or len(body) <= _PIECE:
            return httpx.Request(request.method, url, content=body, headers=headers)
        headers["content-length"] = str(len(body))
        return httpx.Request(request.method, url, headers=headers, stream=_Pieces(body))


def returned_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a reply that concern the agent."""
    return {name: value for name, value in headers.items() if name.lower() not in _NOT_RETURNED}


def keys_in(request: BaseRequest) -> list[str]:
    """Return the keys that a client sent, in any of the forms."""
    sent = (request.headers.get(name) for name in KEY_HEADERS)
    return [key.removeprefix("Bearer ").strip() for key in sent if key]
