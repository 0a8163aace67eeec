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
from typing import Self

_DECREASE = 0.5


class Slot:
    """Permission for one call, for ``async with``; report how the call was received before leaving."""

    __slots__ = ("_limiter", "_round")

    def __init__(self, limiter: AdaptiveLimiter) -> None:
        self._limiter = limiter
        self._round = -1

    async def __aenter__(self) -> Self:
        self._round = await self._limiter._enter()  # noqa: SLF001 - the two classes are one mechanism
        return self

    async def __aexit__(self, *_: object) -> None:
        self._limiter._leave()  # noqa: SLF001

    def served(self) -> None:
        """Report that the endpoint accepted the call."""
        self._limiter._grow()  # noqa: SLF001

    def pushed_back(self) -> None:
        """Report that the endpoint asked for fewer calls."""
        self._limiter._shrink(self._round)  # noqa: SLF001


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

    def slot(self) -> Slot:
        """Return a slot, to be waited for with ``async with``."""
        return Slot(self)

    async def _enter(self) -> int:
        if self._waiting or self._in_flight >= self.limit:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():  # the slot was granted meanwhile: pass it on
                    self._leave()
                raise
        else:
            self._in_flight += 1
        return self._round

    def _leave(self) -> None:
        self._in_flight -= 1
        self._admit()

    def _grow(self) -> None:
        self._limit = min(float(self._cap), self._limit + 1.0 / self._limit)
        self._admit()

    def _shrink(self, started_in: int) -> None:
        if started_in == self._round:
            self._limit = max(1.0, self._limit * _DECREASE)
            self._round += 1

    def _admit(self) -> None:
        while self._waiting and (self._waiting[0].done() or self._in_flight < self.limit):
            turn = self._waiting.popleft()
            if not turn.done():  # cancelled waiters stay in the queue until here
                self._in_flight += 1
                turn.set_result(None)
