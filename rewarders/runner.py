"""Run scorers: each in its place, within its limit, whatever its code does; and total the scores of a group.

One runner serves a learning run, a selection, the data server and offline grading. It may be used from several threads and
event loops at once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final, Self, TypeVar

from tfgrpo.rewarders.calling import Work, all_of, late, missing, outcome_of, patience, perform, size
from tfgrpo.rewarders.composite import DECIMALS, AnyScorer, ByDataset, Composite, counting, walk, weighted_mean
from tfgrpo.rewarders.faults import is_cancellation
from tfgrpo.rewarders.matching import failed, group_verdicts, unless_it_raises
from tfgrpo.rewarders.scorer import (
    NO_REFERENCE,
    Abstained,
    GraderInput,
    RewardContext,
    Scorer,
    Verdict,
    Verdicts,
    Weighted,
    abstain_on_all,
)
from tfgrpo.rewarders.threads import RewarderThreads, is_async
from tfgrpo.rewarders.workers import NotIsolated, WorkerPool, worker_count
from tfgrpo.stores.outcomes import RewardScore

T = TypeVar("T")

TIMEOUT_S: Final = 30.0
MODEL_TIMEOUT_S: Final = 600.0
"""Default limits of one call: of a scorer that computes, and of one that calls a model."""
INLINE_CHARS: Final = 50_000
"""Longest work, in characters of output, that is scored on the event loop."""
MOST_HANGING: Final = 4
"""Abandoned calls of one scorer that still run, at which it is no longer called."""
_CALLS: Final = 8
"""Concurrent calls of one scorer in threads."""
_TOGETHER: Final = 64
"""Single attempts that one process is asked about in one message."""
_GRACE_S: Final = 5.0
"""Extra time of a scorer that keeps its limit itself."""
_LOG: Final = logging.getLogger("tfgrpo.rewarders")


@dataclass(frozen=True, slots=True)
class GroupScores:
    """Verdicts and totals of one group."""

    verdicts: tuple[Verdicts, ...]
    """For each attempt, one verdict of each scorer, in order."""
    totals: Mapping[str, float]
    """Weighted mean of the scores by rollout id; only where every scorer of weight above 0 gave a score."""
    faults: Mapping[str, str]
    """Reasons by scorer, of those that failed on every attempt."""


class ScoreRunner:
    """Runs scorers. Close it at the end."""

    def __init__(self, *, timeout_s: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """``timeout_s``: default limit of a call; None: 30 s, or 600 s for a scorer that calls a model.

        ``clock``: of the pause of a scorer whose processes keep ending.
        """
        self._timeout_s, self._clock = timeout_s, clock
        self._lock = threading.Lock()  # guards the fields below
        self._threads: dict[int, tuple[Scorer, RewarderThreads]] = {}
        self._pools: dict[int, WorkerPool | None] = {}
        self._warned: set[int] = set()
        self._closed = False

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return partial(type(self), timeout_s=self._timeout_s), ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def warm(self, scorers: Iterable[AnyScorer]) -> None:
        """Start a process of each isolated scorer, in the background."""
        for scorer in scorers:
            for _, each in walk(scorer):
                if isinstance(each, Scorer) and each.place == "process":
                    self._threads_of(each).submit(self._warmed, each)

    def _warmed(self, scorer: Scorer) -> None:
        pool = self._pool_of(scorer)
        if pool is not None:
            try:
                pool.warm()
            except NotIsolated as error:
                self._give_up_isolation(scorer, str(error))

    def close(self) -> None:
        """Accept no more calls, and end processes and threads. Never waits for code of a scorer."""
        with self._lock:
            self._closed = True
            pools, threads = [*self._pools.values()], [*self._threads.values()]
            self._pools.clear()
        for pool in pools:
            if pool is not None:
                pool.close()
        for _, each in threads:
            each.shutdown()

    async def score_group(self, scorers: Sequence[Weighted], context: RewardContext) -> GroupScores:
        """Score the attempts of one group with every scorer, concurrently; those that rank totals run afterwards."""
        order = sorted(range(len(scorers)), key=lambda index: scorers[index].scorer.ranks)
        first = [index for index in order if not scorers[index].scorer.ranks]
        scored = dict(zip(first, await all_of(self._of_group(scorers[index], context) for index in first), strict=True))
        prior = replace(context, prior_scores=_totals([(scorers[index], scored[index]) for index in first], context))
        last = [index for index in order if scorers[index].scorer.ranks]
        scored |= dict(zip(last, await all_of(self._of_group(scorers[index], prior) for index in last), strict=True))
        columns = [(scorers[index], scored[index]) for index in range(len(scorers))]
        faults = {weighted.scorer.rewarder_id: reason for weighted, column in columns if (reason := _fault(column))}
        rows = _rows([column for _, column in columns], context)
        return GroupScores(tuple(rows), _totals(columns, context), faults)

    async def _of_group(self, weighted: Weighted, context: RewardContext) -> Verdicts:
        scorer = weighted.scorer
        if scorer.ranks and len(context.prior_scores) < 2:
            return abstain_on_all(scorer.rewarder_id, context, "fewer than two attempts have a total to rank")
        known = [context.failures.get(attempt.rollout_id, {}).get(scorer.rewarder_id) for attempt in context.outputs]
        wanted = [verdict is None for verdict in known]
        # A group is scored whole, as it was the first time, unless no verdict would be kept; calls of a model are in the books.
        alone = isinstance(scorer, Scorer) and scorer.scope != "group"
        if not alone and (any(wanted) or scorer.asks_model):
            wanted = [True] * len(wanted)
        (verdicts,) = await self.score(scorer, [context if all(wanted) else _only(context, wanted)], weighted.timeout_s)
        given = dict(zip((at for at, each in enumerate(wanted) if each), verdicts, strict=True))
        return tuple(given[at] if verdict is None else verdict for at, verdict in enumerate(known))

    async def score(
        self, scorer: AnyScorer, contexts: Sequence[RewardContext], timeout_s: float | None = None
    ) -> list[Verdicts]:
        """Return the verdicts on the attempts of each context, in order.

        ``timeout_s`` bounds each call of a scorer, and of each member of a composite.
        """
        if isinstance(scorer, ByDataset):
            return await all_of(self._routed(scorer, context, timeout_s) for context in contexts)
        if isinstance(scorer, Composite):
            return await self._composed(scorer, contexts, timeout_s)
        own = [limit for limit in (scorer.limit_s, timeout_s) if limit is not None]
        limit_s = min(own, default=self._timeout_s or (MODEL_TIMEOUT_S if scorer.asks_model else TIMEOUT_S))
        asked = [context for context in contexts if context.outputs and not _lacks_reference(scorer, context)]
        if scorer.scope == "group":
            found = await all_of(
                self._perform(scorer, replace(context, time_limit_s=limit_s), limit_s) for context in asked
            )
        else:
            inputs = [item for context in asked for item in context.inputs(scorer.parse)]
            flat = iter(await self._decided(scorer, inputs, limit_s) if inputs else ())
            found = [tuple(next(flat) for _ in context.outputs) for context in asked]
        by_context = dict(zip(map(id, asked), found, strict=True))
        return [
            by_context.get(id(context)) or abstain_on_all(scorer.rewarder_id, context, NO_REFERENCE)
            for context in contexts
        ]

    async def _routed(self, scorer: ByDataset, context: RewardContext, timeout_s: float | None) -> Verdicts:
        """Score an item of a data mix with the graders of its dataset."""
        try:
            composite, own = scorer.route(context)
        except Exception as error:  # noqa: BLE001 - records of a user's file
            # No grader was asked: the item, or its record, is not the one of the mix.
            return (replace(failed(scorer.rewarder_id, error), broke=True),) * len(context.outputs)
        (rows,) = await self.mixed(composite, [own], timeout_s)
        return tuple(_of_mix(scorer.rewarder_id, composite, row) for row in rows)

    async def mixed(
        self, composite: Composite, contexts: Sequence[RewardContext], timeout_s: float | None = None
    ) -> list[tuple[Verdicts, ...]]:
        """Return the verdict of every grader of a mix on each attempt of each context, gates first."""
        members = composite.members
        # A grader that is listed twice is asked once.
        distinct = {id(each): each for each in members}
        columns = dict(
            zip(
                distinct, await all_of(self.score(each, contexts, timeout_s) for each in distinct.values()), strict=True
            )
        )
        return [tuple(_rows([columns[id(each)][at] for each in members], own)) for at, own in enumerate(contexts)]

    async def _composed(
        self, composite: Composite, contexts: Sequence[RewardContext], timeout_s: float | None
    ) -> list[Verdicts]:
        """Ask the gates, then the parts about what no gate closes."""
        gated = await all_of(self.score(gate, contexts, timeout_s) for gate in composite.gates)
        by_gates = [_rows([column[at] for column in gated], context) for at, context in enumerate(contexts)]
        # A member that compares needs the whole group: a closed attempt may still be the better of a pair.
        asked = [[composite.compares or _is_open(composite.opening(gates)) for gates in rows] for rows in by_gates]
        opened = [_only(context, wanted) for context, wanted in zip(contexts, asked, strict=True)]
        parts = await all_of(self.score(part.scorer, opened, timeout_s) for part in counting(composite.parts))
        verdicts = []
        for at, rows in enumerate(by_gates):
            by_parts = iter(_rows([column[at] for column in parts], opened[at]))
            pairs = zip(rows, asked[at], strict=True)
            verdicts.append(
                tuple(composite.verdict(gates, next(by_parts) if wanted else ()) for gates, wanted in pairs)
            )
        return verdicts

    async def _decided(self, scorer: Scorer, inputs: Sequence[GraderInput], limit_s: float) -> Verdicts:
        """Score inputs, and ask the second scorer about those that the first one leaves undecided."""
        verdicts = list(await self._perform(scorer, inputs, limit_s))
        open_ones = [at for at, each in enumerate(verdicts) if isinstance(each, Abstained) and each.undecided]
        if scorer.second is not None and open_ones:
            again = await self._perform(scorer.second, [inputs[at] for at in open_ones], limit_s)
            for at, verdict in zip(open_ones, again, strict=True):
                verdicts[at] = verdict
        return tuple(verdicts)

    async def _perform(self, scorer: Scorer, work: Work, limit_s: float) -> Verdicts:
        self._refuse_closed()
        if scorer.place == "loop":
            return await _on_loop(scorer, work, limit_s)
        if scorer.place == "inline" and _chars(work) <= INLINE_CHARS:
            verdicts: dict[int, Verdict] = {}
            perform(scorer, work, verdicts.__setitem__, limit_s=limit_s)
            return _complete(scorer, work, verdicts)
        pool = self._pool_of(scorer) if scorer.place == "process" else None
        if pool is not None:
            try:
                parts = await all_of(self._in_processes(pool, scorer, part, limit_s) for part in _parts(scorer, work))
                return tuple(chain.from_iterable(parts))
            except NotIsolated as error:
                self._give_up_isolation(scorer, str(error))
        elif scorer.place == "thread" and scorer.source is None:
            self._warn(scorer, "only this process has it, as a function of a script or notebook")
        return await self._in_threads(scorer, work, limit_s)

    async def _in_processes(self, pool: WorkerPool, scorer: Scorer, work: Work, limit_s: float) -> Verdicts:
        """Score in worker processes, and in threads what cannot be sent there. Raises ``NotIsolated``."""
        given_up = threading.Event()
        try:
            found = await _waited(self._threads_of(scorer).submit(pool.perform, work, limit_s, given_up))
        finally:
            given_up.set()  # no call begins for a caller that has left
        if found is None:
            return _ended(scorer, work)
        verdicts = {index: verdict for index, verdict in found.items() if verdict is not None}
        unsent = [index for index, verdict in found.items() if verdict is None]
        if unsent:
            self._warn(scorer, "what it is asked about cannot be sent to another process")
            rest = work if isinstance(work, RewardContext) else [work[index] for index in unsent]
            verdicts |= dict(zip(unsent, await self._in_threads(scorer, rest, limit_s), strict=True))
        return _complete(scorer, work, verdicts)

    async def _in_threads(self, scorer: Scorer, work: Work, limit_s: float) -> Verdicts:
        """Score in threads, which cannot be ended: a call past its limit is abandoned, and the others go on in another."""
        threads, verdicts = self._threads_of(scorer), dict[int, Verdict]()
        left = list(range(size(work)))
        while left:
            if threads.abandoned >= MOST_HANGING:
                reason = f"{threads.abandoned} calls of it hang; it is not called until one of them ends"
                verdicts |= dict.fromkeys(left, Abstained(scorer.rewarder_id, reason, broke=True))
                break
            part = work if isinstance(work, RewardContext) else [_copied(work[index]) for index in left]
            call = _ThreadCall(scorer, part, limit_s)
            in_time = await call.run(threads)
            if in_time is None:
                return _ended(scorer, work)
            verdicts |= {left[at]: verdict for at, verdict in call.verdicts.items()}
            left = [index for index in left if index not in verdicts]
            if in_time:
                break
            together = scorer.scope != "item" or is_async(scorer.call)
            lost, left = (left, []) if together else (left[:1], left[1:])
            verdicts |= dict.fromkeys(lost, late(scorer, limit_s))
        return _complete(scorer, work, verdicts)

    def _threads_of(self, scorer: Scorer) -> RewarderThreads:
        with self._lock:
            self._refuse_closed()
            if id(scorer) not in self._threads:
                calls = worker_count() if scorer.place == "process" else _CALLS
                # With the scorer, so that no other object can get its id.
                self._threads[id(scorer)] = scorer, RewarderThreads(calls)
            return self._threads[id(scorer)][1]

    def _pool_of(self, scorer: Scorer) -> WorkerPool | None:
        with self._lock:
            self._refuse_closed()
            if id(scorer) not in self._pools:
                self._pools[id(scorer)] = WorkerPool(scorer, clock=self._clock)
            return self._pools[id(scorer)]

    def _refuse_closed(self) -> None:
        if self._closed:
            raise RuntimeError("this runner is closed")

    def _give_up_isolation(self, scorer: Scorer, reason: str) -> None:
        with self._lock:
            self._pools[id(scorer)] = None
        self._warn(scorer, reason)

    def _warn(self, scorer: Scorer, reason: str) -> None:
        """Warn once that a scorer is not isolated."""
        with self._lock:
            if self._closed or id(scorer) in self._warned:
                return
            self._warned.add(id(scorer))
        _LOG.warning(
            "%s runs in a thread, where a call that never ends cannot be stopped: %s", scorer.rewarder_id, reason
        )


class _Abandoned(Exception):
    """No one waits for this call any more."""


class _ThreadCall:
    """One call in a thread, with the verdicts that it reported in time."""

    def __init__(self, scorer: Scorer, work: Work, limit_s: float) -> None:
        self._scorer, self._work, self._limit_s = scorer, work, limit_s
        self._lock = threading.Lock()  # guards the fields below
        self._begun = 0.0
        self._is_open = True
        self.verdicts: dict[int, Verdict] = {}

    async def run(self, threads: RewarderThreads) -> bool | None:
        """Return whether it ended in time; else it is abandoned. None: the threads were shut down before it began."""
        started = asyncio.Event()
        loop = asyncio.get_running_loop()

        def call() -> None:
            self._begin()
            loop.call_soon_threadsafe(started.set)
            perform(self._scorer, self._work, self._report, self._begin, self._limit_s)

        future = threads.submit(call)
        begun = asyncio.ensure_future(started.wait())
        answer = asyncio.ensure_future(_waited(future))
        try:
            await asyncio.wait([answer, begun], return_when=asyncio.FIRST_COMPLETED)
            while not answer.done():
                left = self._begun + patience(self._scorer, self._limit_s) - time.monotonic()
                if left <= 0.0:
                    return False
                await asyncio.wait([answer], timeout=left)
            await answer
            return None if future.cancelled() else True
        finally:
            with self._lock:
                self._is_open = False
            begun.cancel()
            answer.cancel()
            if not future.done():
                threads.abandon(future)

    def _begin(self) -> None:
        with self._lock:
            if not self._is_open:
                raise _Abandoned
            self._begun = time.monotonic()

    def _report(self, index: int, verdict: Verdict) -> None:
        with self._lock:
            if self._is_open:
                self.verdicts[index] = verdict


async def _waited(future: Future[T]) -> T | None:
    """Return the result of a call in a thread; None when the threads were shut down before it began."""
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError as error:
        if is_cancellation(error):
            raise
        return None
    finally:
        future.cancel()


async def _on_loop(scorer: Scorer, work: Work, limit_s: float) -> Verdicts:
    """Await a coroutine of a scorer on this event loop; one that ignores its end is abandoned."""
    task = asyncio.ensure_future(outcome_of(partial(scorer.call, work)))
    # The error of abandoned work is of no interest; asyncio would log it.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        await asyncio.wait([task], timeout=limit_s + (_GRACE_S if scorer.asks_model else 0.0))
        if not task.done():
            return (late(scorer, limit_s),) * size(work)
        answer = task.result()
        if isinstance(answer, BaseException):
            return (failed(scorer.rewarder_id, answer),) * size(work)
        if isinstance(work, RewardContext):
            return group_verdicts(scorer.rewarder_id, answer, size(work))
        return tuple(answer)
    except Exception as error:  # noqa: BLE001 - of the scorer's results
        return (failed(scorer.rewarder_id, error),) * size(work)
    finally:
        task.cancel()


def _ended(scorer: Scorer, work: Work) -> Verdicts:
    return (Abstained(scorer.rewarder_id, "scoring has ended"),) * size(work)


def _lacks_reference(scorer: Scorer, context: RewardContext) -> bool:
    return scorer.needs_answer and context.record is None and not context.answer.strip()


def _rows(columns: Sequence[Verdicts], context: RewardContext) -> list[Verdicts]:
    """Return the verdicts of several scorers by attempt."""
    return [tuple(column[index] for column in columns) for index in range(len(context.outputs))]


def _only(context: RewardContext, wanted: Sequence[bool]) -> RewardContext:
    """Return the context with some of its attempts."""
    kept = [index for index, each in enumerate(wanted) if each]
    indices = tuple(context.completion_indices[index] for index in kept) if context.completion_indices else ()
    return replace(context, outputs=tuple(context.outputs[index] for index in kept), completion_indices=indices)


def _is_open(opening: float | Abstained) -> bool:
    return isinstance(opening, float) and opening > 0.0


def _parts(scorer: Scorer, work: Work) -> Iterable[Work]:
    """Return what processes are asked about at once: of single attempts some each."""
    if isinstance(work, RewardContext) or scorer.scope == "batch":
        return [work]
    return [work[at : at + _TOGETHER] for at in range(0, len(work), _TOGETHER)]


def _chars(work: Work) -> int:
    if isinstance(work, RewardContext):
        return sum(len(attempt.output) for attempt in work.outputs)
    return sum(len(item.completion) for item in work)


def _copied(item: GraderInput) -> GraderInput:
    """Return the input with a copy of its record, which a user's code may change; one that cannot be copied is shared."""
    return replace(item, record=unless_it_raises(item.record, deepcopy, item.record))


