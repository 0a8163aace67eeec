"""Use an OpenAI-compatible endpoint as a policy: one request for all completions of a state, where supported.

Log-probabilities are taken with the generation. Slots, budget, retries and the key are those of the client
(``tfgrpo.tasks.models.chat``); calls are not journalled.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, cast

import httpx

from tfgrpo.stores.batch.shapes import LogProbKind, LogProbs, RolloutUsage, Sampling, status_of
from tfgrpo.stores.canonical import derive_seed
from tfgrpo.stores.errors import (
    BudgetRefused,
    ModelAuthRefused,
    ModelCallError,
    ModelReplyMalformed,
    ModelRequestRejected,
    SettingsError,
)
from tfgrpo.stores.frozen_json import FrozenDict, Json
from tfgrpo.stores.ledger.ledger import Ledger
from tfgrpo.stores.ledger.state import Budget, Price
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.tasks.collector.logprobs import logprobs_of_choices, token_ids_of
from tfgrpo.tasks.collector.protocols import Generation, RequestPlace
from tfgrpo.tasks.models.base import ChatReply, ChatRequest, Message, TokenUsage
from tfgrpo.tasks.models.chat import Bound, ChatClient
from tfgrpo.tasks.models.endpoint import Endpoint
from tfgrpo.tasks.models.retry import FailedAttempt, RetryPolicy
from tfgrpo.tasks.models.transport import open_transport, refuse_socks
from tfgrpo.tasks.models.wire import decode_reply

_KEY: Final = CallKey(GroupKey(1, "train", "train", 0, "collect"), 0, 0, "rollout")
"""Calls of a collector are in no journal; the client passes the key on unread."""


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """Sampling options of the requests."""

    model: str
    temperature: float = 1.0
    top_p: float | None = None
    max_tokens: int = 1024
    seed: int | None = None
    """Each request of a collection gets its own seed, derived from this one, the state, the id of its group, its
    index in it and the round of ``resample``. Completions of one request share its seed."""
    logprobs: bool = True
    logprob_kind: LogProbKind = "unknown"
    """Kind of the server's values: vLLM returns ``raw`` ones unless it is started with ``--logprobs-mode``."""
    use_n: bool = True
    """Request all completions of a state at once. If an endpoint returns fewer, or refuses, the rest are requested one by
    one."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request, such as ``{"return_token_ids": true}``."""


@dataclass(frozen=True, slots=True)
class _ManyRequest(ChatRequest):
    n: int = 1
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _ManyReply(ChatReply):
    choices: tuple[ChatReply | ModelReplyMalformed, ...] = ()
    body: Mapping[str, Any] = field(default_factory=dict)


class _ManyClient(ChatClient):
    """A chat client that reads every choice of a reply."""

    def _prepare(self, request: ChatRequest) -> tuple[bytes, Bound]:
        body, _ = super()._prepare(request)
        request = cast("_ManyRequest", request)  # the policy asks for nothing else
        more = {"n": request.n, **request.fields} if request.n > 1 else dict(request.fields)
        body = json.dumps({**json.loads(body), **more}, ensure_ascii=False, separators=(",", ":")).encode()
        return body, self.bound(request.model, len(body), request.max_tokens * request.n)

    def _read(
        self, body: Mapping[str, Any], model: str, usage: TokenUsage | None, latency_s: float, nano_usd: int | None
    ) -> ChatReply | FailedAttempt:
        raw = body.get("choices")
        raw = raw if isinstance(raw, list) else []
        choices = tuple(self._choice(body, choice) for choice in raw)
        # One choice that can be read makes a reply: the others are lost alone, and what all cost is settled.
        good = next((index for index, choice in enumerate(choices) if isinstance(choice, ChatReply)), None)
        read = body if good is None else {**body, "choices": [raw[good]]}
        first = super()._read(read, model, usage, latency_s, nano_usd)
        if isinstance(first, FailedAttempt):
            return first
        known = {name: getattr(first, name) for name in ChatReply.__dataclass_fields__}
        return _ManyReply(**known, choices=choices, body=body)

    def _choice(self, body: Mapping[str, Any], choice: object) -> ChatReply | ModelReplyMalformed:
        try:
            return self.endpoint.without_key(decode_reply({**body, "choices": [choice]}))
        except ModelReplyMalformed as error:
            return ModelReplyMalformed(self.endpoint.excerpt(str(error)))


