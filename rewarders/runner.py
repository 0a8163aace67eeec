"""Run scorers, each in its place and within its limit, from any thread or event loop; total the scores of a group."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final, Self

from tfgrpo.rewarders.calling import NO_NUMBER, REJECTS, Work, caught, each_scored, failed, is_async, perform, size, verdicts_of
from tfgrpo.rewarders.composite import DECIMALS, AnyScorer, ByDataset, Composite, counting, scorers_within, weighted_mean
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
from tfgrpo.rewarders.threads import all_of, concurrently
from tfgrpo.rewarders.workers import WorkerPool
from tfgrpo.stores.errors import PipelineError
from tfgrpo.stores.experiences.credit import outside_range
from tfgrpo.stores.outcomes import RewardScore

TRIAL: Final = GraderInput.of(
    "trial:0",
    {"prompt": "What is 6 * 7?", "answer": "42", "system_prompt": None, "metadata": {}},
    "<think>\n6 * 7 = 42\n</think>\n42",
    completion_tokens=16,
    completion_index=0,
)
TRIAL_S: Final = 5.0
_NO_GRADER: Final = ("expected a list of results", NO_NUMBER[0], "the result has no reward, or two different ones")
# Default limits of one call: of a scorer that computes, and of one that calls a model
TIMEOUT_S: Final = 30.0
MODEL_TIMEOUT_S: Final = 600.0
# Longest work, in characters of output, that is scored on the event loop
INLINE_CHARS: Final = 50_000
# Extra time of a scorer that keeps its limit itself
_GRACE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class GroupScores:
    """Verdicts and totals of one group."""

    verdicts: tuple[Verdicts, ...]
    totals: Mapping[str, float]
    """Weighted mean of the scores by rollout id; only where every scorer of weight above 0 gave a score."""
    faults: Mapping[str, str]
    """Reasons by scorer, of those that failed on every attempt."""


class ScoreRunner:
    """Runs scorers. Close it at the end."""

    def __init__(self, *, timeout_s: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """``timeout_s``: default limit of a call; ``clock``: of the pause of a scorer whose processes keep ending."""
        self._timeout_s, self._clock = timeout_s, clock
        self._lock = threading.Lock()  # guards the fields below
        self._pools: dict[int, tuple[Scorer, WorkerPool]] = {}
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
            for _, each in scorers_within(scorer):
                if isinstance(each, Scorer) and each.place == "process":
                    self._pool_of(each).warm()

    def close(self) -> None:
        """Accept no more calls, and end processes and threads. Never waits for code of a scorer."""
        with self._lock:
            self._closed = True
            pools = [pool for _, pool in self._pools.values()]
        for pool in pools:
            pool.close()

    async def score_group(self, scorers: Sequence[Weighted], context: RewardContext) -> GroupScores:
        """Score the attempts of one group with every scorer, concurrently; those that rank totals run afterwards."""
        scored: dict[int, Verdicts] = {}
        for ranking in (False, True):
            prior = _totals([(scorers[index], verdicts) for index, verdicts in scored.items()], context)
            indices = [index for index, each in enumerate(scorers) if each.scorer.ranks == ranking]
            own = replace(context, prior_scores=prior)
            scored |= zip(indices, await all_of(self._of_group(scorers[index], own) for index in indices), strict=True)
        columns = [(scorers[index], scored[index]) for index in range(len(scorers))]
        faults = {}
        for weighted, column in columns:
            lost = [each for each in column if isinstance(each, Abstained) and (each.broke or each.late)]
            if lost and len(lost) == len(column):
                faults[weighted.scorer.rewarder_id] = lost[0].message
        rows = tuple(zip(*(column for _, column in columns), strict=True))
        return GroupScores(rows, _totals(columns, context), faults)

    async def _of_group(self, weighted: Weighted, context: RewardContext) -> Verdicts:
        scorer = weighted.scorer
        if scorer.ranks and len(context.prior_scores) < 2:
            return abstain_on_all(scorer.rewarder_id, context, "fewer than two attempts have a total to rank")
        earlier = [context.failures.get(attempt.rollout_id, {}).get(scorer.rewarder_id) for attempt in context.outputs]
        wanted = [verdict is None for verdict in earlier]
        # A group is scored whole, as it was the first time, unless no verdict would be kept; calls of a model are in the books.
        alone = isinstance(scorer, Scorer) and scorer.scope != "group"
        if not alone and (any(wanted) or scorer.asks_model):
            wanted = [True] * len(wanted)
        (verdicts,) = await self.score(scorer, [context if all(wanted) else _only(context, wanted)], weighted.timeout_s)
        rest = iter(verdicts)
        scored = [next(rest) if each else None for each in wanted]
        return tuple(verdict or new for verdict, new in zip(earlier, scored, strict=True))  # type: ignore[misc]

    async def score(
        self, scorer: AnyScorer, contexts: Sequence[RewardContext], timeout_s: float | None = None
    ) -> list[Verdicts]:
        """Return the verdicts on the attempts of each context; ``timeout_s`` bounds each call of a scorer and of a member."""
        if isinstance(scorer, ByDataset):
            return await all_of(self._routed(scorer, context, timeout_s) for context in contexts)
        if isinstance(scorer, Composite):
            return await self._composed(scorer, contexts, timeout_s)
        own = [limit for limit in (scorer.limit_s, timeout_s) if limit is not None]
        limit_s = min(own, default=self._timeout_s or (MODEL_TIMEOUT_S if scorer.asks_model else TIMEOUT_S))
        # What compares asks no one about an item without a reference, and none asks about a group of no attempts.
        lacks = [scorer.needs_answer and each.record is None and not each.answer.strip() for each in contexts]
        lacks = [lacking or not each.outputs for each, lacking in zip(contexts, lacks, strict=True)]
        kept = [each for each, lacking in zip(contexts, lacks, strict=True) if not lacking]
        if scorer.scope == "group":
            groups = iter(await all_of(self._perform(scorer, replace(each, time_limit_s=limit_s), limit_s) for each in kept))
        else:
            inputs = [item for context in kept for item in context.inputs()]
            verdicts = [*await self._perform(scorer, inputs, limit_s)] if inputs else []
            open_ones = [at for at, each in enumerate(verdicts) if isinstance(each, Abstained) and each.undecided]
            if scorer.second is not None and open_ones:
                again = await self._perform(scorer.second, [inputs[at] for at in open_ones], limit_s)
                for at, verdict in zip(open_ones, again, strict=True):
                    verdicts[at] = verdict
            flat = iter(verdicts)
            groups = (tuple(next(flat) for _ in context.outputs) for context in kept)
        return [
            abstain_on_all(scorer.rewarder_id, context, NO_REFERENCE) if lacking else next(groups)
            for context, lacking in zip(contexts, lacks, strict=True)
        ]

    async def _routed(self, scorer: ByDataset, context: RewardContext, timeout_s: float | None) -> Verdicts:
        try:
            composite, own = scorer.route(context)
        except Exception as error:  # noqa: BLE001 - records of a user's file
            # No grader was asked: the item, or its record, is not the one of the mix.
            return (replace(failed(scorer.rewarder_id, error), broke=True),) * len(context.outputs)
        (rows,) = await self.rows(composite.members, [own], timeout_s)
        return tuple(composite.mixed(scorer.rewarder_id, row) for row in rows)

    async def rows(
        self, scorers: Sequence[AnyScorer], contexts: Sequence[RewardContext], timeout_s: float | None = None
    ) -> list[list[Verdicts]]:
        """Return the verdict of every scorer on each attempt of each context. One that is listed twice is asked once."""
        distinct = {id(each): each for each in scorers}
        answers = await all_of(self.score(each, contexts, timeout_s) for each in distinct.values())
        columns = dict(zip(distinct, answers, strict=True))
        return [
            [tuple(columns[id(each)][at][index] for each in scorers) for index in range(len(context.outputs))]
            for at, context in enumerate(contexts)
        ]

    async def _composed(
        self, composite: Composite, contexts: Sequence[RewardContext], timeout_s: float | None
    ) -> list[Verdicts]:
        gates = await self.rows(composite.gates, contexts, timeout_s)
        # A member that compares needs the whole group: a closed attempt may still be the better of a pair.
        opening = [[composite.compares or composite.is_open(row) for row in rows] for rows in gates]
        opened = [_only(context, wanted) for context, wanted in zip(contexts, opening, strict=True)]
        parts = await self.rows([part.scorer for part in counting(composite.parts)], opened, timeout_s)
        rest = iter(chain.from_iterable(parts))
        return [
            tuple(composite.verdict(row, next(rest) if open_ else ()) for row, open_ in zip(rows, wanted, strict=True))
            for rows, wanted in zip(gates, opening, strict=True)
        ]

    async def _perform(self, scorer: Scorer, work: Work, limit_s: float) -> Verdicts:
        self._refuse_closed()
        if scorer.place == "loop":
            (outcome,) = await concurrently([partial(scorer.call, work)], limit_s, _GRACE_S if scorer.asks_model else 0.0)
            read = caught(verdicts_of, scorer, work, outcome)
            return (failed(scorer.rewarder_id, read),) * size(work) if isinstance(read, BaseException) else read
        texts = [x.output for x in work.outputs] if isinstance(work, RewardContext) else [x.completion for x in work]
        if scorer.place == "inline" and sum(map(len, texts)) <= INLINE_CHARS:
            return each_scored(scorer, work, lambda calls: [perform(scorer, call, limit_s) for call in calls])
        return await self._pool_of(scorer).score(work, limit_s)

    def _pool_of(self, scorer: Scorer) -> WorkerPool:
        with self._lock:
            self._refuse_closed()
            if id(scorer) not in self._pools:
                # With the scorer, so that no other object can get its id.
                self._pools[id(scorer)] = scorer, WorkerPool(scorer, clock=self._clock)
            return self._pools[id(scorer)][1]

    def _refuse_closed(self) -> None:
        if self._closed:
            raise RuntimeError("this runner is closed")


def _only(context: RewardContext, wanted: Sequence[bool]) -> RewardContext:
    kept = [index for index, each in enumerate(wanted) if each]
    indices = tuple(context.completion_indices[index] for index in kept) if context.completion_indices else ()
    return replace(context, outputs=tuple(context.outputs[index] for index in kept), completion_indices=indices)


def _totals(columns: Sequence[tuple[Weighted, Verdicts]], context: RewardContext) -> dict[str, float]:
    totals = {}
    for index, attempt in enumerate(context.outputs):
        verdicts = [(weighted.weight, column[index]) for weighted, column in columns if weighted.weight > 0]
        scores = [(weight, verdict.score) for weight, verdict in verdicts if isinstance(verdict, RewardScore)]
        # An attempt that some counting scorer did not score has no total.
        if scores and len(scores) == len(verdicts):
            totals[attempt.rollout_id] = round(weighted_mean(scores), DECIMALS)
    return totals


def refuse_no_scorer(scorer: Scorer, where: str) -> None:
    """Ask a user's scorer about a made-up attempt. Raise ``PipelineError`` if it takes none, exits, or returns no number."""
    verdict = _trial_verdict(scorer, TRIAL)
    # Anything else that it raises may be its word on this attempt; so may None and NaN.
    reason = verdict.reason if isinstance(verdict, Abstained) else ""
    if reason.endswith((REJECTS, *_NO_GRADER)) or reason.startswith("SystemExit"):
        accepted = "a grader: called with a GraderInput, or grade_batch with a list of them, it returns numbers"
        raise PipelineError.one(where, f"{reason} (a call with a made-up item)", accepted)


def _trial_verdict(scorer: Scorer, of: GraderInput) -> Verdict | None:
    if scorer.source is None or ":" not in scorer.source.name or scorer.scope == "group" or is_async(scorer.call):
        return None
    # The runner will warn of a scorer that cannot be isolated.
    with closing(WorkerPool(scorer, log=None)) as pool:
        return pool.perform([of], TRIAL_S)[0]


def doubts(weighted: Weighted, context: RewardContext) -> Iterator[str]:
    """Yield what is wrong with the verdicts of a user's scorers on the first attempt of a real item."""
    if isinstance(weighted.scorer, ByDataset):  # whose graders are of other items, too
        return
    for _, each in scorers_within(weighted.scorer):
        verdict = _trial_verdict(each, context.inputs()[0]) if isinstance(each, Scorer) else None
        ends = weighted.range if each is weighted.scorer else each.score_range
        doubt = verdict.reason if isinstance(verdict, Abstained) else ""
        if isinstance(verdict, RewardScore) and (outside := outside_range([verdict.score], ends)):
            doubt = f"{verdict.score:g}; {outside}"
        if doubt:
            yield f"{each.rewarder_id}, asked about item {context.item_id!r} with its own reference as the output: {doubt}"