def _complete(scorer: Scorer, work: Work, verdicts: Mapping[int, Verdict]) -> Verdicts:
    return tuple(verdicts.get(index) or missing(scorer) for index in range(size(work)))


def _fault(column: Verdicts) -> str | None:
    """Return why a scorer failed on every attempt; None if it did not."""
    lost = [each for each in column if isinstance(each, Abstained) and (each.broke or each.late)]
    return lost[0].message if lost and len(lost) == len(column) else None


def _totals(columns: Sequence[tuple[Weighted, Verdicts]], context: RewardContext) -> dict[str, float]:
    """Return ``sum(weight * score) / sum(weight)`` for each attempt that every counting scorer scored."""
    counted = [(weighted.weight, verdicts) for weighted, verdicts in columns if weighted.weight > 0]
    totals = {}
    for index, attempt in enumerate(context.outputs):
        given = [(weight, verdicts[index]) for weight, verdicts in counted]
        known = [(weight, verdict.score) for weight, verdict in given if isinstance(verdict, RewardScore)]
        if known and len(known) == len(given):
            totals[attempt.rollout_id] = round(weighted_mean(known), DECIMALS)
    return totals


def _of_mix(name: str, composite: Composite, row: Verdicts) -> Verdict:
    reward = composite.mixed(row)
    if reward is None:
        lost = [each for each in row if isinstance(each, Abstained)]
        reason = "; ".join(each.message for each in lost) or "the combined reward is no finite number"
        return Abstained(name, reason, any(each.broke for each in lost), any(each.late for each in lost))
    parts = ", ".join(f"{each.rewarder_id} {each.score:g}" for each in row if isinstance(each, RewardScore))
    return RewardScore(name, reward, parts)
