"""Is the endpoint there, does it take the key, does it know the model? Asked once, before anything is spent.

One free request, ``GET /models``. It never asks for a completion, and an endpoint without a list is no error.
"""

from __future__ import annotations

import asyncio
import difflib
import json

import httpx

from tfgrpo.stores.errors import EndpointError, ModelReplyMalformed
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.models.endpoint import Endpoint, shown
from tfgrpo.tasks.models.refusals import read_refusal
from tfgrpo.tasks.models.transport import TRANSPORT_ERRORS, Received, exchange, open_transport, refuse_socks, untrusted

PREFLIGHT_S = 15.0


async def check_endpoint(
    endpoint: Endpoint, client: httpx.AsyncClient | None = None, *, timeout_s: float = PREFLIGHT_S
) -> tuple[str, ...]:
    """Warnings about the endpoint, none if all is well. ``EndpointError`` when no call could succeed.

    ``client`` None: one is opened for this request and closed again.
    """
    if client is None:
        async with open_transport(concurrency=1) as own:
            return await check_endpoint(endpoint, own, timeout_s=timeout_s)
    refuse_socks(endpoint.url("/models"))
    received = await _get_models(endpoint, client, timeout_s)
    status = received.status
    if status in {401, 403}:
        refusal = read_refusal(status, received.content)
        said = endpoint.excerpt(refusal.message)
        if refusal.out_of_scope:
            return (f"{endpoint.shown} lets this key list no models ({said}); the model name was not checked",)
        key = "the API key was refused" if endpoint.api_key is not None else "no API key was sent and one is needed"
        raise EndpointError.one(
            f"endpoint {endpoint.shown}",
            f"{status} from GET /models: {key}" + (f" ({said})" if said else ""),
            "an API key this endpoint takes, in OPENAI_API_KEY or the variable or Secret block that the pipeline names",
        )
    moved = received.moved_to
    if moved is not None:
        raise EndpointError.one(
            f"endpoint {endpoint.shown}",
            f"{status}: it moved to {shown(moved)}",
            "the new address as base URL, without /models",
        )
    if not received.ok:
        doubt = _doubt(endpoint) if status == 404 else ""
        return (f"{endpoint.shown} answered {status} to GET /models; the model name was not checked{doubt}",)
    listed = _listed(received.content)
    if listed is None:
        kind = "a page of HTML" if received.content.lstrip()[:1] == b"<" else "no model list that can be read"
        return (f"{endpoint.shown} sent {kind} to GET /models{_doubt(endpoint)}",)
    return tuple(_unknown(name, listed) for name in endpoint.models if not _knows(listed, name))


async def _get_models(endpoint: Endpoint, client: httpx.AsyncClient, timeout_s: float) -> Received:
    source = f"endpoint {endpoint.shown}"
    accepted = "a running OpenAI-compatible endpoint; check --base-url (OPENAI_BASE_URL) and that the server is up"
    try:
        async with asyncio.timeout(timeout_s):
            request = client.build_request("GET", endpoint.url("/models"), headers=endpoint.headers())
            return await exchange(client, request)
    except TimeoutError:
        given = f"no answer within {timeout_s:g} s"
    except TRANSPORT_ERRORS as error:
        given = f"no connection: {endpoint.excerpt(str(error)) or type(error).__name__}"
        if untrusted(error):
            accepted = "a certificate that this machine trusts; for an authority of your own set SSL_CERT_FILE"
    except ModelReplyMalformed as error:
        given = str(error)
    raise EndpointError.one(source, given, accepted)


def _doubt(endpoint: Endpoint) -> str:
    """What may be wrong with the base URL."""
    if httpx.URL(endpoint.base_url.strip()).path.strip("/"):
        return "; is the base URL right (…/v1)?"
    return f"; the base URL has no path: probably {endpoint.shown}/v1 is meant"


def _listed(raw: bytes) -> frozenset[str] | None:
    """Names in ``{"data": [{"id": …}, …]}``, or in such a list alone (Together); None for anything else."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    entries = body.get("data") if isinstance(body, dict) else body or None
    if not isinstance(entries, list):
        return None
    names = (entry.get("id") for entry in entries if isinstance(entry, dict))
    return frozenset(name for name in names if isinstance(name, str))


def _knows(listed: frozenset[str], name: str) -> bool:
    """Whether a name is listed, in the words that Ollama, Gemini, OpenRouter and LiteLLM have for one that they know."""
    spellings = {name, f"{name}:latest", f"models/{name}", name.rpartition(":")[0]}
    families = (each[:-1] for each in listed if each.endswith("/*"))
    return not spellings.isdisjoint(listed) or any(name.startswith(family) for family in families)


def _unknown(name: str, listed: frozenset[str]) -> str:
    close = difflib.get_close_matches(name, sorted(listed), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else f"; it lists {pluralize(len(listed), 'other')}"
    return f"the endpoint lists no model {name!r}{hint}"
