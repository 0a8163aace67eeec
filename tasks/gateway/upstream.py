"""Address and headers of a forwarded request: the agent's own, with the endpoint's key in place of the rollout's."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import httpx
from aiohttp.web import BaseRequest

from tfgrpo.pipelines.settings.addresses import SECRET_NAME
from tfgrpo.stores.runs import IDEMPOTENCY_KEY
from tfgrpo.tasks.models.chat import ChatClient
from tfgrpo.tasks.models.endpoint import Scrub

KEY_HEADERS = ("authorization", "x-api-key", "api-key")
_SCHEME = re.compile("^bearer ", re.IGNORECASE)
_OF_THE_CONNECTION = re.compile(
    "connection|content-encoding|content-length|keep-alive|te|trailer|transfer-encoding|upgrade|proxy-.*"
)
_NOT_FORWARDED = re.compile(
    "accept-encoding|cookie|expect|host|forwarded|via|x-forwarded-.*|x-real-ip|x-tfgrpo-.*|.*(?:^|-)auth(?:orization)?"
)
"""In addition to those of the connection: what concerns this machine and its network, and credentials for others."""
_DECODED = frozenset({"", "identity", "gzip", "deflate"})
"""Content encodings of replies that are read."""
_NOT_RETURNED = frozenset({"date", "server", "set-cookie"})
MAX_BODY = 64 << 20
"""Most bytes of a reply: embeddings of 2,048 texts have 34 MB."""
_PIECE = 1 << 18


class _Own(NamedTuple):
    """Headers of the endpoint's own."""

    headers: list[tuple[bytes, bytes]]
    instead_of: frozenset[str]
    """Those of the agent that are not forwarded."""

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> _Own:
        return cls([(name.encode(), value.encode()) for name, value in headers.items()], frozenset(headers))


class Upstream:
    """The run's client, and the addresses and headers of its endpoint, which are the same for all calls."""

    def __init__(self, client: ChatClient, *, callers_keys: bool = False) -> None:
        """``callers_keys``: a client's own key is passed on; the endpoint's own must be None then."""
        self.client = client
        self.refused: set[tuple[str, str]] = set()
        """Models, and which of the gateway's additions each of them does not take."""
        self._url = lru_cache(maxsize=64)(client.endpoint.url)
        own = {name.lower(): value for name, value in client.endpoint.headers().items()}
        own = {name: value for name, value in own.items() if name not in {"accept", "content-type"}}  # the agent's hold
        own["accept-encoding"] = "identity"  # a compressed stream could not be passed on event by event
        self._passed_keys = KEY_HEADERS if callers_keys else ()
        self._own = self._with_x_api_key = _Own.of(own)
        key = client.endpoint.api_key
        if key is not None and own.get("authorization") == f"Bearer {key.reveal()}":
            del own["authorization"]
            self._with_x_api_key = _Own.of({**own, "x-api-key": key.reveal()})

    def forwarded(self, request: BaseRequest, path: str, body: bytes | None, call: str | None = None) -> httpx.Request:
        """Return the request to the endpoint. The key is in the header that the client uses, unless that is Azure's.

        ``call``: its idempotency key, which is not sent to an endpoint that refuses it.
        """
        own = self._with_x_api_key if "x-api-key" in request.headers else self._own
        dropped = own.instead_of | _named_in_connection(request.headers)
        if call is not None:
            dropped |= {IDEMPOTENCY_KEY}
        # aiohttp reads bytes of headers that are no UTF-8 as surrogates, and httpx encodes texts as ASCII only.
        headers = [
            (name.encode(), value.encode("utf-8", "surrogateescape"))
            for name, value in ((name.lower(), value) for name, value in request.headers.items())
            if name not in dropped and (name in self._passed_keys or _is_forwarded(name))
        ]
        headers += own.headers
        if call is not None and "idempotency_key" not in self.client.omitted:
            headers.append((IDEMPOTENCY_KEY.encode(), call.encode()))
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
    return {
        name: scrub(value)
        for name, low, value in lowered
        if low not in dropped and not _OF_THE_CONNECTION.fullmatch(low)
    }


def why_unreadable(headers: Mapping[str, str]) -> str:
    """Return why the body of a reply cannot be passed on, which would be as it is and without its encoding; or empty."""
    named = {each.strip().lower() for each in headers.get("content-encoding", "").split(",")}
    unread = ", ".join(sorted(named - _DECODED))
    return f"the reply is encoded as {unread}, which was not asked for" if unread else ""


def keys_in(request: BaseRequest) -> list[str]:
    """Return the keys that a client sent, in any of the forms."""
    sent = (request.headers.get(name) for name in KEY_HEADERS)
    return [_SCHEME.sub("", key).strip() for key in sent if key]
