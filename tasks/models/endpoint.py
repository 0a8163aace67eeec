"""Describe one endpoint: address, key and wire options; check it before a run. Only ``ApiKey.reveal`` shows the key.

By a free ``GET /models``, which shows whether it answers, accepts the key and lists the models, and on request by one token
from each model, which names the setting for each thing that it refuses. The key is removed from texts of the user's agents,
tools and rewarders where they come in, before they are journalled, recorded or shown.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from time import monotonic
from typing import Any, AnyStr, Final, NoReturn, TypeAlias, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from tfgrpo.pipelines.settings.addresses import ENV_VALUE
from tfgrpo.pipelines.settings.tree import ModelRole, ModelSettings
from tfgrpo.stores.errors import EndpointError, EndpointUnavailable, ModelReplyMalformed, ModelUnreachable
from tfgrpo.stores.json_values import FrozenDict, json_of, mapping_of
from tfgrpo.stores.text import pluralize, quoted_names, replace_surrogates
from tfgrpo.tasks.models import transport
from tfgrpo.tasks.models.base import AnswerSchema, ChatRequest, Message
from tfgrpo.tasks.models.retry import UNAVAILABLE, hidden_status, read_refusal, vendor_hint
from tfgrpo.tasks.models.wire import decode_usage, encode_request

Scrub: TypeAlias = Callable[[str], str]
_T = TypeVar("_T")
_MASK = "***"
_MAX_ERROR_TEXT = 300


class ApiKey:
    """A credential that is masked in text and cannot be pickled: another process resolves it again for itself.

    White space around it is dropped. Raises ``EndpointError`` for a key that cannot be in an HTTP header.
    """

    __slots__ = ("_forms", "_secret", "_text")

    def __init__(self, text: str) -> None:
        self._text = text.strip()
        if not self._text or any(not "!" <= character <= "~" for character in self._text):
            fault = f"{len(self._text)} characters, empty or some of them not printable ASCII"
            raise EndpointError.one("API key", fault, "the key alone, as the vendor shows it")
        self._forms = tuple((form, form.encode()) for form in dict.fromkeys(_forms_of(self._text)))
        # Placeholders for local servers (EMPTY, ollama, 1234) are no secrets: masking such words would falsify answers.
        mixed = any(map(str.isdigit, self._text)) and any(map(str.isalpha, self._text))
        self._secret = len(self._text) >= (6 if mixed else 16)

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
    # Which characters of Base64 encode the key depends on how many bytes are in front of it.
    for before in range(3):
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
    elif isinstance(value, Mapping):
        # Its keys are ids of the run's own.
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
    wire: ModelSettings = field(default_factory=ModelSettings)
    timeout_s: float = 120.0
    more_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    header_secrets: tuple[ApiKey, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        accepted = "an address like https://host/v1, without user name or password in it"
        # By both parsers: httpx alone accepts bad ports and brackets.
        try:
            split, url = urlsplit(self.base_url.strip()), self._root
            is_address = split.scheme in {"http", "https"} and bool(url.host) and split.port != 0
        except (ValueError, httpx.InvalidURL):
            is_address = False
        if not is_address:
            raise EndpointError.one("base URL", "text that is no http(s) address", accepted)
        if self._root.userinfo:
            raise EndpointError.one("base URL", f"{self.display_url} with credentials before the host", accepted)
        if self._root.path.rstrip("/").endswith(("/completions", "/responses", "/embeddings")):
            raise EndpointError.one("base URL", f"{self.display_url}, the address of one method", f"{accepted}, only its root")

    @property
    def _root(self) -> httpx.URL:
        return httpx.URL(self.base_url.strip())

    @property
    def display_url(self) -> str:
        """The address without user name, password and query."""
        return display_url(self._root)

    @property
    def advice(self) -> str:
        """What may be wrong with the address, to append to a message."""
        if self._root.path.strip("/"):
            return "; is the base URL right (…/v1)?"
        return f"; the base URL has no path: probably {self.display_url}/v1 is meant"

    def url(self, path: str) -> httpx.URL:
        """Return the address of one method of the protocol, for example ``/models``."""
        return self._root.copy_with(path=self._root.path.rstrip("/") + path)

    def headers(self) -> dict[str, str]:
        """Return the headers of a request, with the key: never to be logged, recorded or shown."""
        headers = {"content-type": "application/json", "accept": "application/json", **transport.ACCEPTED}
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
        masked = self.scrub(text)
        # Errors of the HTTP library show the whole address.
        if query := self._root.query.decode():
            masked = masked.replace(f"?{query}", "")
        folded = " ".join(masked.split())
        return folded if len(folded) <= _MAX_ERROR_TEXT else folded[: _MAX_ERROR_TEXT - 1] + "…"


def display_url(url: httpx.URL) -> str:
    """Return an address for people: without user name, password and query, which may be secret."""
    port = f":{url.port}" if url.port is not None else ""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}{port}{url.path.rstrip('/')}"


def endpoint_of(settings: ModelSettings, base_url: str, api_key: str | None, models: tuple[str, ...] = ()) -> Endpoint:
    """Return the endpoint that the settings describe. Raises ``EndpointError`` for a header whose variable is not set."""
    key = ApiKey(api_key) if api_key is not None and api_key.strip() else None
    return Endpoint(base_url, key, models, settings, settings.timeout_s, *filled_headers(settings.headers))


def filled_headers(settings: Mapping[str, str]) -> tuple[dict[str, str], tuple[ApiKey, ...]]:
    """Return headers with the values of their variables, and the secret words among these. Raise ``EndpointError``."""
    headers, secrets = dict(settings), list[ApiKey]()
    for name, text in settings.items():
        if not text.startswith(ENV_VALUE):
            continue
        variable = text.removeprefix(ENV_VALUE)
        headers[name] = value = os.environ.get(variable, "").strip()
        if not value or not value.isascii() or not value.isprintable():
            fault = f"{variable}, which is not set" if not value else f"{variable}, whose value is not printable ASCII"
            raise EndpointError.one(f"header {name}", fault, "the variable with the header's value in the environment")
        # The last word: the first may be that of the scheme, as in "Bearer …".
        secrets += map(ApiKey, value.split()[-1:])
    return headers, tuple(secrets)


PREFLIGHT_S = 15.0
_RUNNING: Final = "a running OpenAI-compatible endpoint; check --base-url (OPENAI_BASE_URL) and that the server is up"
_SCHEMA: Final = AnswerSchema(
    "ping", {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
)
_MESSAGES: Final = (Message("system", 'Answer with the JSON object {"ok": true}.'), Message("user", "Are you there?"))
_VALUES: Final[dict[str, Any]] = {"true": True, "false": False}
_KEY: Final = "check the key: the variable or the block that api_key names"
_LATER: Final = "the same again later, or an account with credit"
_URL: Final = "check the base URL (…/v1)"
# By status, where a setting of the request would not help.
_ADVICE: Final = {0: _URL, 200: _URL, 401: _KEY, 403: _KEY, 402: _LATER, 429: _LATER}
# Of a reasoning model that was accepted and had no token left for an answer (OpenAI, as 400).
_ACCEPTED: Final = re.compile(r"(max_tokens|output limit).{0,40}\breached\b", re.IGNORECASE)


async def await_endpoint(endpoint: Endpoint, wait_s: float, waiting: Callable[[str], object]) -> tuple[str, ...]:
    """Check an endpoint as ``check_endpoint`` does, and for ``wait_s`` seconds again while it is unavailable.

    ``waiting`` is called with what it waits for before each pause, and may raise. Raises ``ModelUnreachable`` at the end.
    """
    until, pause_s = monotonic() + wait_s, 0.5
    while True:
        try:
            return await check_endpoint(endpoint, timeout_s=min(PREFLIGHT_S, max(1.0, until - monotonic())))
        except EndpointUnavailable as error:
            (problem,) = error.problems
        if (left := until - monotonic()) <= 0.0:
            raise ModelUnreachable(
                f"{problem.source} was unavailable for {wait_s:g} s: {problem.given}; accepted: {problem.accepted}"
            )
        waiting(f"waiting for {problem.source}, at most {wait_s:g} s: {problem.given}")
        await asyncio.sleep(min(pause_s, left))
        pause_s = min(2.0 * pause_s, 8.0)


async def check_endpoint(endpoint: Endpoint, *, timeout_s: float = PREFLIGHT_S) -> tuple[str, ...]:
    """Return warnings about the endpoint, none if all is well. Raises ``EndpointError`` when no call could succeed."""
    transport.refuse_socks(endpoint.url("/models"))
    received = await _get_models(endpoint, timeout_s)
    status, url = received.status, endpoint.display_url
    if status in {401, 403}:
        refusal = read_refusal(status, received.content)
        reason = endpoint.excerpt(refusal.message)
        if refusal.says("out_of_scope"):
            return (f"{url} lets this key list no models ({reason}); the model name was not checked",)
        key = "the API key was refused" if endpoint.api_key is not None else "no API key was sent and one is needed"
        raise EndpointError.one(
            f"endpoint {url}",
            f"{status} from GET /models: {key}" + (f" ({reason})" if reason else ""),
            "an API key this endpoint takes, in OPENAI_API_KEY or the variable or Secret block that the pipeline names",
        )
    if received.moved_to is not None:
        moved = f"{status}: it moved to {endpoint.scrub(display_url(received.moved_to))}"
        raise EndpointError.one(f"endpoint {url}", moved, "the new address as base URL, without /models")
    if status in UNAVAILABLE and not (refusal := read_refusal(status, received.content)).no_credit:
        fault = f"{status} from GET /models: {endpoint.excerpt(refusal.message) or 'an empty body'}"
        raise EndpointUnavailable.one(f"endpoint {url}", fault, _RUNNING)
    if not received.ok:
        advice = endpoint.advice if status == 404 else ""
        return (f"{url} answered {status} to GET /models; the model name was not checked{advice}",)
    listed = _listed(received.content)
    if listed is None:
        kind = "a page of HTML" if received.is_page else "no model list that can be read"
        return (f"{url} sent {kind} to GET /models{endpoint.advice}",)
    return tuple(warning for name in endpoint.models if (warning := _unlisted(name, listed)))


async def _get_models(endpoint: Endpoint, timeout_s: float) -> transport.Received:
    kind: type[EndpointError] = EndpointUnavailable
    accepted = _RUNNING
    try:
        async with transport.open_transport(concurrency=1) as client:
            request = client.build_request("GET", endpoint.url("/models"), headers=endpoint.headers())
            return await transport.exchange(client, request, timeout_s)
    except TimeoutError:
        fault = f"no answer within {timeout_s:g} s"
    except transport.TRANSPORT_ERRORS as error:
        fault = f"no connection: {endpoint.excerpt(transport.words_of(error)) or type(error).__name__}"
        if transport.is_certificate_error(error):
            kind = EndpointError
            accepted = "a certificate that this machine trusts; for an authority of your own set SSL_CERT_FILE"
        elif isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
            kind = EndpointError
    except ModelReplyMalformed as error:
        kind, fault = EndpointError, str(error)
    # Outside the handlers: the HTTP library's exceptions hold the request with its key.
    raise kind.one(f"endpoint {endpoint.display_url}", fault, accepted)


def _listed(raw: bytes) -> frozenset[str] | None:
    body = json_of(raw)
    # Together sends the list alone.
    entries = body.get("data") if isinstance(body, dict) else body or None
    if not isinstance(entries, list):
        return None
    names = (entry.get("id") for entry in entries if isinstance(entry, dict))
    return frozenset(name for name in names if isinstance(name, str))


def _unlisted(name: str, listed: frozenset[str]) -> str:
    # As Ollama, Gemini and OpenRouter spell it; LiteLLM lists families.
    spellings = {name, f"{name}:latest", f"models/{name}", name.rpartition(":")[0]}
    families = (each[:-1] for each in listed if each.endswith("/*"))
    if not spellings.isdisjoint(listed) or any(name.startswith(family) for family in families):
        return ""
    close = difflib.get_close_matches(name, sorted(listed), n=1)
    others = quoted_names(sorted(listed)) if 0 < len(listed) <= 3 else pluralize(len(listed), "other")
    hint = f"; did you mean {close[0]!r}?" if close else f"; it lists {others}"
    return f"the endpoint lists no model {name!r}{hint}"


@dataclass(frozen=True, slots=True)
class PingFinding:
    """One thing that an endpoint refused: its status and words, without secrets, and the setting that mends it if any."""

    said: str
    setting: str = ""
    value: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Ping:
    """What one role of one model was answered."""

    findings: tuple[PingFinding, ...]
    attempts: int
    bound: int
    """Most prompt tokens of all attempts together; each may have cost one more token."""
    counted: int | None = None
    """Tokens of the answer, by the endpoint; None where it counts none, so that costs are unknown."""


async def ping(endpoint: Endpoint, role: ModelRole, name: str, temperature: float, http: httpx.AsyncClient) -> Ping:
    """Ask for one token with the parameters of a role, at most eight times: what a setting mends is mended. Costs money."""
    wire, findings, bound = endpoint.wire, list[PingFinding](), 0
    schema = None if role == "actor" else _SCHEMA
    request = ChatRequest(name, _MESSAGES, temperature, 1, seed=1, answer_schema=schema)
    for attempt in range(1, 9):
        body = encode_request(request, wire)
        bound += len(body)
        refusal, answer = await _answer(replace(endpoint, wire=wire), body, http)
        if refusal is None:
            usage = decode_usage(answer)
            return Ping(tuple(findings), attempt, bound, None if usage is None else usage.total)
        finding = _finding(*refusal, wire, endpoint)
        findings.append(finding)
        if not finding.setting:
            break
        wire = wire.model_copy(update={finding.setting: _VALUES.get(finding.value, finding.value)})
    return Ping(tuple(findings), len(findings), bound)


async def _answer(endpoint: Endpoint, body: bytes, http: httpx.AsyncClient) -> tuple[tuple[int, str] | None, dict[str, Any]]:
    request = httpx.Request("POST", endpoint.url("/chat/completions"), content=body, headers=endpoint.headers())
    try:
        received = await transport.exchange(http, request, endpoint.timeout_s)
    except TimeoutError:
        return (0, f"no answer within {endpoint.timeout_s:g} s"), {}
    except (*transport.TRANSPORT_ERRORS, ModelReplyMalformed) as error:
        return (0, f"{type(error).__name__}: {transport.words_of(error)}"), {}
    answer = dict(mapping_of(json_of(received.content)))
    status = hidden_status(answer) or received.status
    if 200 <= status < 300:
        return (None if answer else (status, "an answer that is no JSON object")), answer
    words = read_refusal(status, received.content).words
    return (None if status == 400 and _ACCEPTED.search(words) else (status, words)), answer


def _finding(status: int, words: str, wire: ModelSettings, endpoint: Endpoint) -> PingFinding:
    advice = _ADVICE.get(status) or vendor_hint(status, words).removeprefix("; ")
    excerpt = f"{status or 'no connection'}: {endpoint.excerpt(words)}"
    named = re.match(r"set model\.(\w+): (\w+)", advice)
    if named is None or named[1] not in type(wire).model_fields:
        return PingFinding(excerpt, advice=advice)
    field, value = named[1], named[2]
    if field == "structured" and wire.structured != "json_schema":
        value = "none"
    # Advice that was followed already mends nothing.
    if getattr(wire, field) == _VALUES.get(value, value):
        return PingFinding(excerpt, advice=advice)
    return PingFinding(excerpt, field, value, advice)
