"""How is one rewarder asked for its verdicts? On the event loop, in a thread, or part by part; within its time limit.

Whatever a rewarder does wrong becomes a fault of its own: it raises nothing here, and what it returns is checked.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Awaitable, Coroutine, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, Final, TypeAlias

from tfgrpo.rewarders.base import Abstained, CompoundRewarder, RewardContext, Rewarder, Verdict
from tfgrpo.rewarders.faults import described, each_alone
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.stores.errors import RewardError, RewarderTimeout
from tfgrpo.stores.frozen_json import FrozenDict, frozen
from tfgrpo.stores.numeric import is_finite
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.stores.text import pluralize

TIMEOUT_S: Final = 30.0
MODEL_TIMEOUT_S: Final = 600.0
"""Default time limits of one group: of what computes, and of what asks a model."""
_QUICK_CHARS: Final = 50_000
"""Longest group, in characters of output, that a quick rewarder scores on the event loop."""
_GRACE_S: Final = 5.0
"""What a rewarder that keeps its time limit by itself gets on top, before it counts as hanging."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A rewarder said nothing usable."""

    reason: str
    timed_out: bool = False


Said: TypeAlias = tuple[Verdict, ...] | Fault


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks rewarders, each within the same time limit."""

    executor: Executor
    timeout_s: float | None = None
    """For each rewarder that is asked. None: 30 s, or 600 s for one that asks a model."""

    async def ask(self, rewarder: Rewarder, context: RewardContext) -> Said:
        """The verdicts of a rewarder, one per attempt, or its fault."""
        expected = len(context.outputs)
        if not expected:
            return ()
        # The name first: to ask a protocol costs more than the whole rewarder does.
        if hasattr(rewarder, "combine") and isinstance(rewarder, CompoundRewarder):
            # Unlimited itself: all it waits for are others, each of which has its limit.
            return await _contained(rewarder, rewarder.combine(context, self.part), expected)
        limit = self._limit(rewarder)
        limited = replace(context, time_limit_s=limit)
        if inspect.iscoroutinefunction(rewarder.score):
            if getattr(rewarder, "limits_itself", False):
                return await _contained(rewarder, rewarder.score(limited), expected)
            most = limit + (_GRACE_S if asks_model(rewarder) else 0.0)
            said = await _in_time(_contained(rewarder, rewarder.score(limited), expected, most), most)
            return said or _late(rewarder, limit)
        if getattr(rewarder, "quick", False) and _chars(context) <= _QUICK_CHARS:
            return _answer(rewarder, limited, limit)
        return await self._in_thread(rewarder, limited, limit)

    async def part(self, rewarder: Rewarder, context: RewardContext) -> tuple[Verdict, ...]:
        """``Ask`` for compound rewarders."""
        said = await self.ask(rewarder, context)
        if isinstance(said, Fault):
            raise RewarderTimeout(said.reason) if said.timed_out else RewardError(said.reason)
        return said

    def _limit(self, rewarder: Rewarder) -> float:
        if self.timeout_s is not None:
            return self.timeout_s
        return MODEL_TIMEOUT_S if asks_model(rewarder) else TIMEOUT_S

    async def _in_thread(self, rewarder: Rewarder, context: RewardContext, limit_s: float) -> Said:
        loop = asyncio.get_running_loop()
        begun: asyncio.Future[None] = loop.create_future()

        def call() -> Said:
            loop.call_soon_threadsafe(begun.set_result, None)
            return _answer(rewarder, context, limit_s)

        future = self.executor.submit(call)
        answer = asyncio.wrap_future(future)
        try:
            if isinstance(self.executor, RewarderThreads):
                either: list[asyncio.Future[Any]] = [begun, answer]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return await asyncio.wait_for(answer, limit_s)
        except TimeoutError:
            return _late(rewarder, limit_s)
        finally:
            answer.cancel()
            if isinstance(self.executor, RewarderThreads):
                self.executor.abandon(future)


def asks_model(rewarder: Rewarder) -> bool:
    """Whether the time a rewarder takes is that of calls to a model."""
    return bool(getattr(rewarder, "asks_model", False))


async def _in_time(work: Coroutine[Any, Any, Said], limit_s: float) -> Said | None:
    """What the work came to; None when it was late. Work that ignores its cancellation is left behind."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=limit_s)
        return task.result() if task.done() else None
    finally:
        task.cancel()


