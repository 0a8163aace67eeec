"""How do graders run without holding up each other or their caller? Each in a lane of its own, within its time.

What one grader does, however badly, costs the items that it does it to their grade, and nobody anything else. How grades are
put together is decided in ``tfgrpo.rewarders.graders.combine``.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from tfgrpo.rewarders.graders.base import Grader, GraderInput
from tfgrpo.rewarders.graders.grades import Grade, Graded, NotGraded
from tfgrpo.rewarders.graders.lanes import Lane

__all__ = ["TIMEOUT_S", "Grade", "Graded", "GraderRunner", "NotGraded"]

TIMEOUT_S: Final = 60.0
"""Default time limit of one batch at one grader."""


class GraderRunner:
    """Runs graders off the event loop; may be used from several threads and loops at once.

    Plain graders run in daemon threads, asynchronous ones on an event loop of their own. Close it at the end; one that is
    forgotten is closed when nobody has it any more, or when the process ends.
    """

    def __init__(self, *, timeout_s: float = TIMEOUT_S, calls: int = 8, hanging: int = 4) -> None:
        """``timeout_s``: limit of a batch where none is given. ``calls``: batches at a time at one plain grader.

        ``hanging``: calls of one grader that were given up on and still run, at which it is not asked any more.
        """
        for name, value in (("timeout_s", timeout_s), ("calls", calls), ("hanging", hanging)):
            if not value > 0:
                raise ValueError(f"{name} is {value}; accepted: more than 0")
        self._timeout_s = timeout_s
        self._calls = calls
        self._hanging = hanging
        self._lock = threading.Lock()  # guards the two fields below
        self._lanes: dict[int, Lane] = {}
        self._closed = False
        self._close = weakref.finalize(self, _close_all, self._lanes)

    async def grade(
        self, name: str, grader: Grader, inputs: Sequence[GraderInput], timeout_s: float | None = None
    ) -> tuple[Grade, ...]:
        """One grade for each input, in their order, within ``timeout_s`` of the call's start. Nothing a grader does raises.

        A batch for a plain grader may have to wait for its turn before it starts. Raises ``RuntimeError`` after ``close``.
        """
        lane = self._lane(name, grader)
        return await lane.grade(inputs, self._timeout_s if timeout_s is None else timeout_s) if inputs else ()

    def hanging(self) -> Mapping[str, int]:
        """Calls that were given up on and still run, by name of the grader; only where there are any."""
        with self._lock:
            lanes = list(self._lanes.values())
        found: dict[str, int] = {}
        for lane in lanes:
            if left := lane.left_behind:
                found[lane.name] = found.get(lane.name, 0) + left
        return found

    def close(self) -> None:
        """Take no more calls, and give back threads, loops and connections. Waits for no grader that hangs."""
        with self._lock:
            self._closed = True
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lane(self, name: str, grader: Grader) -> Lane:
        with self._lock:
            if self._closed:
                raise RuntimeError("this runner is closed")
            lane = self._lanes.get(id(grader))
            if lane is None:
                # A lane holds on to its grader, so no other object can get the same identity.
                lane = self._lanes[id(grader)] = Lane(name, grader, calls=self._calls, hanging=self._hanging)
            return lane


def _close_all(lanes: dict[int, Lane]) -> None:
    while lanes:
        lanes.popitem()[1].close()
