"""Give agents that call the endpoint themselves an address of their own for every rollout.

Started on the event loop of the runtime by the first session, closed with the runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfgrpo.tasks.gateway.session import RolloutSession
    from tfgrpo.tasks.models.chat import ChatClient
    from tfgrpo.tasks.runtime.runtime import AttemptContext, Runtime


class Gateway:
    """Way to the endpoint for agents; costs nothing until the first session."""

    def __init__(self, client: ChatClient | None = None) -> None:
        """``client``: connections, limits and ledger of the run. None: only what the journal holds is answered."""
        self._client = client
        self._sessions: dict[str, RolloutSession] = {}
        self._origin = ""
        self._starting = asyncio.Lock()

    @asynccontextmanager
    async def session(self, attempt: AttemptContext) -> AsyncIterator[RolloutSession]:
        """Open the gateway for one attempt. Later calls with its address or key are refused."""
        from tfgrpo.tasks.gateway.session import RolloutSession  # noqa: PLC0415 - few runs need one

        await self._start(attempt.runtime)
        session = RolloutSession(attempt, self._origin)
        self._sessions[session.token] = session
        try:
            yield session
        finally:
            del self._sessions[session.token]
            session.end()

    async def _start(self, runtime: Runtime) -> None:
        async with self._starting:
            if not self._origin:
                from tfgrpo.tasks.gateway.server import RolloutServer  # noqa: PLC0415 - few runs need one
                from tfgrpo.tasks.gateway.upstream import Upstream  # noqa: PLC0415

                upstream = None if self._client is None else Upstream(self._client)
                server = RolloutServer(self._sessions, upstream)
                runtime.resources.push_async_callback(server.aclose)
                self._origin = await server.open()
