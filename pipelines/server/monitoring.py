"""Observe requests and grades: metrics, warnings of failing graders, and the log lines of ``--verbose``.

Completions are untrusted text: each of their lines is marked, so that none can look like one of the server's.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tfgrpo.pipelines.server.service import GradeItem, ItemGrade
from tfgrpo.stores.telemetry.setup import Telemetry
from tfgrpo.stores.text import pluralize

Say: TypeAlias = Callable[[str], None]
"""Writes whole lines and does not raise."""
LONGEST_REASON: Final = 300
NAME: Final = "[dataserver]"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"})
_WARNING_INTERVAL_S: Final = 10.0


def metered(app: ASGIApp, telemetry: Telemetry, routes: frozenset[str]) -> ASGIApp:
    """Return the app with its answers measured.

    Paths outside ``routes`` are recorded as ``other``, so that no client can flood a metrics backend.
    """

    async def measure(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await app(scope, receive, watched)
        finally:
            path, method = scope["path"], scope["method"]
            telemetry.record(
                "request",
                method=method if method in _METHODS else "_OTHER",
                route=path if path in routes else "other",
                status=status,
                duration_s=time.perf_counter() - started,
            )

    return measure


class GradeTally:
    """Counts grades. A failing grader is reported once in ten seconds at most, not once an item."""

    def __init__(self, telemetry: Telemetry, clock: Callable[[], float]) -> None:
        """``clock`` returns monotonic seconds."""
        self._telemetry, self._clock = telemetry, clock
        self._reported_at: dict[str, float] = {}
        self._unreported: Counter[str] = Counter()

    def add(self, grades: Sequence[ItemGrade]) -> Iterator[str]:
        """Count the grades of one request, and yield the warnings that are due."""
        scored = Counter(name for grade in grades for name in grade.parts)
        failed = Counter(name for grade in grades for name in grade.errors)
        for name in scored | failed:
            self._telemetry.record("grades", grader=name, scored=scored[name], ungraded=failed[name])
        for name, count in failed.items():
            self._unreported[name] += count
            now = self._clock()
            if now - self._reported_at.get(name, float("-inf")) >= _WARNING_INTERVAL_S:
                self._reported_at[name] = now
                example = next(grade for grade in grades if name in grade.errors)
                reason = example.errors[name][:LONGEST_REASON]
                items = pluralize(self._unreported.pop(name), "item")
                yield f"{NAME} grader {name} left {items} ungraded; the last: {reason}"


def grade_lines(iteration: int, items: Sequence[GradeItem], grades: Sequence[ItemGrade]) -> Iterator[str]:
    """Yield the log lines of a request to grade: figures, each item, and the best and worst completion in full.

    The figures are those of the items with a reward.
    """
    head = f"{NAME} iteration={iteration} graded"
    if not items:
        yield f"{head} 0 completions."
        return
    scored = [(grade.reward, item) for item, grade in zip(items, grades, strict=True) if grade.reward is not None]
    rewards = [reward for reward, _ in scored]
    lost = len(items) - len(rewards)
    figures = "no rewards"
    if rewards:
        mean = sum(reward / len(rewards) for reward in rewards)  # the sum of large ones would be infinite
        figures = f"avg={mean:.3f} min={min(rewards):.3f} max={max(rewards):.3f}"
    yield f"{head} {len(items)} | {figures}{f' ungraded={lost}' if lost else ''}"
    yield from (f"  {_item_name(item)} {_grade_text(grade)}" for item, grade in zip(items, grades, strict=True))
    if scored:
        yield from _completion_lines("BEST", *max(scored, key=lambda one: one[0]))
        yield from _completion_lines("WORST", *min(scored, key=lambda one: one[0]))


def _item_name(item: GradeItem) -> str:
    return item.sample_id if item.completion_index is None else f"{item.sample_id} #{item.completion_index}"


def _grade_text(grade: ItemGrade) -> str:
    if grade.reward is None:
        return f"ungraded: {grade.reasons}"
    parts = " ".join(f"{name}={reward:.3f}" for name, reward in grade.parts.items())
    return f"reward={grade.reward:.3f} {parts}".rstrip()


def _completion_lines(title: str, reward: float, item: GradeItem) -> Iterator[str]:
    yield f"{NAME} {title} reward={reward:.3f} {_item_name(item)}"
    yield from (f"  | {line}" for line in item.completion.splitlines() or [""])
