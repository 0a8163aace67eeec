"""Score one group with all its rewarders, each within its time limit, and compute the totals.

A rewarder that fails loses its own verdicts only. The caller decides what a missing verdict means for a rollout or epoch.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from tfgrpo.rewarders.base import (
    DECIMALS,
    Abstained,
    Range,
    RewardContext,
    Rewarder,
    Verdict,
    abstain_on_all,
    declared_range,
    weighted_mean,
)
from tfgrpo.rewarders.running import Fault, Outcome, RewarderRunner
from tfgrpo.stores.errors import OptionError, PipelineError, Problem
from tfgrpo.stores.outcomes import RewardScore


@dataclass(frozen=True, slots=True)
class WeightedRewarder:
    """A rewarder with its share in the total and its time limit for one group."""

    rewarder: Rewarder
    weight: float = 1.0
    """Relative to the other weights. 0: recorded, not counted."""
    timeout_s: float | None = None
    """Seconds from its start. None: 30, or 600 for one that calls a model."""
    score_range: Range | None = None
    """Lowest and highest score. None: as the rewarder declares."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight) and self.weight >= 0):
            raise OptionError(f"weight is {self.weight}", "a finite number of at least 0")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise OptionError(f"timeout_s is {self.timeout_s}", "more than 0")


@dataclass(frozen=True, slots=True)
class GroupScores:
    """Verdicts and totals of one group."""

    verdicts: tuple[tuple[Verdict, ...], ...]
    """For each attempt, one verdict of each rewarder, in order. A rewarder that failed has abstained."""
    totals: Mapping[str, float]
    """Weighted mean of the scores by rollout id; only where every rewarder of weight above 0 gave a score."""
    faults: Mapping[str, str]
    """Reasons of missing verdicts by rewarder id, exceeded time limits included."""
    timed_out: str | None
    """The fault of the first rewarder that exceeded its time limit: the epoch's evidence is void."""


def check_rewarders(rewarders: Sequence[WeightedRewarder], *, group_size: int = 2) -> None:
    """Refuse rewarders without a total for groups of ``group_size``.

    Raises ``PipelineError``, with every problem, when no rewarder counts, when two have the same id, when the only
    ones that count rank the totals of others, when one that counts would rank a single attempt, or when one declares an
    invalid range.
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
    for weighted in rewarders:
        try:
            declared_range(weighted.rewarder, weighted.score_range)
        except OptionError as error:
            problems.append(Problem(f"rewarders: {weighted.rewarder.rewarder_id}", error.given, error.accepted))
    alone = [weighted.rewarder.rewarder_id for weighted in rewarders if weighted.weight > 0 and _compares(weighted)]
    if alone and group_size < 2:
        given = f"{', '.join(alone)} counting in groups of {group_size}, which cannot be ranked"
        problems.append(Problem("rewarders", given, "a weight of 0 for it, or groups: FEATURE_TFGRPO_GROUP on"))
    if problems:
        raise PipelineError(problems)


def total_range(rewarders: Sequence[WeightedRewarder]) -> Range:
    """Return the range of the total: the weighted means of the lower and of the upper ends. Raises ``ValueError``."""
    counting = [weighted for weighted in rewarders if weighted.weight > 0]
    ranges = [(weighted.weight, declared_range(weighted.rewarder, weighted.score_range)) for weighted in counting]
    low = weighted_mean([(weight, ends[0]) for weight, ends in ranges])
    return low, weighted_mean([(weight, ends[1]) for weight, ends in ranges])


async def score_group(rewarders: Sequence[WeightedRewarder], context: RewardContext, executor: Executor) -> GroupScores:
    """Score the attempts of one group with every rewarder; blocking ones run off the event loop.

    Rewarders of outputs run concurrently; those with a class attribute ``ranks = True`` run afterwards and read the totals
    so far from ``context.prior_scores``. Rewarders with ``quick = True`` run inline when the outputs are short, those with
    ``async def score`` on the event loop.

    ``executor`` should be a ``RewarderThreads``, which abandons a call past its time limit. With any other executor a
    hanging call keeps its thread, and waiting for a thread counts towards the limit. Errors of rewarders become faults.
    """
    first = [weighted for weighted in rewarders if not _ranks(weighted)]
    last = [weighted for weighted in rewarders if _ranks(weighted)]
    outcomes = await _run_all(first, context, executor)
    prior = replace(context, prior_scores=_totals(first, outcomes, context))
    outcomes |= await _run_all(last, prior, executor)
    ordered = [(weighted.rewarder.rewarder_id, outcomes[id(weighted)]) for weighted in rewarders]
    faults = {name: outcome.reason for name, outcome in ordered if isinstance(outcome, Fault)}
    late = [outcome.reason for _, outcome in ordered if isinstance(outcome, Fault) and outcome.timed_out]
    verdicts = tuple(
        tuple(_verdict_at(weighted, outcomes[id(weighted)], index) for weighted in rewarders)
        for index in range(len(context.outputs))
    )
    return GroupScores(verdicts, _totals(rewarders, outcomes, context), faults, late[0] if late else None)


async def _run_all(
    rewarders: Sequence[WeightedRewarder], context: RewardContext, executor: Executor
) -> dict[int, Outcome]:
    """Return outcomes by identity of the weighted rewarder."""

    async def run(weighted: WeightedRewarder) -> Outcome:
        if _ranks(weighted) and len(context.prior_scores) < 2:
            return tuple(abstain_on_all(weighted.rewarder, context, "fewer than two attempts have a total to rank"))
        return await RewarderRunner(executor, weighted.timeout_s).run(weighted.rewarder, context)

    outcomes = await asyncio.gather(*map(run, rewarders))
    return {id(weighted): outcome for weighted, outcome in zip(rewarders, outcomes, strict=True)}


def _verdict_at(weighted: WeightedRewarder, outcome: Outcome, index: int) -> Verdict:
    if not isinstance(outcome, Fault):
        verdict = outcome[index]
        return replace(verdict, broke=False) if isinstance(verdict, Abstained) and not weighted.weight else verdict
    # An exceeded time limit has another consequence: it voids the epoch.
    return Abstained(weighted.rewarder.rewarder_id, outcome.reason, broke=weighted.weight > 0 and not outcome.timed_out)


def _totals(
    rewarders: Sequence[WeightedRewarder], outcomes: Mapping[int, Outcome], context: RewardContext
) -> dict[str, float]:
    """Return ``sum(weight * score) / sum(weight)`` for each attempt that every counting rewarder scored."""
    counting = [weighted for weighted in rewarders if weighted.weight > 0]
    totals = {}
    for index, attempt in enumerate(context.outputs):
        verdicts = [(weighted.weight, _verdict_at(weighted, outcomes[id(weighted)], index)) for weighted in counting]
        known = [(weight, verdict.score) for weight, verdict in verdicts if isinstance(verdict, RewardScore)]
        if known and len(known) == len(verdicts):
            totals[attempt.rollout_id] = round(weighted_mean(known), DECIMALS)
    return totals


def _ranks(weighted: WeightedRewarder) -> bool:
    return bool(getattr(weighted.rewarder, "ranks", False))


def _compares(weighted: WeightedRewarder) -> bool:
    """Return whether it cannot score a single attempt."""
    return _ranks(weighted) or bool(getattr(weighted.rewarder, "compares", False))
