"""Describe one endpoint: address, key and wire options. The key is only readable through ``ApiKey.reveal``.

It is removed from texts of the user's agents, tools and rewarders where they come in, before they are journalled, recorded
or shown.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, AnyStr, NoReturn, TypeAlias, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from tfgrpo.pipelines.settings.addresses import ENV_VALUE
from tfgrpo.pipelines.settings.tree import ModelSettings
from tfgrpo.stores.errors import EndpointError
from tfgrpo.stores.json_values import FrozenDict
from tfgrpo.stores.text import replace_surrogates

Scrub: TypeAlias = Callable[[str], str]
_T = TypeVar("_T")
_MASK = "***"
_MIN_MIXED_SECRET = 6
_MIN_SECRET = 16
_MAX_ERROR_TEXT = 300
_METHODS = ("/completions", "/responses", "/embeddings")


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
    timeout_s: float = 120.0
    more_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of the settings, with the values of their variables."""
    header_secrets: tuple[ApiKey, ...] = field(default=(), repr=False)

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
