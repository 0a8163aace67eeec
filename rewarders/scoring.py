"""What do all rewarders together say of one group? Runs them, each within its time limit, and adds up the totals.

A rewarder that breaks loses its own verdicts and no others. What a missing verdict means for a rollout or an epoch is
decided by the caller.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from tfgrpo.rewarders.asking import Asker, Fault, Said
from tfgrpo.rewarders.base import Abstained, Range, RewardContext, Rewarder, Verdict, declared_range
from tfgrpo.rewarders.composite.weighing import DECIMALS, weighted_mean
from tfgrpo.stores.errors import PipelineError, Problem
from tfgrpo.stores.outcomes import RewardScore


@dataclass(frozen=True, slots=True)
class WeightedRewarder:
    """A rewarder with its share in the total and its time limit for one group."""

    rewarder: Rewarder
    weight: float = 1.0
    """Relative to the other weights. 0: recorded, not counted."""
    timeout_s: float | None = None
    """Seconds, counted from the moment it starts. None: 30, or 600 for one that asks a model."""
    score_range: Range | None = None
    """Lowest and highest score. None: what the rewarder declares."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight) and self.weight >= 0):
            raise ValueError(f"weight is {self.weight}; accepted: a finite number of at least 0")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise ValueError(f"timeout_s is {self.timeout_s}; accepted: more than 0")


@dataclass(frozen=True, slots=True)
class GroupScores:
    """What the rewarders said of one group."""

    verdicts: tuple[tuple[Verdict, ...], ...]
    """For each attempt, one verdict of each rewarder, in the order given. A rewarder that broke has abstained."""
    totals: Mapping[str, float]
    """Weighted mean of the scores by rollout id; only where every rewarder of weight above 0 gave a score."""
    faults: Mapping[str, str]
    """Why a rewarder's verdicts are missing, by rewarder id; a time limit that was exceeded is among them."""
    timed_out: str | None
    """The fault of the first rewarder that exceeded its time limit: the epoch's evidence is void."""


def check_rewarders(rewarders: Sequence[WeightedRewarder], *, group_size: int = 2) -> None:
    """Refuse a set of rewarders that can give no total for groups of ``group_size``.

    Raises ``PipelineError``, with every problem, when no rewarder counts, when two have the same id, when the only
    ones that count rank the totals of others, when one that counts would have to rank a single attempt, or when one
    declares a range that is none.
    """
    problems = []
    names = [weighted.rewarder.rewarder_id for weighted in rewarders]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        problems.append(
            Problem("rewarders", f"{', '.join(doubled)} more than once", "a rewarder_id of its own for each")
        )
    if not any(weighted.weight > 0 and not _ranks(weighted) for weighted in rewarders):
        problems.append(
            Problem("rewarders", "no weight above 0 on a rewarder that scores outputs", "at least one, such as gt")
        )
    problems += [problem for weighted in rewarders for problem in _range_problem(weighted)]
    alone = [weighted.rewarder.rewarder_id for weighted in rewarders if weighted.weight > 0 and _compares(weighted)]
    if alone and group_size < 2:
        given = f"{', '.join(alone)} counting in groups of {group_size}, which cannot be ranked"
        problems.append(Problem("rewarders", given, "a weight of 0 for it, or groups: FEATURE_TFGRPO_GROUP on"))
    if problems:
        raise PipelineError(problems)


def total_range(rewarders: Sequence[WeightedRewarder]) -> Range:
    """Range of the total reward: the weighted means of the lower and of the upper ends. Raises ``ValueError``."""
    counting = [weighted for weighted in rewarders if weighted.weight > 0]
    ranges = [(weighted.weight, declared_range(weighted.rewarder, weighted.score_range)) for weighted in counting]
    low = weighted_mean([(weight, ends[0]) for weight, ends in ranges])
    return low, weighted_mean([(weight, ends[1]) for weight, ends in ranges])


def _range_problem(weighted: WeightedRewarder) -> Iterator[Problem]:
    try:
        declared_range(weighted.rewarder, weighted.score_range)
    except ValueError as error:
        given, _, accepted = str(error).partition("; accepted: ")
        yield Problem(f"rewarders: {weighted.rewarder.rewarder_id}", given, accepted)


