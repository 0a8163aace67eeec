"""A chat client against a test server, with everything that can be looked at afterwards."""

import random
from datetime import UTC, datetime
from typing import Any

from tfgrpo.pipelines.settings.tree import ModelSettings
from tfgrpo.stores.ledger import Budget, Ledger, Price
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.runs import CallKey
from tfgrpo.tasks.models.base import ChatReply, ChatRequest, Message
from tfgrpo.tasks.models.chat import ChatClient
from tfgrpo.tasks.models.endpoint import ApiKey, Endpoint
from tfgrpo.tasks.models.retry import RetryPolicy
from tfgrpo.tasks.models.transport import open_transport
from tfgrpo.tasks.models.wire import encode_request

SECRET = "sk-very-secret-0123456789"
KEY = CallKey(GroupKey(1, "train", "group", 0, "q1"), 0, 0, "rollout")
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
REQUEST = ChatRequest("m", (Message("user", "2+2?"),), 0.7, 64)
BOUND = len(encode_request(REQUEST, ModelSettings())) + 64


class Bench:
    """A chat client against the test server, with everything that can be looked at afterwards."""

    def __init__(self, root: str, **changes: Any) -> None:
        self.waits: list[float] = []
        self.ledger = Ledger(changes.pop("budget", Budget()))
        self.http = changes.pop("http", None) or open_transport(concurrency=8, trust_env=False)
        timeout_s = changes.pop("timeout_s", 5.0)
        self.client = ChatClient(
            Endpoint(root, ApiKey(changes.pop("key", SECRET)), timeout_s=timeout_s),
            self.http,
            concurrency=changes.pop("cap", 8),
            ledger=self.ledger,
            prices={"m": Price(1000, 2000, 100)} if changes.pop("priced", True) else {},
            retry=changes.pop("retry", RetryPolicy(max_retries=3)),
            rng=random.Random(0),
            sleep=self._sleep,
            clock=lambda: NOW,
            ends=changes.pop("ends", False),
            timer=changes.pop("timer", iter(range(10_000)).__next__),
        )
        self.limiter = self.client.limiter
        assert not changes

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        assert self.limiter._in_flight == 0  # a waiting call has no slot

    async def ask(self, request: ChatRequest = REQUEST) -> ChatReply:
        return await self.client.complete(request, KEY)
