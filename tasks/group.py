"""Run one group: G rollouts of an item, score them, reflect if their rewards differ.

It writes no file and does not end the run: a refused budget or a dead endpoint is reported in the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter

from tfgrpo.rewarders.advantages.group import group_advantage, relative_ranks
from tfgrpo.rewarders.base import UNIT, Abstained, Attempt, Range, Verdict
from tfgrpo.rewarders.scoring import score_group, total_range
from tfgrpo.stores.outcomes import REWARDER_BROKE, Outcome, Refused, RewardScore, Scored, Signal, Ungraded, classify
from tfgrpo.stores.telemetry.names import Attributes
from tfgrpo.tasks.learning.reflect import RankedAttempt, Reflection, reflect_on_group
from tfgrpo.tasks.learning.summarize import shorten_middle, summarize_trajectory
from tfgrpo.tasks.models.endpoint import scrubbed
from tfgrpo.tasks.rollout import FinishedRollout, run_rollout
from tfgrpo.tasks.runtime.judging import GroupJudge
from tfgrpo.tasks.runtime.observing import observe_group, observe_scores
from tfgrpo.tasks.runtime.runtime import Runtime
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
    """All attempts of a group with their scores and outcomes, by rollout id."""

    rollouts: Sequence[FinishedRollout]
    scores: Mapping[str, tuple[RewardScore, ...]]
    outcomes: Mapping[str, Outcome]
    comparison: GroupComparison
    timed_out: str | None
    """The fault of a rewarder that exceeded its time limit."""


async def run_group(spec: GroupSpec, runtime: Runtime, carrier: Mapping[str, str] | None = None) -> GroupResult:
    """Run, score and compare the attempts, and reflect if the group is informative. Raises only cancellation.

    ``carrier`` is the trace context of the group; None: that of the run.
    """
    telemetry = runtime.telemetry
    with (
        telemetry.attached(runtime.context.carrier if carrier is None else carrier),
        telemetry.span("tfgrpo.group", **(_span_attributes(spec) | {"arm": spec.key.arm})) as span,
    ):
        result = await _run(spec, runtime)
        observe_group(telemetry, span, spec, result, runtime.context.settings.actor.kind)
    return result


async def _run(spec: GroupSpec, runtime: Runtime) -> GroupResult:
    start = perf_counter()
    judge = GroupJudge(spec, runtime)
    graded = await _graded(spec, judge, runtime)
    rollouts, comparison, judging = graded.rollouts, graded.comparison, judge.spend
    losses = [rollout.loss for rollout in rollouts]
    refused = next((loss.reason for loss in losses if isinstance(loss, Refused)), None) or judging.budget_refused
    fatal = next((rollout.fatal for rollout in rollouts if rollout.fatal), None) or judging.fatal
    # A reflection would be wasted when the run ends with this group.
    reflection = Reflection() if refused or fatal else await _reflection(spec, rollouts, comparison, runtime)
    learning = reflection.spend
    with runtime.telemetry.span("tfgrpo.summarize", **_span_attributes(spec)):
        records = tuple(_record(spec, rollout, graded, runtime) for rollout in rollouts)
    return GroupResult(
        group_id=spec.group_id,
        key=spec.key,
        rollouts=records,
        signal=comparison.signal,
        mean_reward=comparison.mean,
        spread=comparison.spread,
        proposals=reflection.proposals,
        rejected=reflection.rejected,
        reflection_failure=learning.failure,
        learning=learning.usage,
        rewarder_fault=graded.timed_out,
        judging=judging.usage,
        budget_refused=refused or learning.budget_refused,
        fatal=fatal or learning.fatal,
        duration_s=perf_counter() - start,
        broken_calls=(*judging.broken, *learning.broken),
    )


def _span_attributes(spec: GroupSpec) -> Attributes:
    return {
        "epoch": spec.key.epoch,
        "phase": spec.key.phase,
        "group_id": spec.group_id,
        "item_id": spec.item.id,
        "group_size": spec.size,
    }


async def _graded(spec: GroupSpec, judge: GroupJudge, runtime: Runtime) -> _Graded:
    """Run and score all attempts; their spans stay open until they are scored, or this is cancelled."""
    with ExitStack() as until_graded:
        rollouts = await asyncio.gather(
            *(run_rollout(spec, index, runtime, until_graded) for index in range(spec.size))
        )
        answered = [rollout for rollout in rollouts if rollout.loss is None]
        raw = await score_group(runtime.rewarders, judge.context(list(map(_attempt, answered))), runtime.threads)
        scores = scrubbed(raw, runtime.scrub)
        known = dict(zip((rollout.rollout_id for rollout in answered), scores.verdicts, strict=True))
        comparison = compare(scores.totals, runtime.context.settings.tfgrpo.min_spread, _score_range(runtime))
        outcomes: dict[str, Outcome] = {}
        given: dict[str, tuple[RewardScore, ...]] = {}
        for rollout in rollouts:
            name = rollout.rollout_id
            verdicts, reward = known.get(name, ()), scores.totals.get(name)
            given[name] = tuple(verdict for verdict in verdicts if isinstance(verdict, RewardScore))
            outcomes[name] = rollout.loss or _outcome(verdicts, given[name], reward)
            if rollout.span is not None:
                rollout.span.set(outcome=outcomes[name].name, reward=reward, relative_rank=comparison.ranks.get(name))
                observe_scores(rollout.span, given[name], runtime.rewarders)
    return _Graded(rollouts, given, outcomes, comparison, scores.timed_out)


def _score_range(runtime: Runtime) -> Range:
    """Return the range of the reward; runs of older learning rules keep the signals of 0 to 1."""
    if runtime.context.rules < 3 or not any(each.weight > 0 for each in runtime.rewarders):
        return UNIT
    return total_range(runtime.rewarders)


def compare(rewards: Mapping[str, float], min_spread: float = 0.0, score_range: Range = UNIT) -> GroupComparison:
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


def _outcome(verdicts: Sequence[Verdict], scores: tuple[RewardScore, ...], reward: float | None) -> Outcome:
    """Return the outcome of a rollout that could be graded. ``reward``: its total, None without one."""
    if reward is not None:
        return Scored(reward, scores)
    silent = [verdict for verdict in verdicts if isinstance(verdict, Abstained)]
    reason = "; ".join(verdict.message for verdict in silent) or "no rewarder that counts gave a score"
    return Ungraded(REWARDER_BROKE if any(verdict.broke for verdict in silent) else "rewarder", reason)


def _attempt(rollout: FinishedRollout) -> Attempt:
    return Attempt(rollout.rollout_id, rollout.index, rollout.output, rollout.usage.completion_tokens)


async def _reflection(
    spec: GroupSpec, rollouts: Sequence[FinishedRollout], comparison: GroupComparison, runtime: Runtime
) -> Reflection:
    if not spec.reflect or comparison.signal != "mixed" or comparison.spread is None:
        return Reflection()
    ranked = [
        RankedAttempt(rollout, comparison.rewards[rollout.rollout_id], comparison.ranks[rollout.rollout_id])
        for rollout in rollouts
        if rollout.rollout_id in comparison.rewards
    ]
    # Queued behind waiting rollouts: the longest chain of a batch is a rollout with its reflection.
    async with runtime.slots:
        with runtime.telemetry.span("tfgrpo.extract", **_span_attributes(spec)):
            return await reflect_on_group(spec, ranked, comparison.spread, runtime)


def _record(spec: GroupSpec, rollout: FinishedRollout, graded: _Graded, runtime: Runtime) -> RolloutRecord:
    name = rollout.rollout_id
    return RolloutRecord(
        rollout_id=name,
        group_id=spec.group_id,
        key=spec.key,
        index=rollout.index,
        outcome=graded.outcomes[name],
        scores=graded.scores.get(name, ()),
        advantage=graded.comparison.advantages.get(name),
        relative_rank=graded.comparison.ranks.get(name),
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
