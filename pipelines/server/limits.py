"""Bound what one server is asked at once: sizes of bodies and batches, gradings at a time, requests that wait.

Bytes of bodies count from when they arrive until their request is answered; what a request announces costs nothing. The
numbers come from the command line; what a grading does is unknown here.
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
"""What a client is told that is to come again."""


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
    """Bytes of bodies that have arrived, together. Beyond it no more are read; a single body is always read to its end."""
    queue: int = 4096
    """Requests that wait for their turn; one more is answered with 503."""
    body_s: float = 30.0
    """Most seconds that a body may take to arrive."""
    max_lost_share: float = 1.0
    """Of a request's items, those that are ungraded because a grader failed; beyond it the answer is 503."""


class GradeTurns:
    """Holds the bodies of requests to grade, and lets so many of them be graded at a time, in order of arrival."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: deque[tuple[Place, asyncio.Future[None]]] = deque()
        self._inside = 0
        self._held = 0
        self._receiving: dict[Place, None] = {}
        self._changed = asyncio.Event()

    @property
    def present(self) -> int:
        """Requests that wait or are being graded."""
        return self._inside + len(self._waiting)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[Place]:
        """The place of one request, whose body is about to arrive."""
        place = Place(self)
        self._receiving[place] = None
        try:
            yield place
        finally:
            self._receiving.pop(place, None)
            self._held -= place.size
            self._inside -= place.inside
            self._admit_waiting()
            self._tell()

    def full(self, place: Place) -> bool:
        """Whether no more of this body may be read now.

        Once only bodies that still arrive are held, the first of them goes on: otherwise all would wait for each other.
        """
        if self._held <= self._limits.max_held:
            return False
        first = next(iter(self._receiving), None) is place
        return not first or self._held > sum(each.size for each in self._receiving)

    async def change(self) -> None:
        """Wait until something has been given back."""
        await self._changed.wait()

    def add(self, place: Place, size: int) -> None:
        """Count bytes that have arrived."""
        place.size += size
        self._held += size

    async def enter(self, place: Place) -> None:
        """Wait for a turn with a whole body. Raises ``HTTPException`` 503 when too many wait."""
        self._receiving.pop(place, None)
        self._tell()
        if len(self._waiting) >= self._limits.queue and self._inside >= self._limits.concurrency:
            told = f"{self.present} requests are waiting or being graded; come again"
            raise HTTPException(503, told, {"Retry-After": str(RETRY_AFTER_S)})
        entry = place, asyncio.get_running_loop().create_future()
        self._waiting.append(entry)
        self._admit_waiting()
        try:
            await entry[1]
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
            raise

    def _admit_waiting(self) -> None:
        while self._waiting and self._inside < self._limits.concurrency:
            place, turn = self._waiting.popleft()
            if not turn.cancelled():
                place.inside = True
                self._inside += 1
                turn.set_result(None)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Place:
    """What one request holds."""

    def __init__(self, turns: GradeTurns) -> None:
        self.turns = turns
        self.size = 0
        """Bytes of its body that have arrived."""
        self.inside = False
        """Whether it has its turn."""
