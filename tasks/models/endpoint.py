"""Which endpoint is asked, and how does it want to be asked? Address, key and wire options.

The key is in here and comes out through ``ApiKey.reveal`` alone; nothing here opens a connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn
from urllib.parse import urlsplit

import httpx

from tfgrpo.pipelines.settings.model import ModelSettings
from tfgrpo.stores.errors import EndpointError
from tfgrpo.tasks.models.base import ToolCall
from tfgrpo.tasks.models.replies import Answer
from tfgrpo.tasks.models.wire import WireOptions

_MASK = "***"
_SHORTEST_SECRET = 6
_SURELY_SECRET = 16
_MAX_ERROR_TEXT = 300
_METHODS = ("/completions", "/responses", "/embeddings")


class ApiKey:
    """A credential that no text, comparison or pickle of it gives away.

    White space around it is dropped. Pickling is refused: another process resolves the key from its own environment or
    Secret block. Raises ``EndpointError`` for a key that no HTTP header can carry.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        given: object = text
        if not isinstance(given, str):
            raise EndpointError.one("API key", _kind(given), "the key as text")
        self._text = text.strip()
        if not self._text or any(not "!" <= character <= "~" for character in self._text):
            given = f"{len(self._text)} characters, empty or some of them not printable ASCII"
            raise EndpointError.one("API key", given, "the key alone, as the vendor shows it")

    def reveal(self) -> str:
        """The credential itself, for the one header it goes into."""
        return self._text

    def scrub(self, text: str) -> str:
        """``text`` without the key.

        Placeholders that local servers are given (``EMPTY``, ``ollama``, ``1234``) are no secrets: to take such a word
        out of answers would falsify them. A key counts from 6 characters with letters and digits, or 16 of any kind.
        """
        return text.replace(self._text, _MASK) if self._text in text and self._is_secret() else text

    def _is_secret(self) -> bool:
        mixed = any(map(str.isdigit, self._text)) and any(map(str.isalpha, self._text))
        return len(self._text) >= (_SHORTEST_SECRET if mixed else _SURELY_SECRET)

    def __repr__(self) -> str:
        return f"ApiKey({_MASK})"

    def __str__(self) -> str:
        return _MASK

    def __copy__(self) -> ApiKey:
        return self

    def __deepcopy__(self, memo: object) -> ApiKey:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("an API key is not pickled: resolve it again in the other process")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible endpoint.

    Raises ``EndpointError`` for an address that cannot be one, and for a key that is no ``ApiKey``.
    """

    base_url: str
    """Root that ``/chat/completions`` is put behind; usually ends in ``/v1``. A query string is kept."""
    api_key: ApiKey | None = None
    models: tuple[str, ...] = ()
    """Models the run will ask for; the preflight looks them up."""
    wire: WireOptions = field(default_factory=WireOptions)
    timeout_s: float = 120.0
    """Seconds one attempt may take in total."""

    def __post_init__(self) -> None:
        key: object = self.api_key
        if not isinstance(key, ApiKey | None):
            raise EndpointError.one("api_key", _kind(key), "ApiKey(the key), which no text shows, or None")
        accepted = "an address like https://host/v1, without user name or password in it"
        if not _is_address(self.base_url.strip()):
            raise EndpointError.one("base URL", "text that is no http(s) address", accepted)
        if httpx.URL(self.base_url.strip()).userinfo:
            raise EndpointError.one("base URL", f"{self.shown} with credentials before the host", accepted)
        if httpx.URL(self.base_url.strip()).path.rstrip("/").endswith(_METHODS):
            raise EndpointError.one(
                "base URL", f"{self.shown}, the address of one method", f"{accepted}, only its root"
            )

    @property
    def shown(self) -> str:
        """The address for people: without user name, password and query, where secrets may hide."""
        return shown(httpx.URL(self.base_url.strip()))

    def url(self, path: str) -> httpx.URL:
        """Address of one method of the protocol, for example ``/models``."""
        base = httpx.URL(self.base_url.strip())
        return base.copy_with(path=base.path.rstrip("/") + path)

    def headers(self) -> dict[str, str]:
        """Headers of a request, with the key. Not to be logged, kept in a record or put in a message."""
        headers = {"content-type": "application/json", "accept": "application/json"}
        if self.api_key is not None:
            # Azure's addresses with a deployment in them take a key only so; its /openai/v1 takes it as everybody does.
            if "/openai/deployments/" in httpx.URL(self.base_url.strip()).path:
                headers["api-key"] = self.api_key.reveal()
            else:
                headers["authorization"] = f"Bearer {self.api_key.reveal()}"
        return headers

    def without_key(self, answer: Answer) -> Answer:
        """An answer that does not repeat the key, should the endpoint have echoed it."""
        if self.api_key is None:
            return answer
        scrub, message = self.api_key.scrub, answer.message
        calls = tuple(
            ToolCall(scrub(it.id), scrub(it.name), scrub(it.arguments), scrub(it.extra)) for it in message.tool_calls
        )
        content = None if message.content is None else scrub(message.content)
        return replace(
            answer,
            message=replace(message, content=content, tool_calls=calls, extra=scrub(message.extra)),
            model=None if answer.model is None else scrub(answer.model),
            response_id=None if answer.response_id is None else scrub(answer.response_id),
        )

    def excerpt(self, text: str) -> str:
        """Foreign text fit for a message: key taken out, white space folded, at most 300 characters."""
        # The key goes first: cutting could leave most of it standing.
        scrubbed = self.api_key.scrub(text) if self.api_key is not None else text
        query = httpx.URL(self.base_url.strip()).query.decode()
        if query:  # errors of the HTTP library show the whole address
            scrubbed = scrubbed.replace(f"?{query}", "")
        folded = " ".join(scrubbed.split())
        return folded if len(folded) <= _MAX_ERROR_TEXT else folded[: _MAX_ERROR_TEXT - 1] + "…"


def shown(url: httpx.URL) -> str:
    """An address for people: without user name, password and query, where secrets may hide."""
    port = f":{url.port}" if url.port is not None else ""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}{port}{url.path.rstrip('/')}"


def _kind(value: object) -> str:
    """What a value is, without any of it: it may be a key."""
    return "a plain text" if isinstance(value, str) else f"a value of type {type(value).__name__}"


def _is_address(text: str) -> bool:
    """Whether both parsers that will see the address take it; httpx alone passes ports and brackets that are none."""
    try:
        split, url = urlsplit(text), httpx.URL(text)
        return split.scheme in {"http", "https"} and bool(url.host) and split.port != 0
    except (ValueError, httpx.InvalidURL):
        return False


def endpoint_of(settings: ModelSettings, base_url: str, api_key: str | None, *, judges: Sequence[str] = ()) -> Endpoint:
    """The endpoint that the settings describe. ``api_key`` is already resolved; None or blank means no key is sent.

    ``judges`` are models that the settings of rewarders name beside those of ``settings``.
    """
    names = (settings.name, settings.reflection_name, *judges)
    return Endpoint(
        base_url=base_url,
        api_key=ApiKey(api_key) if api_key is not None and api_key.strip() else None,
        models=tuple(dict.fromkeys(name for name in names if name is not None)),
        wire=WireOptions(
            structured=settings.structured,
            limit_field=settings.max_tokens_field,
            send_seed=settings.send_seed,
            send_temperature=settings.send_temperature,
            send_reasoning=settings.send_reasoning,
        ),
        timeout_s=settings.timeout_s,
    )