class EndpointPolicy:
    """A ``PolicyModel`` over an endpoint: ``generate(state, n)``. Close it with ``aclose``, or use ``async with``.

    States are texts (one user message) or lists of chat messages with text content. Retries, slots and the budget are
    those of a run; without a ``ledger`` only ``group_size`` and the number of states limit the spending.
    Raises ``EndpointError`` where the environment names a SOCKS proxy for the endpoint.
    """

    accepts_place: Final = True

    def __init__(
        self,
        endpoint: Endpoint,
        options: SamplingOptions,
        *,
        transport: httpx.AsyncClient | httpx.AsyncBaseTransport | None = None,
        concurrency: int = 64,
        ledger: Ledger | None = None,
        prices: Mapping[str, Price] | None = None,
        retry: RetryPolicy | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if transport is None:
            refuse_socks(endpoint.url("/chat/completions"))
        self._options = options
        self._client = _ManyClient(
            endpoint,
            open_transport(concurrency=concurrency) if transport is None else transport,
            concurrency=concurrency,
            ledger=Ledger(Budget()) if ledger is None else ledger,
            prices=prices or {},
            retry=RetryPolicy() if retry is None else retry,
            rng=random.Random() if rng is None else rng,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def generate(
        self, state: Json, n: int, *, place: RequestPlace | None = None, **options: Any
    ) -> list[Generation]:
        """Return ``n`` completions; ``options`` are fields of ``SamplingOptions`` that override the policy's own.

        ``place`` identifies the request in a collection; without it, equal states get equal seeds. Raise
        ``ModelCallError`` and ``BudgetRefused`` when the request as a whole fails, ``SettingsError`` for an unknown option
        or an invalid state.
        """
        chosen = _with(self._options, options)
        messages = messages_of(state)
        place = RequestPlace() if place is None else place
        if not chosen.use_n or n == 1:
            return await self._singly(messages, chosen, place, range(n))
        try:
            generations = (await self._ask(messages, chosen, place, n))[:n]
        except ModelRequestRejected:
            # Some endpoints refuse any ``n`` but 1. A request refused for another reason is refused here again.
            generations = await self._ask(messages, chosen, place, 1)
        # Ollama and some gateways return one choice for any ``n``.
        return [*generations, *await self._singly(messages, chosen, place, range(len(generations), n))]

    async def _singly(
        self, messages: tuple[Message, ...], options: SamplingOptions, place: RequestPlace, steps: range
    ) -> list[Generation]:
        """Send one request for each step from ``place``; when one fails, the others, which are paid for, are kept."""
        requests = (place._replace(first=place.first + step) for step in steps)
        work = (self._ask(messages, options, each, 1) for each in requests)
        rows = await asyncio.gather(*work, return_exceptions=True)
        generations: list[Generation] = []
        for row in rows:
            if not isinstance(row, BaseException):
                generations.extend(row)
            elif isinstance(row, ModelCallError | BudgetRefused) and not isinstance(row, ModelAuthRefused):
                generations.append(Generation(None, status_of(type(row)), error=str(row)))
            else:
                raise row
        return generations

    async def _ask(
        self, messages: tuple[Message, ...], options: SamplingOptions, place: RequestPlace, n: int
    ) -> list[Generation]:
        text = json.dumps([[message.role, message.content] for message in messages])
        seed = None if options.seed is None else derive_seed(options.seed, "collect", text, *place)
        fields = dict(options.extra) | ({} if options.top_p is None else {"top_p": options.top_p})
        request = _ManyRequest(
            model=options.model,
            messages=messages,
            temperature=options.temperature,
            max_tokens=options.max_tokens,
            seed=seed,
            logprobs=options.logprobs,
            n=n,
            fields=fields,
        )
        reply = cast("_ManyReply", await self._client.complete(request, _KEY))
        used = reply.usage
        logprobs = logprobs_of_choices(
            reply.body["choices"],
            kind=options.logprob_kind,
            completion_tokens=used.completion if used is not None else None,
            hidden=used is not None and bool(used.reasoning),
        )
        indexes = range(min(n, len(reply.choices)))
        return [_generation(reply, options, index, seed, logprobs[index]) for index in indexes]


def messages_of(state: Json) -> tuple[Message, ...]:
    """Return the chat messages of a state. Raise ``SettingsError`` for other than a text or messages with text content."""
    if isinstance(state, str):
        return (Message("user", state),)
    turns = state if isinstance(state, list | tuple) else ()
    good = [
        isinstance(turn, Mapping)
        and turn.get("role") in ("system", "user", "assistant")
        and isinstance(turn.get("content"), str)
        and set(turn) <= {"role", "content"}
        for turn in turns
    ]
    if not good or not all(good):
        raise SettingsError.one("state", f"{state!r:.80}", "a text, or chat messages with a role and text content")
    return tuple(Message(turn["role"], turn["content"]) for turn in turns)


def _generation(
    reply: _ManyReply, options: SamplingOptions, index: int, seed: int | None, logprob: LogProbs | None
) -> Generation:
    answer, raw = reply.choices[index], reply.body["choices"][index]
    alone = len(reply.choices) == 1
    usage = reply.usage if alone else None
    sampling = Sampling(
        model=reply.model,
        temperature=options.temperature,
        top_p=options.top_p,
        seed=seed,
        max_tokens=options.max_tokens,
        finish_reason=answer.finish_reason if isinstance(answer, ChatReply) else None,
    )
    shared = FrozenDict({} if alone else {"choices_in_request": len(reply.choices)})
    if isinstance(answer, ModelReplyMalformed):
        return Generation(None, "transport_error", sampling=sampling, error=str(answer), metadata=shared)
    text = answer.message.content
    return Generation(
        completion=text,
        status="filtered" if answer.finish_reason == "content_filter" else "parse_error" if text is None else "ok",
        logprob=logprob,
        sampling=sampling,
        usage=_usage(reply, usage, logprob.count if logprob is not None and logprob.complete else None),
        latency_s=reply.latency_s,
        error=None if text is not None else "the model called a tool, and none were offered",
        prompt_token_ids=token_ids_of(reply.body.get("prompt_token_ids") or raw.get("prompt_token_ids")),
        metadata=shared,
    )


def _usage(reply: _ManyReply, usage: TokenUsage | None, completion_tokens: int | None) -> RolloutUsage:
    """Return the usage of one choice. Of several choices the endpoint reports only the sum.

    Their tokens are known by their log-probabilities, if at all; each has an equal share of the cost, so that the
    shares add up to what was paid.
    """
    if usage is not None:
        return RolloutUsage(usage.prompt, usage.completion, usage.reasoning, reply.cost_usd)
    prompt = reply.usage.prompt if reply.usage is not None else None
    cost = None if reply.cost_usd is None else reply.cost_usd / len(reply.choices)
    return RolloutUsage(prompt_tokens=prompt, completion_tokens=completion_tokens, cost_usd=cost)


def _with(options: SamplingOptions, changes: Mapping[str, Any]) -> SamplingOptions:
    unknown = sorted(set(changes) - set(SamplingOptions.__dataclass_fields__))
    if unknown:
        accepted = ", ".join(SamplingOptions.__dataclass_fields__)
        raise SettingsError.one("generation options", ", ".join(unknown), accepted)
    return replace(options, **changes)
