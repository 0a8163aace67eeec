"""Score one group with all its rewarders, each within its time limit, and compute the totals.

A rewarder that fails loses its own verdicts only. The caller decides what a missing verdict means for a rollout or epoch.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tfgrpo.rewarders.base import (
    DECIMALS,
    Abstained,
    Range,
    RewardContext,
    Rewarder,
    Verdict,
    abstain_on_all,
    declared_range,
    declares,
    weighted_mean,
)
from tfgrpo.rewarders.running import run_rewarder
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.errors import OptionError, PipelineError, Problem, RewardError, RewarderTimeout
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


class _Scored(NamedTuple):
    """A rewarder with its verdicts; all of them abstain when it had a fault."""

    weighted: WeightedRewarder
    verdicts: tuple[Verdict, ...]
    fault: RewardError | None = None


def check_rewarders(rewarders: Sequence[WeightedRewarder], *, group_size: int = 2) -> None:
    """Refuse rewarders without a total for groups of ``group_size``.

    Raises ``PipelineError``, with every problem, when no rewarder counts, when two have the same id, when the only
    ones that count rank the totals of others, when one that counts would rank a single attempt, or when one declares an
    invalid range.
    """
    problems = [Problem("rewarders", *fault) for fault in repeated_ids(each.rewarder for each in rewarders)]
    if all(declares(weighted.rewarder, "ranks") for weighted in counting(rewarders)):
        problems.append(
            Problem("rewarders", "no weight above 0 on a rewarder that scores outputs", "at least one, such as gt")
        )
    for weighted in rewarders:
        try:
            declared_range(weighted.rewarder, weighted.score_range)
        except OptionError as error:
            problems.append(Problem(f"rewarders: {weighted.rewarder.rewarder_id}", error.given, error.accepted))
    each = [weighted.rewarder for weighted in counting(rewarders)]
    alone = [one.rewarder_id for one in each if declares(one, "ranks") or declares(one, "compares")]
    if alone and group_size < 2:
        given = f"{', '.join(alone)} counting in groups of {group_size}, which cannot be ranked"
        problems.append(Problem("rewarders", given, "a weight of 0 for it, or groups: FEATURE_TFGRPO_GROUP on"))
    if problems:
        raise PipelineError(problems)


def repeated_ids(rewarders: Iterable[Rewarder]) -> list[tuple[str, str]]:
    """Return the problem that rewarders have the same id, and what is accepted; nothing when all differ."""
    repeated = sorted(name for name, count in Counter(each.rewarder_id for each in rewarders).items() if count > 1)
    return [(f"{', '.join(repeated)} more than once", "a rewarder_id of its own for each")] if repeated else []


def counting(rewarders: Iterable[WeightedRewarder]) -> tuple[WeightedRewarder, ...]:
    """Return the rewarders with a weight above 0."""
    return tuple(weighted for weighted in rewarders if weighted.weight > 0)


def total_range(rewarders: Iterable[WeightedRewarder], *, or_zero: bool = False) -> Range:
    """Return the range of the total: the weighted means of the lower and of the upper ends. Raises ``ValueError``.

    ``or_zero``: each score may also be 0.
    """
    ranges = [(each.weight, declared_range(each.rewarder, each.score_range)) for each in counting(rewarders)]
    if or_zero:
        ranges = [(weight, (min(0.0, low), max(0.0, high))) for weight, (low, high) in ranges]
    low = weighted_mean([(weight, ends[0]) for weight, ends in ranges])
    return low, weighted_mean([(weight, ends[1]) for weight, ends in ranges])


async def score_group(
    rewarders: Sequence[WeightedRewarder], context: RewardContext, threads: RewarderThreads
) -> GroupScores:
    """Score the attempts of one group with every rewarder; blocking ones run off the event loop.

    Rewarders of outputs run concurrently; those with a class attribute ``ranks = True`` run afterwards and read the totals
    so far from ``context.prior_scores``. Rewarders with ``quick = True`` run inline when the outputs are short, those with
    ``async def score`` on the event loop.

    Errors of rewarders become faults; a call past its time limit is abandoned.
    """
    first = [weighted for weighted in rewarders if not declares(weighted.rewarder, "ranks")]
    last = [weighted for weighted in rewarders if declares(weighted.rewarder, "ranks")]
    scored = await asyncio.gather(*(_run(weighted, context, threads) for weighted in first))
    prior = replace(context, prior_scores=_totals(scored, context))
    scored += await asyncio.gather(*(_run(weighted, prior, threads) for weighted in last))
    by_rewarder = {id(each.weighted): each for each in scored}
    scored = [by_rewarder[id(weighted)] for weighted in rewarders]
    faults = {each.weighted.rewarder.rewarder_id: str(each.fault) for each in scored if each.fault}
    late = next((str(each.fault) for each in scored if isinstance(each.fault, RewarderTimeout)), None)
    verdicts = tuple(tuple(each.verdicts[index] for each in scored) for index in range(len(context.outputs)))
    return GroupScores(verdicts, _totals(scored, context), faults, late)


async def _run(weighted: WeightedRewarder, context: RewardContext, threads: RewarderThreads) -> _Scored:
    rewarder = weighted.rewarder
    if declares(rewarder, "ranks") and len(context.prior_scores) < 2:
        abstained = abstain_on_all(rewarder, context, "fewer than two attempts have a total to rank")
        return _Scored(weighted, tuple(abstained))
    try:
        verdicts = await run_rewarder(threads, weighted.timeout_s, rewarder, context)
    except RewardError as error:
        # An exceeded time limit has another consequence: it voids the epoch.
        broke = weighted.weight > 0 and not isinstance(error, RewarderTimeout)
        lost = Abstained(rewarder.rewarder_id, str(error), broke=broke)
        return _Scored(weighted, (lost,) * len(context.outputs), error)
    if not weighted.weight:
        # What does not count makes no attempt a broken one.
        verdicts = tuple(replace(each, broke=False) if isinstance(each, Abstained) else each for each in verdicts)
    return _Scored(weighted, verdicts)


def _totals(scored: Sequence[_Scored], context: RewardContext) -> dict[str, float]:
    """Return ``sum(weight * score) / sum(weight)`` for each attempt that every counting rewarder scored."""
    counted = [(each.weighted.weight, each.verdicts) for each in scored if each.weighted.weight > 0]
    totals = {}
    for index, attempt in enumerate(context.outputs):
        given = [(weight, verdicts[index]) for weight, verdicts in counted]
        known = [(weight, verdict.score) for weight, verdict in given if isinstance(verdict, RewardScore)]
        if known and len(known) == len(given):
            totals[attempt.rollout_id] = round(weighted_mean(known), DECIMALS)
    return totals
