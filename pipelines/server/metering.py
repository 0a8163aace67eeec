"""How long do requests take, and who keeps failing? Metrics of every request, and failing graders said now and then.

It changes no reply.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tfgrpo.pipelines.server.request_log import NAME, reasons
from tfgrpo.rewarders.graders.combine import ItemGrade
from tfgrpo.stores.telemetry.setup import Telemetry
from tfgrpo.stores.text import pluralize

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"})
_QUIET_S: Final = 10.0
_LONGEST: Final = 300


class RequestMeter:
    """An ASGI app in front of another that measures its answers."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry, routes: frozenset[str]) -> None:
        """Paths outside ``routes`` are all ``other``, so that no client can flood a metrics backend."""
        self._app, self._telemetry, self._routes = app, telemetry, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, and measure."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            path, method = scope["path"], scope["method"]
            self._telemetry.record_request(
                method=method if method in _METHODS else "_OTHER",
                route=path if path in self._routes else "other",
                status=status,
                duration_s=time.perf_counter() - began,
            )


class GradeTally:
    """Counts what the graders did. One that fails is said once in ten seconds at most, not once an item."""

    def __init__(self, telemetry: Telemetry, clock: Callable[[], float]) -> None:
        """``clock`` gives seconds from any origin and never goes back."""
        self._telemetry, self._clock = telemetry, clock
        self._said_at: dict[str, float] = {}
        self._unsaid: Counter[str] = Counter()
        self.graded = 0
        """Items with a reward, since the server started."""
        self.ungraded = 0

    def add(self, grades: Sequence[ItemGrade]) -> Iterator[str]:
        """Count the grades of one request; gives the lines to be said about failures, if any are due."""
        scored = Counter(name for grade in grades for name in grade.parts)
        failed = Counter(name for grade in grades for name in grade.errors)
        lost = sum(grade.reward is None for grade in grades)
        self.graded += len(grades) - lost
        self.ungraded += lost
        for name in scored | failed:
            self._telemetry.record_grades(grader=name, scored=scored[name], ungraded=failed[name])
        for name, count in failed.items():
            yield from self._due(name, count, next(grade for grade in grades if name in grade.errors))

    def _due(self, name: str, count: int, example: ItemGrade) -> Iterator[str]:
        self._unsaid[name] += count
        now = self._clock()
        if now - self._said_at.get(name, float("-inf")) >= _QUIET_S:
            self._said_at[name] = now
            reason = example.errors.get(name) or reasons(example)
            lost = self._unsaid.pop(name)
            items = pluralize(lost, "item")
            yield f"{NAME} grader {name} left {items} ungraded; the last: {reason[:_LONGEST]}"
