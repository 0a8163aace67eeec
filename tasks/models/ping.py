"""Ask an endpoint for one token, as a role would, and name the setting for each thing that it refuses.

Costs money, so it is done only when asked for. A refusal that a setting mends is mended for the next attempt, so that one
call finds all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx

from tfgrpo.pipelines.settings.model import ModelRole, ModelSettings
from tfgrpo.stores.errors import ModelReplyMalformed
from tfgrpo.stores.frozen_json import json_of, mapping_of
from tfgrpo.tasks.models.base import AnswerSchema, ChatRequest, Message
from tfgrpo.tasks.models.endpoint import Endpoint
from tfgrpo.tasks.models.retry import hidden_status, hint_of, read_refusal
from tfgrpo.tasks.models.transport import TRANSPORT_ERRORS, exchange
from tfgrpo.tasks.models.wire import decode_usage, encode_request

_SCHEMA: Final = AnswerSchema(
    "ping",
    {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False},
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


@dataclass(frozen=True, slots=True)
class Finding:
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

    findings: tuple[Finding, ...]
    attempts: int
    bound: int
    """Most prompt tokens of all attempts together; each may have cost one more token."""
    silent: bool = False
    """Whether the answer counts no tokens, so that costs are unknown."""


async def ping(endpoint: Endpoint, role: ModelRole, name: str, temperature: float, http: httpx.AsyncClient) -> Ping:
    """Ask for one token with the parameters of a role, at most eight times."""
    wire, findings, bound = endpoint.wire, list[Finding](), 0
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


async def _answer(
    endpoint: Endpoint, body: bytes, http: httpx.AsyncClient
) -> tuple[tuple[int, str] | None, dict[str, Any]]:
    """Return status and words of a refusal, or None and the answer."""
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


def _finding(status: int, words: str, wire: ModelSettings, endpoint: Endpoint) -> Finding:
    """Return what a refusal means for these settings."""
    advice = _ADVICE.get(status) or hint_of(status, words).removeprefix("; ")
    said = f"{status or 'no connection'}: {endpoint.excerpt(words)}"
    named = re.match(r"set model\.(\w+): (\w+)", advice)
    if named is None or named[1] not in type(wire).model_fields:
        return Finding(said, advice=advice)
    field, value = named[1], named[2]
    if field == "structured" and wire.structured != "json_schema":
        value = "none"
    if getattr(wire, field) == _VALUES.get(value, value):
        return Finding(said, advice=advice)  # tried already
    return Finding(said, field, value, advice)
