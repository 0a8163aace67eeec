"""Give agents that call the endpoint themselves an address of their own for every rollout.

Started on the event loop of the runtime by the first session, closed with the runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfgrpo.tasks.gateway.server import RolloutServer
    from tfgrpo.tasks.gateway.session import RolloutSession
    from tfgrpo.tasks.models.chat import ChatClient
    from tfgrpo.tasks.runtime.runtime import AttemptContext


class Gateway:
    """Way to the endpoint for agents; costs nothing until the first session."""

    def __init__(self, client: ChatClient | None = None) -> None:
        """``client``: connections, limits and ledger of the run. None: only what the journal holds is answered."""
        self._client = client
        self._server: RolloutServer | None = None
        self._starting = asyncio.Lock()

    @asynccontextmanager
    async def session(self, attempt: AttemptContext) -> AsyncIterator[RolloutSession]:
        """Open the gateway for one attempt. Later calls with its address or key are refused."""
        async with self._starting:
            if self._server is None:
                from tfgrpo.tasks.gateway.server import RolloutServer  # noqa: PLC0415 - 70 ms, and few runs need one

                server = RolloutServer(self._client)
                attempt.runtime.resources.push_async_callback(server.aclose)
                await server.open()
                self._server = server
        with self._server.session(attempt) as session:
            yield session