def _late(rewarder: Rewarder, limit_s: float) -> Fault:
    return Fault(f"{rewarder.rewarder_id}: no verdict within {limit_s:g} s", timed_out=True)


def _chars(context: RewardContext) -> int:
    return sum(len(attempt.output) for attempt in context.outputs)


async def _contained(
    rewarder: Rewarder, work: Awaitable[Sequence[Verdict]], expected: int, limit_s: float = math.inf
) -> Said:
    start = time.monotonic()
    try:
        verdicts = await work
        return _late(rewarder, limit_s) if _over(start, limit_s) else _checked(rewarder, verdicts, expected)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return _fault(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001  a user's code: its failure is data
        return _fault(error)


def _over(start: float, limit_s: float) -> bool:
    """Whether a call took too long. It looks at the time itself: the interpreter lock also stops whoever waits for it."""
    return time.monotonic() - start > limit_s


def _answer(rewarder: Rewarder, context: RewardContext, limit_s: float) -> Said:
    """The verdicts of a rewarder that blocks."""
    start = time.monotonic()
    try:
        verdicts = rewarder.score(context)
        if _over(start, limit_s):
            return _late(rewarder, limit_s)
        if inspect.isawaitable(verdicts):
            if inspect.iscoroutine(verdicts):
                verdicts.close()
            raise RewardError(f"{rewarder.rewarder_id}: score() returned an awaitable; declare it with async def")
        return _checked(rewarder, verdicts, len(context.outputs))
    except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001  a user's code: its failure is data
        return _fault(error)


def _fault(error: BaseException) -> Fault:
    return Fault(described(error), timed_out=isinstance(error, RewarderTimeout))


def _checked(rewarder: Rewarder, verdicts: Sequence[Verdict], expected: int) -> tuple[Verdict, ...]:
    name = rewarder.rewarder_id
    given = tuple(verdicts)
    if len(given) != expected:
        raise RewardError(f"{name}: {pluralize(len(given), 'verdict')} for {pluralize(expected, 'attempt')}")
    checked = each_alone(given, partial(_checked_one, name), lambda reason: Abstained(name, reason, broke=True))
    broken = [verdict for verdict in checked if isinstance(verdict, Abstained) and verdict.broke]
    if len(broken) == expected:
        raise RewardError(broken[0].told)
    return tuple(checked)


def _checked_one(name: str, verdict: object) -> Verdict:
    if not isinstance(verdict, RewardScore | Abstained):
        raise RewardError(f"{name}: {type(verdict).__name__} is no verdict")
    if verdict.rewarder_id != name:
        raise RewardError(f"{name}: a verdict in the name of {verdict.rewarder_id!r}")
    if isinstance(verdict, Abstained):
        return verdict
    score: object = verdict.score
    if not isinstance(score, Real) or not is_finite(score):
        raise RewardError(f"{name}: the score {score!r} is no finite number")
    evidence = " ".join(str(verdict.evidence).split())
    return RewardScore(name, float(score), evidence, _checked_details(name, verdict.details))


def _checked_details(name: str, details: object) -> FrozenDict | None:
    """What goes into a file has to be JSON, and must not change any more."""
    if details is None:
        return None
    try:
        kept = frozen(details)
        canonical_json(kept)
    except (TypeError, ValueError, RecursionError) as error:
        raise RewardError(f"{name}: details of a score that are no JSON: {error}") from None
    if not isinstance(kept, FrozenDict):
        raise RewardError(f"{name}: details of a score that are a {type(details).__name__}, expected a mapping")
    return kept
