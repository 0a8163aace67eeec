"""Grader that sends a batch as JSON to an HTTP service, and reads the results item by item.

One time limit covers the whole call, with all retries and a slow response. Items without a usable result are not graded;
an unavailable service raises.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, Strict
from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.calling import matched
from tfgrpo.rewarders.faults import described
from tfgrpo.rewarders.options import FiniteNumber, Options, Whole, accepts, refusal
from tfgrpo.rewarders.scorer import Abstained, GraderInput, Verdict, Verdicts, field_of
from tfgrpo.stores.errors import GraderUnavailable, RewarderTimeout

if TYPE_CHECKING:
    import httpx

_CONNECT_S: Final = 15.0
_CONNECTIONS: Final = 64
_KEEPALIVE_S: Final = 4.0
"""Seconds an idle connection is kept; less than the 5 s of uvicorn, which would close it during a request."""
_WAIT_S: Final = 0.25
"""Before the second attempt; doubled before each further one."""
_MOST_RETRIES: Final = 10
_FIXED_BYTES: Final = 1 << 20
_BYTES_PER_ITEM: Final = 64 << 10
"""Longest response: a usual result has a few hundred bytes, and may have an explanation."""
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN: Final = re.compile(r"[!-~]+")
_NAME: Final = "the name of an environment variable, never the token itself"
_NO_NAME: Final = "no such name"


class HttpPool:
    """The client of each event loop, opened on first use. Several threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the clients, which loops in several threads look up
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            weakref.WeakKeyDictionary()
        )

    def __reduce__(self) -> tuple[type[HttpPool], tuple[()]]:
        return type(self), ()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], most_bytes: int) -> tuple[int, bytes]:
        """Send a request. Return status and content of the response.

        Raises ``ConnectionError`` for a failed connection, and ``GraderUnavailable`` for a response that is compressed or
        longer than ``most_bytes``, and for an invalid address.
        """
        import aiohttp  # noqa: PLC0415
        import httpx  # noqa: PLC0415

        try:
            async with self._client().stream("POST", url, content=body, headers=headers) as response:
                return response.status_code, await _content(response, most_bytes)
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
        import httpx  # noqa: PLC0415
        from httpx_aiohttp import HttpxAiohttpClient  # noqa: PLC0415

        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._clients:
                limits = httpx.Limits(
                    max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS, keepalive_expiry=_KEEPALIVE_S
                )
                timeout = httpx.Timeout(None, connect=_CONNECT_S)
                self._clients[loop] = HttpxAiohttpClient(timeout=timeout, limits=limits)
            return self._clients[loop]


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


def _address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0 or "@" in parts.netloc:
        raise ValueError
    return url


def _variable(name: str) -> str:
    if _VARIABLE.fullmatch(name) is None:
        raise refusal(_NAME, _NO_NAME)
    if _TOKEN.fullmatch(os.environ.get(name, "")) is None:
        raise refusal("a variable with printable ASCII without spaces", f"{name}, which holds no token")
    return name


Address = Annotated[
    str,
    Strict(),
    AfterValidator(_address),
    # The value is not shown: it may hold a password.
    accepts("an address like https://host/grade, without user name or password", given="no such address"),
]
Retries = Annotated[Whole, Field(ge=0, le=_MOST_RETRIES), accepts(f"a whole number from 0 to {_MOST_RETRIES}")]
TokenVariable = Annotated[str, Strict(), accepts(_NAME, given=_NO_NAME), AfterValidator(_variable)]


