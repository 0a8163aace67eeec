"""Check an endpoint before a run: by a free ``GET /models``, and when asked for by one token from each model.

The first shows whether it answers, accepts the key and lists the models; one without a list is no error. The second names
the setting for each thing that the endpoint refuses.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Final

import httpx

from tfgrpo.pipelines.settings.tree import ModelRole, ModelSettings
from tfgrpo.stores.errors import EndpointError, EndpointUnavailable, ModelReplyMalformed, ModelUnreachable
from tfgrpo.stores.json_values import json_of, mapping_of
from tfgrpo.stores.text import pluralize, quoted_names
from tfgrpo.tasks.models.base import AnswerSchema, ChatRequest, Message
from tfgrpo.tasks.models.endpoint import Endpoint, display_url
from tfgrpo.tasks.models.retry import UNAVAILABLE, hidden_status, read_refusal, vendor_hint
from tfgrpo.tasks.models.transport import (
    TRANSPORT_ERRORS,
    Received,
    exchange,
    is_certificate_error,
    open_transport,
    refuse_socks,
)
from tfgrpo.tasks.models.wire import decode_usage, encode_request

PREFLIGHT_S = 15.0
_FIRST_S: Final = 0.5
_LONGEST_S: Final = 8.0
"""Pause between two checks of an endpoint that is unavailable: doubled each time, up to this."""


_SCHEMA: Final = AnswerSchema(
    "ping", {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
)
_MESSAGES: Final = (Message("system", 'Answer with the JSON object {"ok": true}.'), Message("user", "Are you there?"))
_VALUES: Final[dict[str, Any]] = {"true": True, "false": False}
_MOST_ATTEMPTS: Final = 8
_KEY: Final = "check the key: the variable or the block that api_key names"
_LATER: Final = "the same again later, or an account with credit"
_URL: Final = "check the base URL (…/v1)"
_ADVICE: Final = {0: _URL, 200: _URL, 401: _KEY, 403: _KEY, 402: _LATER, 429: _LATER}
"""By status, where a setting of the request would not help."""
_ACCEPTED: Final = re.compile(r"(max_tokens|output limit).{0,40}\breached\b", re.IGNORECASE)
"""A reasoning model that was accepted and had no token left for an answer (OpenAI, as 400)."""


async def await_endpoint(endpoint: Endpoint, wait_s: float, waiting: Callable[[str], object]) -> tuple[str, ...]:
    """Check an endpoint as ``check_endpoint`` does, and for ``wait_s`` seconds again while it is unavailable.

    ``waiting`` is called with what it waits for before each pause, and may raise. Raises ``ModelUnreachable`` at the end.
    """
    until, pause_s = monotonic() + wait_s, _FIRST_S
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
        pause_s = min(2.0 * pause_s, _LONGEST_S)


async def check_endpoint(
    endpoint: Endpoint, client: httpx.AsyncClient | None = None, *, timeout_s: float = PREFLIGHT_S
) -> tuple[str, ...]:
    """Return warnings about the endpoint, none if all is well. Raises ``EndpointError`` when no call could succeed.

    ``client`` None: one is opened for this request and closed again.
    """
    if client is None:
        async with open_transport(concurrency=1) as own:
            return await check_endpoint(endpoint, own, timeout_s=timeout_s)
    refuse_socks(endpoint.url("/models"))
    received = await _get_models(endpoint, client, timeout_s)
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
        given = f"{status}: it moved to {endpoint.scrub(display_url(received.moved_to))}"
        raise EndpointError.one(f"endpoint {url}", given, "the new address as base URL, without /models")
    if status in UNAVAILABLE and not (refusal := read_refusal(status, received.content)).no_credit:
        given = f"{status} from GET /models: {endpoint.excerpt(refusal.message) or 'an empty body'}"
        raise EndpointUnavailable.one(f"endpoint {url}", given, _RUNNING)
    if not received.ok:
        advice = _base_url_advice(endpoint) if status == 404 else ""
        return (f"{url} answered {status} to GET /models; the model name was not checked{advice}",)
    listed = _listed(received.content)
    if listed is None:
        kind = "a page of HTML" if received.content.lstrip()[:1] == b"<" else "no model list that can be read"
        return (f"{url} sent {kind} to GET /models{_base_url_advice(endpoint)}",)
    return tuple(warning for name in endpoint.models if (warning := _unlisted(name, listed)))


_RUNNING: Final = "a running OpenAI-compatible endpoint; check --base-url (OPENAI_BASE_URL) and that the server is up"


async def _get_models(endpoint: Endpoint, client: httpx.AsyncClient, timeout_s: float) -> Received:
    kind: type[EndpointError] = EndpointUnavailable
    accepted = _RUNNING
    try:
        request = client.build_request("GET", endpoint.url("/models"), headers=endpoint.headers())
        return await exchange(client, request, timeout_s)
    except TimeoutError:
        given = f"no answer within {timeout_s:g} s"
    except TRANSPORT_ERRORS as error:
        given = f"no connection: {endpoint.excerpt(str(error)) or type(error).__name__}"
        if is_certificate_error(error):
            kind = EndpointError
            accepted = "a certificate that this machine trusts; for an authority of your own set SSL_CERT_FILE"
        elif isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
            kind = EndpointError
    except ModelReplyMalformed as error:
        kind, given = EndpointError, str(error)
    # Outside the handlers: the HTTP library's exceptions hold the request with its key.
    raise kind.one(f"endpoint {endpoint.display_url}", given, accepted)


def _base_url_advice(endpoint: Endpoint) -> str:
    if endpoint.url("").path.strip("/"):
        return "; is the base URL right (…/v1)?"
    return f"; the base URL has no path: probably {endpoint.display_url}/v1 is meant"


def _listed(raw: bytes) -> frozenset[str] | None:
    """Names in ``{"data": [{"id": …}, …]}``, or in such a list alone (Together); None for anything else."""
    body = json_of(raw)
    entries = body.get("data") if isinstance(body, dict) else body or None
    if not isinstance(entries, list):
        return None
    names = (entry.get("id") for entry in entries if isinstance(entry, dict))
    return frozenset(name for name in names if isinstance(name, str))


def _unlisted(name: str, listed: frozenset[str]) -> str:
    """Warn of a name that is listed in none of the spellings of Ollama, Gemini, OpenRouter and LiteLLM; else empty."""
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
    """One thing that an endpoint refused."""

    said: str
    """Status and words of the endpoint, without secrets."""
    setting: str = ""
    """Field of the endpoint's settings that mends it; empty where none does."""
    value: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Ping:
    """What one role of one model was answered."""

    findings: tuple[PingFinding, ...]
    attempts: int
    bound: int
    """Most prompt tokens of all attempts together; each may have cost one more token."""
    silent: bool = False
    """Whether the answer counts no tokens, so that costs are unknown."""


