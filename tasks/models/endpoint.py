"""An endpoint, with its address, key and wire options, and the connections over which bytes are sent to it.

The key is only readable through ``ApiKey.reveal``. It is removed from texts of the user's agents, tools and rewarders
where they come in, before they are journalled, recorded or shown. There is one pooled ``httpx.AsyncClient`` per process
and event loop, over aiohttp, whose pool stays cheap with hundreds of calls in flight where httpx's own does not.
Retries are the caller's.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache, partial
from typing import Any, AnyStr, NamedTuple, NoReturn, TypeAlias, TypeVar
from urllib.parse import quote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp
import httpx
from httpx_aiohttp import HttpxAiohttpClient
from httpx_aiohttp.transport import AiohttpResponseStream

from tfgrpo.pipelines.settings.addresses import ENV_VALUE
from tfgrpo.pipelines.settings.tree import ModelSettings
from tfgrpo.stores.errors import EndpointError, ModelReplyMalformed
from tfgrpo.stores.frozen_json import FrozenDict
from tfgrpo.stores.text import replace_surrogates

Scrub: TypeAlias = Callable[[str], str]
_T = TypeVar("_T")
_MASK = "***"
_MIN_MIXED_SECRET = 6
_MIN_SECRET = 16
_MAX_ERROR_TEXT = 300
_METHODS = ("/completions", "/responses", "/embeddings")
CONNECT_S = 15.0
"""Seconds to establish a connection."""
KEEPALIVE_S = 4.0
"""Seconds an idle connection is kept: less than the 5 s of uvicorn (vLLM), so that calls never meet a closing server."""
MAX_REPLY_BYTES = 16 << 20
"""Most bytes of one reply. The largest real ones, with log-probabilities of every token, stay below 3 MB."""
TRANSPORT_ERRORS = (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, aiohttp.ClientError, OSError)
"""Exceptions of sending. The aiohttp transport lets some errors of its library through unmapped, and httpx parses the
address of every redirect (``InvalidURL``), followed or not."""
Take: TypeAlias = Callable[[bytes], bool]
"""Takes a chunk, without waiting. Returns whether it takes the next one at once."""
Chunks: TypeAlias = Callable[[Take], Awaitable[bool]]
"""Passes chunks on until ``Take`` stops it or the body ends. Returns whether there may be more, for the next call. Raises
what ``Take`` raises, and one of ``TRANSPORT_ERRORS``."""


class ApiKey:
    """A credential that is masked in text and cannot be pickled: another process resolves it again for itself.

    White space around it is dropped. Raises ``EndpointError`` for a key that cannot be in an HTTP header.
    """

    __slots__ = ("_forms", "_secret", "_text")

    def __init__(self, text: str) -> None:
        self._text = text.strip()
        if not self._text or any(not "!" <= character <= "~" for character in self._text):
            given = f"{len(self._text)} characters, empty or some of them not printable ASCII"
            raise EndpointError.one("API key", given, "the key alone, as the vendor shows it")
        self._forms = tuple((form, form.encode()) for form in dict.fromkeys(_forms_of(self._text)))
        # Placeholders for local servers (EMPTY, ollama, 1234) are no secrets: masking such words would falsify answers.
        mixed = any(map(str.isdigit, self._text)) and any(map(str.isalpha, self._text))
        self._secret = len(self._text) >= (_MIN_MIXED_SECRET if mixed else _MIN_SECRET)

    def reveal(self) -> str:
        """Return the credential itself, for the header of a request."""
        return self._text

    def scrub(self, text: AnyStr) -> AnyStr:
        """Return ``text`` with the key masked, if it has 6 characters with letters and digits, or 16 of any kind.

        So are its escaped forms in JSON and addresses, and its Base64, which endpoints may echo as well.
        """
        for form, raw in self._forms if self._secret else ():
            text = text.replace(form, _MASK) if isinstance(text, str) else text.replace(raw, _MASK.encode())
        return text

    def __repr__(self) -> str:
        return f"ApiKey({_MASK})"

    def __copy__(self) -> ApiKey:
        return self

    def __deepcopy__(self, memo: object) -> ApiKey:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("an API key is not pickled: resolve it again in the other process")


def _forms_of(key: str) -> Iterator[str]:
    yield from (key, quote(key, safe=""), key.replace("/", "\\/"))
    for escape in ("\\u{:04x}", "\\u{:04X}"):
        yield "".join(map(escape.format, key.encode()))
        yield "".join(each if each.isalnum() else escape.format(ord(each)) for each in key)
    for before in range(3):  # which characters encode the key depends on how many bytes are in front of it
        coded = b64encode(bytes(before) + key.encode()).decode()
        inner = coded[-(-8 * before // 6) : 8 * (before + len(key)) // 6]
        yield from (inner, inner.replace("+", "-").replace("/", "_"))


def scrubber(*secrets: ApiKey | Endpoint) -> Scrub:
    """Return the function that removes keys, those of endpoints, and lone surrogates from a text."""

    def scrub(text: str) -> str:
        for secret in secrets:
            text = secret.scrub(text)
        return replace_surrogates(text)

    return scrub


def scrubbed(value: _T, scrub: Scrub) -> _T:
    """Return a trajectory, scores or any other frozen data with every text in them scrubbed, as they may be recorded."""
    kept: Any = value
    if isinstance(value, str):
        kept = scrub(value)
    elif isinstance(value, tuple | list):
        kept = tuple(scrubbed(each, scrub) for each in value)
    elif isinstance(value, FrozenDict):
        kept = FrozenDict({scrub(key): scrubbed(each, scrub) for key, each in value.items()})
    elif isinstance(value, Mapping):  # by ids of the run's own
        kept = {key: scrubbed(each, scrub) for key, each in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        kept = replace(value, **{each.name: scrubbed(getattr(value, each.name), scrub) for each in fields(value)})
    return kept  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible endpoint. Raises ``EndpointError`` for an address that cannot be one."""

    base_url: str
    """Root of the methods, usually ending in ``/v1``. A query string is kept."""
    api_key: ApiKey | None = None
    models: tuple[str, ...] = ()
    """Models of the run, which the preflight looks up."""
    wire: ModelSettings = field(default_factory=ModelSettings)
    """Settings for how the endpoint wants its requests."""
    timeout_s: float = 120.0
    """Seconds one attempt may take in total."""
    more_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of the settings, with the values of their variables."""
    header_secrets: tuple[ApiKey, ...] = field(default=(), repr=False)
    """The secret words of those headers."""

    def __post_init__(self) -> None:
        accepted = "an address like https://host/v1, without user name or password in it"
        if not _is_address(self.base_url.strip()):
            raise EndpointError.one("base URL", "text that is no http(s) address", accepted)
        if self._root.userinfo:
            raise EndpointError.one("base URL", f"{self.display_url} with credentials before the host", accepted)
        if self._root.path.rstrip("/").endswith(_METHODS):
            given = f"{self.display_url}, the address of one method"
            raise EndpointError.one("base URL", given, f"{accepted}, only its root")

    @property
    def _root(self) -> httpx.URL:
        return httpx.URL(self.base_url.strip())

    @property
    def display_url(self) -> str:
        """The address without user name, password and query."""
        return display_url(self._root)

    def url(self, path: str) -> httpx.URL:
        """Return the address of one method of the protocol, for example ``/models``."""
        return self._root.copy_with(path=self._root.path.rstrip("/") + path)

    def headers(self) -> dict[str, str]:
        """Return the headers of a request, with the key: never to be logged, recorded or shown."""
        headers = {"content-type": "application/json", "accept": "application/json"}
        if self.api_key is not None:
            # Azure's addresses with a deployment in them take the key only in api-key; its /openai/v1 takes a bearer.
            if "/openai/deployments/" in self._root.path:
                headers["api-key"] = self.api_key.reveal()
            else:
                headers["authorization"] = f"Bearer {self.api_key.reveal()}"
        return {**headers, **self.more_headers}

    def scrub(self, text: AnyStr) -> AnyStr:
        """Return ``text`` with the key and the secret words of headers masked."""
        for secret in self.header_secrets if self.api_key is None else (self.api_key, *self.header_secrets):
            text = secret.scrub(text)
        return text

    def excerpt(self, text: str) -> str:
        """Return an endpoint's text for a message: without the key, in one line of at most 300 characters."""
        # Masked before it is cut: a cut key would not be recognised.
        scrubbed = self.scrub(text)
        query = self._root.query.decode()
        if query:  # errors of the HTTP library show the whole address
            scrubbed = scrubbed.replace(f"?{query}", "")
        folded = " ".join(scrubbed.split())
        return folded if len(folded) <= _MAX_ERROR_TEXT else folded[: _MAX_ERROR_TEXT - 1] + "…"


