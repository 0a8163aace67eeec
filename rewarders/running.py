"""Run one rewarder on the event loop, in a thread, or member by member, within its time limit.

Any error of a rewarder becomes a ``RewardError`` with one line of text, and its verdicts are checked.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, Final, TypeAlias

from tfgrpo.rewarders.base import Abstained, RewardContext, Rewarder, Verdict, declares
from tfgrpo.rewarders.faults import described, each_alone, is_cancellation, is_ctrl_c
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.stores.errors import RewardError, RewarderTimeout
from tfgrpo.stores.frozen_json import FrozenDict, frozen
from tfgrpo.stores.numeric import is_finite
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.stores.text import pluralize

TIMEOUT_S: Final = 30.0
MODEL_TIMEOUT_S: Final = 600.0
"""Default time limits of one group: of a rewarder that computes, and of one that calls a model."""
QUICK_CHARS: Final = 50_000
"""Longest group, in characters of output, that a quick rewarder scores on the event loop."""
_MAX_SCORE: Final = 1e100
"""Greatest score either way: sums of squares of greater ones overflow, which would cost the run its manifest."""
_GRACE_S: Final = 5.0
"""Extra time of a rewarder that respects its time limit itself, before it counts as hanging."""

Verdicts: TypeAlias = tuple[Verdict, ...]


async def run_rewarder(
    threads: RewarderThreads, timeout_s: float | None, rewarder: Rewarder, context: RewardContext
) -> Verdicts:
    """Return the verdicts of a rewarder, one per attempt.

    ``timeout_s`` is its time limit, and that of each member of a composite. None: 30 s, or 600 s for one that calls a
    model. Raises ``RewardError`` when it failed, ``RewarderTimeout`` when it was late.
    """
    expected = len(context.outputs)
    if not expected:
        return ()
    combine = getattr(rewarder, "combine", None)
    if combine is not None:
        # Without a limit: it waits only for others, each of which has its own.
        return await _contained(rewarder, combine(context, partial(run_rewarder, threads, timeout_s)), expected)
    limit = timeout_s
    if limit is None:
        limit = MODEL_TIMEOUT_S if declares(rewarder, "asks_model") else TIMEOUT_S
    limited = replace(context, time_limit_s=limit)
    quick = declares(rewarder, "quick") and sum(len(attempt.output) for attempt in context.outputs) <= QUICK_CHARS
    if inspect.iscoroutinefunction(rewarder.score):
        if declares(rewarder, "limits_itself"):
            # What is graded on the event loop cannot limit itself.
            return await _contained(rewarder, rewarder.score(limited), expected, limit if quick else math.inf)
        most = limit + (_GRACE_S if declares(rewarder, "asks_model") else 0.0)
        work = _in_time(_contained(rewarder, rewarder.score(limited), expected, most), most)
    elif quick:
        return _answer(rewarder, limited, limit)
    else:
        work = threads.run(partial(_answer, rewarder, limited, limit), limit, watch=False)
    try:
        return await work
    except TimeoutError:
        raise _late(rewarder, limit) from None


async def _in_time(work: Coroutine[Any, Any, Verdicts], limit_s: float) -> Verdicts:
    """Return the result of the work. Raises ``TimeoutError`` when it is late; it is abandoned if it ignores its end."""
    task = asyncio.ensure_future(work)
    # The error of abandoned work is of no interest; asyncio would log it.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        await asyncio.wait([task], timeout=limit_s)
        if not task.done():
            raise TimeoutError
        return task.result()
    finally:
        task.cancel()


async def _contained(
    rewarder: Rewarder, work: Awaitable[Sequence[Verdict]], expected: int, limit_s: float = math.inf
) -> Verdicts:
    start = time.monotonic()
    try:
        return _checked(rewarder, await work, expected, start, limit_s)
    except BaseException as error:
        if is_ctrl_c(error) or is_cancellation(error):
            raise
        raise _failure(error) from error


def _answer(rewarder: Rewarder, context: RewardContext, limit_s: float) -> Verdicts:
    """Run a blocking rewarder in this thread."""
    start = time.monotonic()
    try:
        verdicts = rewarder.score(context)
        if not inspect.isawaitable(verdicts):
            return _checked(rewarder, verdicts, len(context.outputs), start, limit_s)
        if inspect.iscoroutine(verdicts):
            verdicts.close()
        raise RewardError(f"{rewarder.rewarder_id}: score() returned an awaitable; declare it with async def")
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        raise _failure(error) from error


def _failure(error: BaseException) -> RewardError:
    return (RewarderTimeout if isinstance(error, RewarderTimeout) else RewardError)(described(error))


def _late(rewarder: Rewarder, limit_s: float) -> RewarderTimeout:
    return RewarderTimeout(f"{rewarder.rewarder_id}: no verdict within {limit_s:g} s")


def _checked(rewarder: Rewarder, verdicts: Sequence[Verdict], expected: int, start: float, limit_s: float) -> Verdicts:
    """Return the verdicts of a call that began at ``start``.

    It looks at the clock itself: a call that kept the interpreter lock stopped whoever waited for it.
    """
    if time.monotonic() - start > limit_s:
        raise _late(rewarder, limit_s)
    name = rewarder.rewarder_id
    if not isinstance(verdicts, Iterable):
        raise RewardError(f"{name}: score() returned {type(verdicts).__name__}, expected one verdict for each attempt")
    verdicts = tuple(verdicts)
    if len(verdicts) != expected:
        raise RewardError(f"{name}: {pluralize(len(verdicts), 'verdict')} for {pluralize(expected, 'attempt')}")
    checked = each_alone(verdicts, partial(_checked_one, name), lambda reason: Abstained(name, reason, broke=True))
    broken = [verdict for verdict in checked if isinstance(verdict, Abstained) and verdict.broke]
    if len(broken) == expected:
        raise RewardError(broken[0].message)
    return tuple(checked)


def _checked_one(name: str, verdict: object) -> Verdict:
    if not isinstance(verdict, RewardScore | Abstained):
        raise RewardError(f"{name}: {type(verdict).__name__} is no verdict")
    if verdict.rewarder_id != name:
        raise RewardError(f"{name}: a verdict in the name of {verdict.rewarder_id!r}")
    if isinstance(verdict, Abstained):
        return verdict
    score: object = verdict.score
    if not isinstance(score, Real) or not is_finite(score) or abs(float(score)) > _MAX_SCORE:
        raise RewardError(f"{name}: the score {score!r} is no finite number of at most {_MAX_SCORE:g}")
    evidence = " ".join(str(verdict.evidence).split())
    return RewardScore(name, float(score), evidence, _checked_details(name, verdict.details))


def _checked_details(name: str, details: object) -> FrozenDict | None:
    """Return details as frozen JSON, which a record needs."""
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
