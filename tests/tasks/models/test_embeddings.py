"""Embeddings are calls like any other: encoded and read by the protocol, priced, capped, retried, journalled."""

from __future__ import annotations

import json
import random
from typing import Any

import httpx
import pytest

from tfgrpo.stores.errors import ModelReplyMalformed
from tfgrpo.stores.ledger.ledger import Ledger
from tfgrpo.stores.ledger.state import Budget, Price
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.tasks.models.base import ChatReply, ChatRequest, Message, TokenUsage
from tfgrpo.tasks.models.chat import ChatClient
from tfgrpo.tasks.models.endpoint import Endpoint
from tfgrpo.tasks.models.retry import RetryPolicy
from tfgrpo.tasks.models.simulated.app import simulated_app
from tfgrpo.tasks.models.simulated.engine import SimulatedOptions

TEXTS = ("one text", "another")
KEY = CallKey(GroupKey(1, "train", "group", 0, "q1"), 0, 0, "judge", 0)
USAGE = {"prompt_tokens": 4, "total_tokens": 4}


def embedding(*texts: str) -> ChatRequest:
    return ChatRequest("embedder", tuple(Message("user", text) for text in texts), 0.3, 0, embeds=True)


def rows(*vectors: Any) -> list[dict[str, Any]]:
    return [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]


class Service:
    """Answers each request with the next body, the last one again and again."""

    def __init__(self, *bodies: Any) -> None:
        self.bodies, self.seen, self.ledger = [*bodies], list[httpx.Request](), Ledger(Budget())

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        body = self.bodies.pop(0) if len(self.bodies) > 1 else self.bodies[0]
        return httpx.Response(500) if body is None else httpx.Response(200, json=body)

    async def ask(self, *texts: str, budget: Budget | None = None) -> ChatReply:
        async def at_once(_: float) -> None: ...

        self.ledger = Ledger(budget or Budget())
        client = ChatClient(
            Endpoint("http://host/v1"),
            httpx.MockTransport(self),
            concurrency=2,
            ledger=self.ledger,
            prices={"embedder": Price(1000, 0, 0)},
            retry=RetryPolicy(max_retries=2),
            rng=random.Random(1),
            sleep=at_once,
        )
        return await client.complete(embedding(*(texts or TEXTS)), KEY)


async def test_texts_are_sent_and_their_vectors_are_read_in_order_priced_and_settled():
    service = Service({"data": rows([1.0, 0.0], [0.0, 1.0])[::-1], "model": "embedder-1", "usage": USAGE})
    reply = await service.ask()
    assert json.loads(reply.message.content or "") == [[1.0, 0.0], [0.0, 1.0]]
    assert (reply.usage, reply.cost_usd, reply.model) == (TokenUsage(4, 0), 4_000 / 1e9, "embedder-1")
    (request,) = service.seen
    assert request.url.path == "/v1/embeddings"
    assert json.loads(request.content) == {"model": "embedder", "input": [*TEXTS], "encoding_format": "float"}
    totals = service.ledger.totals()
    assert (totals.calls, totals.tokens, totals.nano_usd, totals.at_risk_tokens) == (1, 4, 4_000, 0)


@pytest.mark.parametrize(
    "data",
    [
        rows([1.0, 0.0]),
        rows([1.0], [1.0, 0.0]),
        rows([], []),
        rows([1.0], ["x"]),
        rows([1.0], [None]),
        [*rows([1.0]), *rows([2.0])],
        [1, 2],
        None,
    ],
)
async def test_a_reply_without_a_vector_for_each_text_is_asked_for_again_and_then_lost(data):
    service = Service({"data": data, "usage": USAGE})
    with pytest.raises(ModelReplyMalformed, match="no vector of finite numbers for each of 2 texts"):
        await service.ask()
    assert len(service.seen) == 3


async def test_the_simulated_service_embeds_words():
    transport = httpx.ASGITransport(simulated_app(SimulatedOptions()))
    async with httpx.AsyncClient(transport=transport, base_url="http://simulated/v1") as client:
        asked = {"model": "simulated", "input": ["the cat", "The  cat", "a dog"]}
        body = (await client.post("/embeddings", json=asked)).json()
        one, same, other = (row["embedding"] for row in body["data"])
        assert one == same != other
        assert sum(each * each for each in one) == pytest.approx(1.0)
        assert (await client.post("/embeddings", json={})).status_code == 400
