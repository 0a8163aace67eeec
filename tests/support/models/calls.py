"""Build a chat client with few connections, without budget, prices or real waits."""

import random
from datetime import UTC, datetime

from tfgrpo.stores.ledger import Budget, Ledger
from tfgrpo.tasks.models.chat import ChatClient
from tfgrpo.tasks.models.endpoint import ApiKey, Endpoint
from tfgrpo.tasks.models.retry import RetryPolicy
from tfgrpo.tasks.models.transport import open_transport

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def client(root: str, retries: int = 0, waits: list[float] | None = None) -> ChatClient:
    """Return a client of the endpoint at ``root``; its waits are appended to ``waits``, in seconds."""

    async def sleep(seconds: float) -> None:
        if waits is not None:
            waits.append(seconds)

    return ChatClient(
        Endpoint(root, ApiKey("sk-abcdef-0123456789")),
        open_transport(concurrency=2, trust_env=False),
        concurrency=2,
        ledger=Ledger(Budget()),
        prices={},
        retry=RetryPolicy(max_retries=retries),
        rng=random.Random(0),
        sleep=sleep,
        clock=lambda: NOW,
    )