async def score_group(rewarders: Sequence[WeightedRewarder], context: RewardContext, executor: Executor) -> GroupScores:
    """Score the attempts of one group with every rewarder; what blocks runs off the event loop.

    Rewarders that score outputs run at once; those with a class attribute ``ranks = True`` run afterwards and find the
    totals so far in ``context.prior_scores``. Rewarders with ``quick = True`` run inline when the outputs are short, those
    with ``async def score`` on the event loop.

    ``executor`` should be a ``RewarderThreads``: a call past its time limit is abandoned there and holds up neither
    others nor the end of the process. With any other executor a hanging call keeps its thread, and waiting for a
    thread counts towards the limit. Nothing a rewarder does raises here; it becomes a fault.
    """
    first = [weighted for weighted in rewarders if not _ranks(weighted)]
    last = [weighted for weighted in rewarders if _ranks(weighted)]
    said = await _ask_all(first, context, executor)
    prior = replace(context, prior_scores=_totals(first, said, context))
    said |= await _ask_all(last, prior, executor)
    ordered = [(weighted.rewarder.rewarder_id, said[id(weighted)]) for weighted in rewarders]
    faults = {name: answer.reason for name, answer in ordered if isinstance(answer, Fault)}
    late = [answer.reason for _, answer in ordered if isinstance(answer, Fault) and answer.timed_out]
    verdicts = tuple(
        tuple(_verdict_at(weighted, said[id(weighted)], index) for weighted in rewarders)
        for index in range(len(context.outputs))
    )
    return GroupScores(verdicts, _totals(rewarders, said, context), faults, late[0] if late else None)


async def _ask_all(
    rewarders: Sequence[WeightedRewarder], context: RewardContext, executor: Executor
) -> dict[int, Said]:
    """Answers by identity of the weighted rewarder."""
    answers = await asyncio.gather(*(_ask(weighted, context, executor) for weighted in rewarders))
    return {id(weighted): answer for weighted, answer in zip(rewarders, answers, strict=True)}


async def _ask(weighted: WeightedRewarder, context: RewardContext, executor: Executor) -> Said:
    if _ranks(weighted) and len(context.prior_scores) < 2:
        reason = "fewer than two attempts have a total to rank"
        return tuple(Abstained(weighted.rewarder.rewarder_id, reason) for _ in context.outputs)
    return await Asker(executor, weighted.timeout_s).ask(weighted.rewarder, context)


def _verdict_at(weighted: WeightedRewarder, answer: Said, index: int) -> Verdict:
    if not isinstance(answer, Fault):
        verdict = answer[index]
        return replace(verdict, broke=False) if isinstance(verdict, Abstained) and not weighted.weight else verdict
    # A time limit that was exceeded has consequences of its own: it voids the epoch.
    return Abstained(weighted.rewarder.rewarder_id, answer.reason, broke=weighted.weight > 0 and not answer.timed_out)


def _totals(
    rewarders: Sequence[WeightedRewarder], said: Mapping[int, Said], context: RewardContext
) -> dict[str, float]:
    """``sum(weight * score) / sum(weight)`` for each attempt that every counting rewarder scored."""
    counting = [weighted for weighted in rewarders if weighted.weight > 0]
    totals = {}
    for index, attempt in enumerate(context.outputs):
        scores = [(weighted.weight, _score_at(said[id(weighted)], index)) for weighted in counting]
        known = [(weight, score) for weight, score in scores if score is not None]
        if known and len(known) == len(scores):
            totals[attempt.rollout_id] = round(weighted_mean(known), DECIMALS)
    return totals


def _score_at(answer: Said, index: int) -> float | None:
    verdict = None if isinstance(answer, Fault) else answer[index]
    return verdict.score if isinstance(verdict, RewardScore) else None


def _ranks(weighted: WeightedRewarder) -> bool:
    return bool(getattr(weighted.rewarder, "ranks", False))


def _compares(weighted: WeightedRewarder) -> bool:
    """Whether it has nothing to say of a single attempt."""
    return _ranks(weighted) or bool(getattr(weighted.rewarder, "compares", False))
