"""What came of one group? G attempts at one item, graded together, compared, and reflected on when they differ.

The whole group runs here, whatever becomes of single attempts. It writes nothing to disk and decides nothing about the
run: a refused budget or a dead endpoint is reported in the result.
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
class Standing:
    """How the scored attempts of a group stand to each other, by rollout id."""

    rewards: Mapping[str, float]
    advantages: Mapping[str, float]
    ranks: Mapping[str, float]
    mean: float | None
    spread: float | None
    """Population standard deviation of the rewards; None without any."""
    signal: Signal


@dataclass(frozen=True, slots=True)
class _Graded:
    """All attempts of a group, with what was said of them."""

    rollouts: Sequence[FinishedRollout]
    scores: GroupScores
    outcomes: Mapping[str, Outcome]
    """By rollout id."""
    standing: Standing


async def run_group(spec: GroupSpec, runtime: Runtime, carrier: Mapping[str, str] | None = None) -> GroupResult:
    """Run, grade, compare and, where the group teaches something, reflect. Raises nothing but cancellation.

    ``carrier`` is the place of the group in the trace; None: that of the run.
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
    rollouts, standing = graded.rollouts, graded.standing
    stopped = judge.spend.budget_refused or judge.spend.fatal
    reflection = _no_reflection() if stopped else await _reflection(spec, rollouts, standing, runtime)
    with runtime.telemetry.span(SPAN_SUMMARIZE, _where(spec)):
        records = tuple(
            _record(spec, rollout, graded.outcomes, _given(graded.scores, place), standing, runtime)
            for rollout, place in _placed(rollouts)
        )
    result = _result(spec, rollouts, records, standing, reflection, judge.spend)
    return replace(result, rewarder_fault=graded.scores.timed_out, duration_s=perf_counter() - start)


def _where(spec: GroupSpec) -> dict[str, str | int]:
    return {
        EPOCH: spec.key.epoch,
        PHASE: spec.key.phase,
        GROUP_ID: spec.group_id,
        ITEM_ID: spec.item.id,
        GROUP_SIZE: spec.size,
    }


async def _graded(spec: GroupSpec, judge: GroupJudge, runtime: Runtime) -> _Graded:
    """All attempts and what they are worth. Their spans are open until that is known, or until this is cancelled."""
    with ExitStack() as until_graded:
        rollouts = await asyncio.gather(
            *(run_rollout(spec, index, runtime, until_graded) for index in range(spec.size))
        )
        said = await score_group(runtime.rewarders, judge.context(_attempts(rollouts)), runtime.threads)
        scores = scrubbed_scores(said, runtime.scrub)
        placed = _placed(rollouts)
        outcomes = {rollout.rollout_id: outcome_of(rollout, scores, place) for rollout, place in placed}
        rewards = {name: outcome.reward for name, outcome in outcomes.items() if isinstance(outcome, Scored)}
        standing = compare(rewards, runtime.context.settings.tfgrpo.min_spread, _score_range(runtime))
        for rollout, place in placed:
            name = rollout.rollout_id
            observe_verdict(
                rollout.span, outcomes[name], standing.ranks.get(name), _given(scores, place), runtime.rewarders
            )
    return _Graded(rollouts, scores, outcomes, standing)


def _score_range(runtime: Runtime) -> Range:
    """Return the range of the reward; runs of older learning rules keep the signals of 0 to 1."""
    if runtime.context.rules < 3 or not any(each.weight > 0 for each in runtime.rewarders):
        return UNIT
    return total_range(runtime.rewarders)


def compare(rewards: Mapping[str, float], min_spread: float, score_range: Range = UNIT) -> Standing:
    """Advantages, ranks and signal of the scored attempts. One alone has an advantage of 0 and no rank."""
    if not rewards:
        return Standing({}, {}, {}, None, None, "lost")
    values = list(rewards.values())
    advantage = group_advantage(values)
    return Standing(
        rewards=rewards,
        advantages=dict(zip(rewards, advantage.advantages, strict=True)),
        ranks=dict(zip(rewards, relative_ranks(values), strict=True)) if len(values) > 1 else {},
        mean=advantage.mean,
        spread=advantage.std,
        signal=classify(values, advantage.std, min_spread, score_range),
    )


