"""How much may one server be asked at once? Sizes of bodies and batches, gradings at a time, requests that wait.

A request to grade waits for its turn before its body is read, so that what waits costs next to nothing. The numbers
come from the command line; what a grading does is unknown here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException

MEBIBYTE: Final = 2**20
RETRY_AFTER_S: Final = 1
"""What a client is told that comes when the queue is full."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the server accepts."""

    max_batch: int = 16_384
    """Most samples, and most items to grade, of one request."""
    max_body: int = 32 * MEBIBYTE
    """Most bytes of a request's body."""
    concurrency: int = 256
    """Requests that are graded at the same time: many, so that those for a slow grader do not hold up others."""
    max_held: int = 512 * MEBIBYTE
    """Bytes of their bodies together; a single body always has its turn."""
    queue: int = 4096
    """Requests that wait for their turn; one more is answered with 503."""
    body_s: float = 30.0
    """Most seconds that a body may take to arrive."""


class GradeTurns:
    """Lets in as many as there is room for, in order of arrival, and turns away who would wait behind too many."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._inside = 0
        self._held = 0

    @property
    def present(self) -> int:
        """Requests that wait or are being graded."""
        return self._inside + len(self._waiting)

    @asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """Wait for a turn with a body of ``size`` bytes, and hold it. Raises ``HTTPException`` 503 when too many wait."""
        await self._enter(size)
        try:
            yield
        finally:
            self._leave(size)

    async def _enter(self, size: int) -> None:
        if not self._waiting and self._fits(size):
            self._admit(size)
            return
        if len(self._waiting) >= self._limits.queue:
            told = f"{self.present} requests are waiting or being graded; come again"
            raise HTTPException(503, told, {"Retry-After": str(RETRY_AFTER_S)})
        place = size, asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place[1]
        except asyncio.CancelledError:
            if place in self._waiting:
                self._waiting.remove(place)
                self._admit_waiting()
            else:  # let in at the moment of leaving
                self._leave(size)
            raise

    def _leave(self, size: int) -> None:
        self._inside -= 1
        self._held -= size
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, place = self._waiting.popleft()
            self._admit(size)
            place.set_result(None)

    def _fits(self, size: int) -> bool:
        if self._inside == 0:
            return True
        return self._inside < self._limits.concurrency and self._held + size <= self._limits.max_held

    def _admit(self, size: int) -> None:
        self._inside += 1
        self._held += size