def display_url(url: httpx.URL) -> str:
    """Return an address for people: without user name, password and query, which may be secret."""
    port = f":{url.port}" if url.port is not None else ""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}{port}{url.path.rstrip('/')}"


def _is_address(text: str) -> bool:
    """Whether both parsers accept the address; httpx alone accepts bad ports and brackets."""
    try:
        split, url = urlsplit(text), httpx.URL(text)
        return split.scheme in {"http", "https"} and bool(url.host) and split.port != 0
    except (ValueError, httpx.InvalidURL):
        return False


def endpoint_of(settings: ModelSettings, base_url: str, api_key: str | None, models: tuple[str, ...] = ()) -> Endpoint:
    """Return the endpoint that the settings describe; without ``api_key`` (None or blank) no key is sent.

    Raises ``EndpointError`` for a header whose variable is not set.
    """
    key = ApiKey(api_key) if api_key is not None and api_key.strip() else None
    return Endpoint(base_url, key, models, settings, settings.timeout_s, *filled_headers(settings.headers))


def filled_headers(given: Mapping[str, str]) -> tuple[dict[str, str], tuple[ApiKey, ...]]:
    """Return headers with the values of their variables, and the secret words among these. Raise ``EndpointError``."""
    headers, secrets = dict(given), list[ApiKey]()
    for name, text in given.items():
        if not text.startswith(ENV_VALUE):
            continue
        variable = text.removeprefix(ENV_VALUE)
        headers[name] = value = os.environ.get(variable, "").strip()
        if not value or not value.isascii() or not value.isprintable():
            fault = f"{variable}, which is not set" if not value else f"{variable}, whose value is not printable ASCII"
            raise EndpointError.one(f"header {name}", fault, "the variable with the header's value in the environment")
        secrets += map(ApiKey, value.split()[-1:])
    return headers, tuple(secrets)