async def ping(endpoint: Endpoint, role: ModelRole, name: str, temperature: float, http: httpx.AsyncClient) -> Ping:
    """Ask for one token with the parameters of a role, at most eight times. Costs money.

    A refusal that a setting mends is mended for the next attempt, so that one call finds all of them.
    """
    wire, findings, bound = endpoint.wire, list[PingFinding](), 0
    schema = None if role == "actor" else _SCHEMA
    request = ChatRequest(name, _MESSAGES, temperature, 1, seed=1, answer_schema=schema)
    for attempt in range(1, _MOST_ATTEMPTS + 1):
        body = encode_request(request, wire)
        bound += len(body)
        said, answer = await _answer(replace(endpoint, wire=wire), body, http)
        if said is None:
            return Ping(tuple(findings), attempt, bound, silent=decode_usage(answer) is None)
        finding = _finding(*said, wire, endpoint)
        findings.append(finding)
        if not finding.setting:
            break
        wire = wire.model_copy(update={finding.setting: _VALUES.get(finding.value, finding.value)})
    return Ping(tuple(findings), len(findings), bound)


async def _answer(endpoint: Endpoint, body: bytes, http: httpx.AsyncClient) -> tuple[tuple[int, str] | None, dict[str, Any]]:
    request = httpx.Request("POST", endpoint.url("/chat/completions"), content=body, headers=endpoint.headers())
    try:
        received = await exchange(http, request, endpoint.timeout_s)
    except TimeoutError:
        return (0, f"no answer within {endpoint.timeout_s:g} s"), {}
    except (*TRANSPORT_ERRORS, ModelReplyMalformed) as error:
        return (0, f"{type(error).__name__}: {error}"), {}
    answer = dict(mapping_of(json_of(received.content)))
    status = hidden_status(answer) or received.status
    if 200 <= status < 300:
        return (None if answer else (status, "an answer that is no JSON object")), answer
    words = read_refusal(status, received.content).words
    return (None if status == 400 and _ACCEPTED.search(words) else (status, words)), answer


def _finding(status: int, words: str, wire: ModelSettings, endpoint: Endpoint) -> PingFinding:
    advice = _ADVICE.get(status) or vendor_hint(status, words).removeprefix("; ")
    said = f"{status or 'no connection'}: {endpoint.excerpt(words)}"
    named = re.match(r"set model\.(\w+): (\w+)", advice)
    if named is None or named[1] not in type(wire).model_fields:
        return PingFinding(said, advice=advice)
    field, value = named[1], named[2]
    if field == "structured" and wire.structured != "json_schema":
        value = "none"
    if getattr(wire, field) == _VALUES.get(value, value):
        return PingFinding(said, advice=advice)  # tried already
    return PingFinding(said, field, value, advice)
