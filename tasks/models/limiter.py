"""Adaptive limit on the calls in flight, first come first served.

Additive increase, multiplicative decrease, as in congestion control (Chiu and Jain 1989). The limit starts at the cap. A
call that is refused for overload (429, 503) halves it, but only if that call *started* after the last halving: calls that
were in flight then belong to the same congestion. Each served call adds ``1 / limit``: about one more call in flight per
round trip, up to the cap. The limit never falls below one.

For one event loop, so without a lock. Does not wait on behalf of ``Retry-After``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_DECREASE = 0.5


class AdaptiveLimiter:
    """At most ``cap`` calls in flight, fewer while the endpoint pushes back."""

    def __init__(self, cap: int) -> None:
        if cap < 1:
            raise ValueError(f"cap must be at least 1, got {cap}")
        self._cap = cap
        self._limit = float(cap)
        self._in_flight = 0
        self._round = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """Calls that may be in flight now."""
        return int(self._limit)

    @property
    def in_flight(self) -> int:
        """Calls in flight now."""
        return self._in_flight

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[int]:
        """Wait for permission for one call. Yields the round in which it starts, for ``pushed_back``."""
        await self._enter()
        try:
            yield self._round
        finally:
            self._leave()

    def served(self) -> None:
        """Report, before the slot is left, that the endpoint accepted a call."""
        self._limit = min(float(self._cap), self._limit + 1.0 / self._limit)
        self._admit()

    def pushed_back(self, started: int) -> None:
        """Report, before the slot is left, that the endpoint asked for fewer calls."""
        if started == self._round:
            self._limit = max(1.0, self._limit * _DECREASE)
            self._round += 1

    async def _enter(self) -> None:
        if not self._waiting and self._in_flight < self.limit:
            self._in_flight += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the slot was granted meanwhile: pass it on
                self._leave()
            raise

    def _leave(self) -> None:
        self._in_flight -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and (self._waiting[0].done() or self._in_flight < self.limit):
            turn = self._waiting.popleft()
            if not turn.done():  # cancelled waiters stay in the queue until here
                self._in_flight += 1
                turn.set_result(None)