@dataclass(frozen=True, slots=True)
class RemoteGrader(Options):
    """A grading service at an address. Raises ``PipelineError`` with every unusable option."""

    url: Address
    timeout_s: Annotated[FiniteNumber, Field(gt=0), accepts("a finite number greater than 0")] = 60.0
    """Seconds for a batch in total, retries included."""
    retries: Retries = 2
    """Further attempts after a failed connection, 429 or 5xx."""
    token_env: TokenVariable | None = None
    """Environment variable with the bearer token; read for every call."""
    shows_unknown: ClassVar[bool] = False
    _pool: HttpPool = field(default_factory=HttpPool, init=False, compare=False, repr=False)

    async def grade_batch(self, inputs: Sequence[GraderInput], /) -> Verdicts:
        """Return one verdict on each input, in order.

        Raises ``RewarderTimeout`` without a complete response in time, ``GraderUnavailable`` when the service cannot be
        reached, refuses, or sends no results.
        """
        samples = [_sample(item) for item in inputs]
        bodies = [sample for sample in samples if isinstance(sample, bytes)]
        sent = [item for item, sample in zip(inputs, samples, strict=True) if isinstance(sample, bytes)]
        verdicts = iter(matched("remote", sent, await self._post(bodies), strict=True) if sent else ())
        return tuple(next(verdicts) if isinstance(sample, bytes) else sample for sample in samples)

    async def close(self) -> None:
        """Close the connections that are open on the running event loop."""
        await self._pool.aclose()

    async def _post(self, samples: Sequence[bytes]) -> list[Any]:
        """Return the results of the service, in its order."""
        # Joined by hand: each sample is encoded once, and one that cannot be costs only itself.
        body = b'{"samples": [' + b", ".join(samples) + b"]}"
        most_bytes = _FIXED_BYTES + len(samples) * _BYTES_PER_ITEM
        try:
            async with asyncio.timeout(self.timeout_s):
                status, content = await self._with_retries(body, most_bytes)
            return _results(status, content)
        except TimeoutError:
            raise RewarderTimeout(f"{self._address}: no whole answer within {self.timeout_s:g} s") from None
        except GraderUnavailable as error:
            raise GraderUnavailable(f"{self._address}: {error}") from None

    async def _with_retries(self, body: bytes, most_bytes: int) -> tuple[int, bytes]:
        """Return status and content of the first response that is no transient failure."""
        headers = self._headers()
        fault = ""
        for attempt in range(self.retries + 1):
            if attempt:
                await asyncio.sleep(_WAIT_S * 2 ** (attempt - 1))
            try:
                status, content = await self._pool.post(self.url, body, headers, most_bytes)
            except ConnectionError as error:
                fault = str(error)
                continue
            if status != 429 and status < 500:
                return status, content
            fault = f"it answered {status}"
        tried = f" ({self.retries + 1} attempts)" if self.retries else ""
        raise GraderUnavailable(f"{fault}{tried}")

    def _headers(self) -> Mapping[str, str]:
        headers = {"content-type": "application/json", "accept": "application/json", "accept-encoding": "identity"}
        if self.token_env is None:
            return headers
        token = os.environ.get(self.token_env, "")
        if _TOKEN.fullmatch(token) is None:
            raise GraderUnavailable(f"the variable {self.token_env} holds no token")
        return {**headers, "authorization": f"Bearer {token}"}

    @property
    def _address(self) -> str:
        """The address without its query, which may be confidential."""
        return self.url.partition("?")[0].partition("#")[0]


def _sample(item: GraderInput) -> bytes | Verdict:
    """Return the item as JSON, or the verdict on it when it has none: the record is a user's, and may contain NaN."""
    fields = {
        "sample_id": item.sample_id,
        **{name: field_of(item, name) for name in ("prompt", "system_prompt", "answer", "metadata")},
        "completion": item.completion,
        "reasoning": item.reasoning,
        "final_response": item.answer,
        "completion_tokens": item.completion_tokens,
        "completion_index": item.completion_index,
    }
    try:
        return json.dumps(fields, allow_nan=False, default=_as_dict).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return Abstained("remote", described(ValueError(f"its record cannot be sent as JSON: {error}")), broke=True)


def _as_dict(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is no JSON value")


def _results(status: int, content: bytes) -> list[Any]:
    """Return ``results`` of a response, an empty list when absent. Raises ``GraderUnavailable``."""
    if not 200 <= status < 300:
        moved = ", a redirect, which is not followed" if 300 <= status < 400 else ""
        raise GraderUnavailable(f"it answered {status}{moved}")
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise GraderUnavailable(f"its answer is no JSON: {str(error)[:100]}") from None
    results = answer.get("results", []) if isinstance(answer, dict) else None
    if not isinstance(results, list):
        raise GraderUnavailable("its answer has no list of results")
    return [result if isinstance(result, dict) else None for result in results]
