"""Run one group: G rollouts of an item, score them, reflect if their rewards differ.

It writes no file and does not end the run: a refused budget or a dead endpoint is reported in the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from time import perf_counter

from tfgrpo.rewarders.advantages.group import group_advantage, relative_ranks
from tfgrpo.rewarders.base import UNIT, Abstained, Attempt, Range
from tfgrpo.rewarders.scoring import GroupScores, score_group, total_range
from tfgrpo.stores.outcomes import REWARDER_BROKE, Outcome, RewardScore, Scored, Signal, Ungraded, is_highest, is_lowest
from tfgrpo.stores.telemetry.names import EPOCH, GROUP_ID, GROUP_SIZE, ITEM_ID, PHASE, SPAN_EXTRACT, SPAN_SUMMARIZE
from tfgrpo.tasks.learning.ask import Spend
from tfgrpo.tasks.learning.reflect import RankedAttempt, Reflection, reflect_on_group
from tfgrpo.tasks.learning.summarize import shorten_middle, summarize_trajectory
from tfgrpo.tasks.rollout import FinishedRollout, run_rollout
from tfgrpo.tasks.runtime.judging import GroupJudge
from tfgrpo.tasks.runtime.observing import observe_group, observe_verdict
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.runtime.scrubbing import scrubbed_scores
from tfgrpo.tasks.shapes import GroupResult, GroupSpec, RolloutRecord

RECORDED_CHARS = 2_000
"""Most characters of an answer in ``rollouts.jsonl``; the whole answer is in the journal."""


@dataclass(frozen=True, slots=True)
class GroupComparison:
    """Comparison of the scored attempts of a group, by rollout id."""

    rewards: Mapping[str, float]
    advantages: Mapping[str, float]
    ranks: Mapping[str, float]
    mean: float | None
    spread: float | None
    """Population standard deviation of the rewards; None without any."""
    signal: Signal


@dataclass(frozen=True, slots=True)
class _Graded:
    """All attempts of a group with their scores."""

    rollouts: Sequence[FinishedRollout]
    scores: GroupScores
    outcomes: Mapping[str, Outcome]
    """By rollout id."""
    comparison: GroupComparison


async def run_group(spec: GroupSpec, runtime: Runtime, carrier: Mapping[str, str] | None = None) -> GroupResult:
    """Run, score and compare the attempts, and reflect if the group is informative. Raises only cancellation.

    ``carrier`` is the trace context of the group; None: that of the run.
    """
    telemetry = runtime.telemetry
    with (
        telemetry.attached(runtime.context.carrier if carrier is None else carrier),
        telemetry.group_span(
            epoch=spec.key.epoch,
            phase=spec.key.phase,
            group_id=spec.group_id,
            item_id=spec.item.id,
            group_size=spec.size,
            arm=spec.key.arm,
        ) as span,
    ):
        result = await _run(spec, runtime)
        observe_group(telemetry, span, spec, result, runtime.context.settings.actor.kind)
    return result


async def _run(spec: GroupSpec, runtime: Runtime) -> GroupResult:
    start = perf_counter()
    judge = GroupJudge(spec, runtime)
    graded = await _graded(spec, judge, runtime)
    rollouts, comparison = graded.rollouts, graded.comparison
    stopped = judge.spend.budget_refused or judge.spend.fatal
    reflection = _no_reflection() if stopped else await _reflection(spec, rollouts, comparison, runtime)
    with runtime.telemetry.span(SPAN_SUMMARIZE, _span_fields(spec)):
        records = tuple(
            _record(spec, rollout, graded.outcomes, _scores_at(graded.scores, position), comparison, runtime)
            for rollout, position in _indexed(rollouts)
        )
    result = _result(spec, rollouts, records, comparison, reflection, judge.spend)
    return replace(result, rewarder_fault=graded.scores.timed_out, duration_s=perf_counter() - start)


def _span_fields(spec: GroupSpec) -> dict[str, str | int]:
    return {
        EPOCH: spec.key.epoch,
        PHASE: spec.key.phase,
        GROUP_ID: spec.group_id,
        ITEM_ID: spec.item.id,
        GROUP_SIZE: spec.size,
    }


async def _graded(spec: GroupSpec, judge: GroupJudge, runtime: Runtime) -> _Graded:
    """Run and score all attempts; their spans stay open until they are scored, or this is cancelled."""
    with ExitStack() as until_graded:
        rollouts = await asyncio.gather(
            *(run_rollout(spec, index, runtime, until_graded) for index in range(spec.size))
        )
        raw = await score_group(runtime.rewarders, judge.context(_attempts(rollouts)), runtime.threads)
        scores = scrubbed_scores(raw, runtime.scrub)
        indexed = _indexed(rollouts)
        outcomes = {rollout.rollout_id: outcome_of(rollout, scores, position) for rollout, position in indexed}
        rewards = {name: outcome.reward for name, outcome in outcomes.items() if isinstance(outcome, Scored)}
        comparison = compare(rewards, runtime.context.settings.tfgrpo.min_spread, _score_range(runtime))
        for rollout, position in indexed:
            name = rollout.rollout_id
            observe_verdict(
                rollout.span,
                outcomes[name],
                comparison.ranks.get(name),
                _scores_at(scores, position),
                runtime.rewarders,
            )
    return _Graded(rollouts, scores, outcomes, comparison)


def _score_range(runtime: Runtime) -> Range:
    """Return the range of the reward; runs of older learning rules keep the signals of 0 to 1."""
    if runtime.context.rules < 3 or not any(each.weight > 0 for each in runtime.rewarders):
        return UNIT
    return total_range(runtime.rewarders)


def compare(rewards: Mapping[str, float], min_spread: float, score_range: Range = UNIT) -> GroupComparison:
    """Return advantages, ranks and signal of the scored attempts. A single one has advantage 0 and no rank."""
    if not rewards:
        return GroupComparison({}, {}, {}, None, None, "lost")
    values = list(rewards.values())
    advantage = group_advantage(values)
    return GroupComparison(
        rewards=rewards,
        advantages=dict(zip(rewards, advantage.advantages, strict=True)),
        ranks=dict(zip(rewards, relative_ranks(values), strict=True)) if len(values) > 1 else {},
        mean=advantage.mean,
        spread=advantage.std,
        signal=classify(values, advantage.std, min_spread, score_range),
    )


def classify(rewards: Sequence[float], spread: float, min_spread: float, score_range: Range = UNIT) -> Signal:
    """Return the signal of a group. Equal rewards are never ``mixed``, however small ``min_spread`` is."""
    if len(rewards) < 2:
        return "lost"
    if spread > 0.0 and spread >= min_spread:
        return "mixed"
    if is_highest(min(rewards), score_range):
        return "all_pass"
    return "all_fail" if is_lowest(max(rewards), score_range) else "flat"


def outcome_of(rollout: FinishedRollout, scores: GroupScores, position: int | None) -> Outcome:
    """Return the outcome of a rollout. ``position`` is its index among the graded ones, None if it was not graded."""
    if rollout.loss is not None:
        return rollout.loss
    if position is None:
        raise ValueError(f"rollout {rollout.rollout_id} ended with an output but was not graded")
    reward = scores.totals.get(rollout.rollout_id)
    if reward is not None:
        return Scored(reward, _scores_at(scores, position))
    silent = [verdict for verdict in scores.verdicts[position] if isinstance(verdict, Abstained)]
    reason = "; ".join(verdict.message for verdict in silent) or "no rewarder that counts gave a score"
    return Ungraded(REWARDER_BROKE if any(verdict.broke for verdict in silent) else "rewarder", reason)


def _indexed(rollouts: Sequence[FinishedRollout]) -> list[tuple[FinishedRollout, int | None]]:
    """Return every rollout with its index among the graded ones."""
    position = 0
    indexed: list[tuple[FinishedRollout, int | None]] = []
    for rollout in rollouts:
        graded = rollout.loss is None
        indexed.append((rollout, position if graded else None))
        position += graded
    return indexed


def _scores_at(scores: GroupScores, position: int | None) -> tuple[RewardScore, ...]:
    if position is None:
        return ()
    return tuple(verdict for verdict in scores.verdicts[position] if isinstance(verdict, RewardScore))


def _attempts(rollouts: Sequence[FinishedRollout]) -> list[Attempt]:
    return [
        Attempt(rollout.rollout_id, rollout.index, rollout.output, rollout.usage.completion_tokens)
        for rollout in rollouts
        if rollout.loss is None
    ]


async def _reflection(
    spec: GroupSpec, rollouts: Sequence[FinishedRollout], comparison: GroupComparison, runtime: Runtime
) -> Reflection:
    if not spec.reflect or comparison.signal != "mixed" or comparison.spread is None or _stopped(rollouts):
        return _no_reflection()
    ranked = [
        RankedAttempt(rollout, comparison.rewards[rollout.rollout_id], comparison.ranks[rollout.rollout_id])
        for rollout in rollouts
        if rollout.rollout_id in comparison.rewards
    ]
    # Queued behind waiting rollouts: the longest chain of a batch is a rollout with its reflection.
    async with runtime.slots:
        with runtime.telemetry.span(SPAN_EXTRACT, _span_fields(spec)):
            return await reflect_on_group(spec, ranked, comparison.spread, runtime)


def _no_reflection() -> Reflection:
    return Reflection((), (), Spend())


def _stopped(rollouts: Sequence[FinishedRollout]) -> bool:
    """Return whether the run ends with this group, so that a reflection would be wasted."""
    return any(rollout.fatal for rollout in rollouts) or _refusal(rollouts) is not None


def _refusal(rollouts: Sequence[FinishedRollout]) -> str | None:
    losses = [rollout.loss for rollout in rollouts]
    return next((loss.reason for loss in losses if loss is not None and loss.name == "refused"), None)


def _record(
    spec: GroupSpec,
    rollout: FinishedRollout,
    outcomes: Mapping[str, Outcome],
    scores: tuple[RewardScore, ...],
    comparison: GroupComparison,
    runtime: Runtime,
) -> RolloutRecord:
    name = rollout.rollout_id
    return RolloutRecord(
        rollout_id=name,
        group_id=spec.group_id,
        key=spec.key,
        index=rollout.index,
        outcome=outcomes[name],
        scores=scores,
        advantage=comparison.advantages.get(name),
        relative_rank=comparison.ranks.get(name),
        output=shorten_middle(rollout.output, RECORDED_CHARS),
        summary=summarize_trajectory(
            rollout.frames, rollout.output, max_words=runtime.max_words, max_chars=runtime.max_chars
        ),
        tools=rollout.tools,
        usage=rollout.usage,
        latency_s=rollout.latency_s,
        seed=rollout.seed,
        prompt_digest=spec.pack.digest,
        finish_reason=rollout.trajectory.finish_reason if rollout.trajectory else "none",
    )


def _result(
    spec: GroupSpec,
    rollouts: Sequence[FinishedRollout],
    records: tuple[RolloutRecord, ...],
    comparison: GroupComparison,
    reflection: Reflection,
    judging: Spend,
) -> GroupResult:
    spend = reflection.spend
    return GroupResult(
        group_id=spec.group_id,
        key=spec.key,
        rollouts=records,
        signal=comparison.signal,
        mean_reward=comparison.mean,
        spread=comparison.spread,
        proposals=reflection.proposals,
        rejected=reflection.rejected,
        reflection_failure=spend.failure,
        learning=spend.usage,
        rewarder_fault=None,
        judging=judging.usage,
        budget_refused=_refusal(rollouts) or judging.budget_refused or spend.budget_refused,
        fatal=next((rollout.fatal for rollout in rollouts if rollout.fatal), None) or judging.fatal or spend.fatal,
        duration_s=0.0,
        broken_calls=(*judging.broken, *spend.broken),
    )
