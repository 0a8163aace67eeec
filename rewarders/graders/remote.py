"""Grader that sends a batch to an HTTP service, in one time limit for all retries, and reads the results item by item."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, Strict
from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.calling import described, matched
from tfgrpo.rewarders.options import FiniteNumber, Options, Whole, accepts, refusal
from tfgrpo.rewarders.scorer import Abstained, GraderInput, Verdict, Verdicts, field_of
from tfgrpo.stores.errors import GraderUnavailable, RewarderTimeout

if TYPE_CHECKING:
    import aiohttp

_CONNECT_S: Final = 15.0
# Before the second attempt; doubled before each further one
_WAIT_S: Final = 0.25
_MOST_RETRIES: Final = 10
_FIXED_BYTES: Final = 1 << 20
# Longest response: a usual result has a few hundred bytes, and may have an explanation
_BYTES_PER_ITEM: Final = 64 << 10
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN: Final = re.compile(r"[!-~]+")
_NAME: Final = "the name of an environment variable, never the token itself"
_NO_NAME: Final = "no such name"


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

    async def grade_batch(self, inputs: Sequence[GraderInput], /) -> Verdicts:
        """Return one verdict on each input, in order. Raises ``RewarderTimeout``, ``GraderUnavailable`` without an answer."""
        samples = [_sample(item) for item in inputs]
        sent = {item: sample for item, sample in enumerate(samples) if isinstance(sample, bytes)}
        if not sent:
            return tuple(sample for sample in samples if not isinstance(sample, bytes))
        # Joined by hand: each sample is encoded once, and one that cannot be costs only itself.
        body = b'{"samples": [' + b", ".join(sent.values()) + b"]}"
        address = re.split("[?#]", self.url)[0]  # the rest may be secret
        try:
            async with asyncio.timeout(self.timeout_s):
                status, content = await self._with_retries(body, _FIXED_BYTES + len(sent) * _BYTES_PER_ITEM)
            verdicts = iter(matched("remote", [inputs[item] for item in sent], _results(status, content), strict=True))
        except TimeoutError:
            raise RewarderTimeout(f"{address}: no whole answer within {self.timeout_s:g} s") from None
        except GraderUnavailable as error:
            raise GraderUnavailable(f"{address}: {error}") from None
        return tuple(next(verdicts) if isinstance(sample, bytes) else sample for sample in samples)

    async def _with_retries(self, body: bytes, most_bytes: int) -> tuple[int, bytes]:
        import aiohttp  # noqa: PLC0415 - 0.1 s that a mix without such a grader saves

        headers = {"content-type": "application/json", "accept": "application/json", "accept-encoding": "identity"}
        if self.token_env is not None:
            token = os.environ.get(self.token_env, "")
            if _TOKEN.fullmatch(token) is None:
                raise GraderUnavailable(f"the variable {self.token_env} holds no token")
            headers["authorization"] = f"Bearer {token}"
        fault, timeout = "", aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
        # A session for each batch: one that is kept belongs to an event loop, and nothing tells when that ends.
        async with aiohttp.ClientSession(auto_decompress=False, trust_env=True, timeout=timeout) as session:
            for attempt in range(self.retries + 1):
                if attempt:
                    await asyncio.sleep(_WAIT_S * 2 ** (attempt - 1))
                try:
                    async with session.post(self.url, data=body, headers=headers, allow_redirects=False) as response:
                        if response.status != 429 and response.status < 500:
                            return response.status, await _content(response, most_bytes)
                        fault = f"it answered {response.status}"
                except aiohttp.InvalidURL as error:
                    raise GraderUnavailable(f"no usable address: {error}") from None
                except (aiohttp.ClientError, OSError) as error:
                    fault = f"{type(error).__name__} {error}".strip()
        tried = f" ({self.retries + 1} attempts)" if self.retries else ""
        raise GraderUnavailable(f"{fault}{tried}")


async def _content(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    # A compressed response is refused: a small one may expand without bound.
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding not in {"", "identity"}:
        raise GraderUnavailable(f"its answer is in the encoding {coding[:40]!r}, which was not asked for")
    parts = bytearray()
    async for part in response.content.iter_any():
        parts += part
        if len(parts) > most_bytes:
            raise GraderUnavailable(f"its answer has more than {most_bytes} bytes; the rest was not read")
    return bytes(parts)


def _sample(item: GraderInput) -> bytes | Verdict:
    fields = {
        "sample_id": item.sample_id,
        **{name: field_of(item, name) for name in ("prompt", "system_prompt", "answer", "metadata")},
        "completion": item.completion,
        "reasoning": item.reasoning,
        "final_response": item.answer,
        "completion_tokens": item.completion_tokens,
        "completion_index": item.completion_index,
    }
    # The record is a user's, and may contain NaN.
    try:
        return json.dumps(fields, allow_nan=False, default=_as_dict).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return Abstained("remote", described(ValueError(f"its record cannot be sent as JSON: {error}")), broke=True)


def _as_dict(value: object) -> dict[Any, Any]:
    # A record may hold mappings that are no dictionaries. ``dict`` alone would also take a set of pairs, or an array.
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is no JSON value")


def _results(status: int, content: bytes) -> list[Any]:
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