def classify(rewards: Sequence[float], spread: float, min_spread: float, score_range: Range = UNIT) -> Signal:
    """What a group can teach. Equal rewards teach nothing, however small ``min_spread`` is."""
    if len(rewards) < 2:
        return "lost"
    if spread > 0.0 and spread >= min_spread:
        return "mixed"
    if is_highest(min(rewards), score_range):
        return "all_pass"
    return "all_fail" if is_lowest(max(rewards), score_range) else "flat"


def outcome_of(rollout: FinishedRollout, scores: GroupScores, position: int | None) -> Outcome:
    """The typed end of a rollout. ``position`` is its place among the graded ones, None when it was not graded."""
    if rollout.loss is not None:
        return rollout.loss
    if position is None:
        raise ValueError(f"rollout {rollout.rollout_id} ended with an output but was not graded")
    reward = scores.totals.get(rollout.rollout_id)
    if reward is not None:
        return Scored(reward, _given(scores, position))
    silent = [verdict for verdict in scores.verdicts[position] if isinstance(verdict, Abstained)]
    reason = "; ".join(verdict.message for verdict in silent) or "no rewarder that counts gave a score"
    return Ungraded(REWARDER_BROKE if any(verdict.broke for verdict in silent) else "rewarder", reason)


def _placed(rollouts: Sequence[FinishedRollout]) -> list[tuple[FinishedRollout, int | None]]:
    """Every rollout with its place among those that are graded."""
    place = 0
    placed: list[tuple[FinishedRollout, int | None]] = []
    for rollout in rollouts:
        graded = rollout.loss is None
        placed.append((rollout, place if graded else None))
        place += graded
    return placed


def _given(scores: GroupScores, position: int | None) -> tuple[RewardScore, ...]:
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
    spec: GroupSpec, rollouts: Sequence[FinishedRollout], standing: Standing, runtime: Runtime
) -> Reflection:
    if not spec.reflect or standing.signal != "mixed" or standing.spread is None or _stopped(rollouts):
        return _no_reflection()
    ranked = [
        RankedAttempt(rollout, standing.rewards[rollout.rollout_id], standing.ranks[rollout.rollout_id])
        for rollout in rollouts
        if rollout.rollout_id in standing.rewards
    ]
    # Behind the rollouts that wait for a slot: the longest chain of a batch, rollout then reflection, begins first.
    async with runtime.slots:
        with runtime.telemetry.span(SPAN_EXTRACT, _where(spec)):
            return await reflect_on_group(spec, ranked, standing.spread, runtime)


def _no_reflection() -> Reflection:
    return Reflection((), (), Spend())


def _stopped(rollouts: Sequence[FinishedRollout]) -> bool:
    """Whether the run ends with this group anyway, so that reflecting would only spend."""
    return any(rollout.fatal for rollout in rollouts) or _refusal(rollouts) is not None


def _refusal(rollouts: Sequence[FinishedRollout]) -> str | None:
    losses = [rollout.loss for rollout in rollouts]
    return next((loss.reason for loss in losses if loss is not None and loss.name == "refused"), None)


def _record(
    spec: GroupSpec,
    rollout: FinishedRollout,
    outcomes: Mapping[str, Outcome],
    scores: tuple[RewardScore, ...],
    standing: Standing,
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
        advantage=standing.advantages.get(name),
        relative_rank=standing.ranks.get(name),
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
    standing: Standing,
    reflection: Reflection,
    judging: Spend,
) -> GroupResult:
    spend = reflection.spend
    return GroupResult(
        group_id=spec.group_id,
        key=spec.key,
        rollouts=records,
        signal=standing.signal,
        mean_reward=standing.mean,
        spread=standing.spread,
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