class Received(NamedTuple):
    """A reply, read to its end."""

    url: httpx.URL
    """Address of the request."""
    status: int
    headers: Mapping[str, str]
    """With case-insensitive names."""
    content: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

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

    Raises ``TimeoutError``, one of ``TRANSPORT_ERRORS``, or ``ModelReplyMalformed`` for a reply longer than ``max_bytes``,
    whose connection is dropped.
    """
    async with asyncio.timeout(limit_s):
        response = await client.send(request, stream=True)
        try:
            content = await read_whole(response, max_bytes)
        finally:
            await close(response)
    return Received(request.url, response.status_code, response.headers, content)


async def close(response: httpx.Response) -> None:
    """Close a reply. At its end the HTTP library has let go of it, and going through all layers would change nothing."""
    reply = _plain_reply(response)
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
    """Return the body without its content encoding. Most have none and can bypass httpx's decoders."""
    reply, stream = _plain_reply(response), response.stream
    if reply is not None:
        return reply.content.iter_any()
    if "content-encoding" in response.headers or not isinstance(stream, httpx.AsyncByteStream):
        return response.aiter_bytes()
    return aiter(stream)


def _plain_reply(response: httpx.Response) -> aiohttp.ClientResponse | None:
    """Return the reply of the HTTP library below if its body has no content encoding; None for other transports."""
    stream = response.stream
    if "content-encoding" in response.headers or not isinstance(stream, AiohttpResponseStream):
        return None
    return stream._aiohttp_response  # noqa: SLF001 - several frames fewer for each chunk


def open_transport(
    *, concurrency: int = 64, app: Callable[..., Any] | None = None, trust_env: bool = True
) -> httpx.AsyncClient:
    """Return the client for all calls of this process; close it with ``aclose``.

    ``concurrency``: connections for calls in flight at once. ``app``: an ASGI application to call in process instead of
    the network. ``trust_env``: heed proxy and certificate variables of the environment.
    """
    if app is not None:
        # An exception of the application becomes a 500, or half an answer, as of a real server.
        return client_over(httpx.ASGITransport(app=app, raise_app_exceptions=False))
    return _Client(
        verify=_certificates(trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")),
        timeout=httpx.Timeout(None, connect=CONNECT_S),
        limits=httpx.Limits(
            max_connections=concurrency + 4,  # the preflight and a late close must not wait
            max_keepalive_connections=concurrency + 4,
            keepalive_expiry=KEEPALIVE_S,
        ),
        trust_env=trust_env,
    )


@cache
def _certificates(trust_env: bool, _file: str | None, _directory: str | None) -> ssl.SSLContext:
    """Return the certificates that this process trusts, read once for what the environment names: that takes 20 ms."""
    return httpx.create_ssl_context(trust_env=trust_env)


def refuse_socks(url: httpx.URL) -> None:
    """Raise ``EndpointError`` if the environment names a proxy for ``url`` that is no HTTP proxy.

    aiohttp would send it plain HTTP all the same, with the key in it.
    """
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


def never_sent(error: BaseException) -> bool:
    """Whether an error means that no connection was made, so that no byte of the request was sent."""
    # The aiohttp transport maps refused connections and dropped ones alike to httpx.ConnectTimeout: the cause decides.
    cause = error.__cause__
    if isinstance(cause, aiohttp.ClientError):
        return isinstance(
            cause, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.ClientHttpProxyError
        )
    return isinstance(
        error,
        httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError | httpx.UnsupportedProtocol,
    )


def chunks_of(response: httpx.Response) -> Chunks:
    """Return the body of a reply, without its content encoding, in the callback of the connection that receives it.

    A task that is woken for each chunk costs another turn of the event loop, and with it a sixth of what it takes to pass
    one on. Replies of other transports, and encoded ones, are iterated.
    """
    reply = _plain_reply(response)
    return partial(_iterated, _decoded_bytes(response)) if reply is None else partial(_arriving, reply)


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
