"""Run one group: G rollouts of an item, score them, reflect if their rewards differ.

The halves of a split group (``GroupSpec.champion``) are scored, ranked and reflected on separately, unless one has a single
attempt: then all attempts are compared across the arms.

It writes no file and does not end the run: a refused budget or a dead endpoint is reported in the result.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

from tfgrpo.rewarders.advantages.group import group_advantage, relative_ranks
from tfgrpo.rewarders.base import UNIT, Abstained, Attempt, Range, Verdict
from tfgrpo.rewarders.scoring import score_group, total_range
from tfgrpo.stores.ledger.state import Usage
from tfgrpo.stores.outcomes import REWARDER_BROKE, Outcome, Refused, RewardScore, Scored, Signal, Ungraded, classify
from tfgrpo.stores.telemetry.names import Attributes
from tfgrpo.tasks.learning.ask import Spend
from tfgrpo.tasks.learning.reflect import RankedAttempt, Reflection, reflect_on_group
from tfgrpo.tasks.learning.summarize import shorten_middle, summarize_trajectory
from tfgrpo.tasks.models.endpoint import scrubbed
from tfgrpo.tasks.rollout import FinishedRollout, rollout_id_of, run_rollout
from tfgrpo.tasks.runtime.judging import GroupJudge
from tfgrpo.tasks.runtime.observing import observe_group, observe_scores
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.shapes import GroupResult, GroupSpec, HalfResult, RolloutRecord

T = TypeVar("T")
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
    """Attempts that are compared with each other, with their scores and outcomes by rollout id."""

    spec: GroupSpec
    """Of the half, or of the group."""
    rollouts: Sequence[FinishedRollout]
    scores: Mapping[str, tuple[RewardScore, ...]]
    outcomes: Mapping[str, Outcome]
    comparison: GroupComparison
    judging: Spend
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
    graded = await _graded(spec, runtime)
    rollouts = [rollout for part in graded for rollout in part.rollouts]
    refusals = (rollout.loss.reason for rollout in rollouts if isinstance(rollout.loss, Refused))
    refused = next(refusals, None) or _first(part.judging.budget_refused for part in graded)
    fatal = _first(rollout.fatal for rollout in rollouts) or _first(part.judging.fatal for part in graded)
    whole = _joined([part.comparison for part in graded])
    # A reflection would be wasted when the run ends with this group.
    asked = () if refused or fatal else _instructive(spec, graded, whole.signal, runtime)
    reflections = await asyncio.gather(*(_reflection(part, runtime) for part in asked))
    spends = [reflection.spend for reflection in reflections]
    with runtime.telemetry.span("tfgrpo.summarize", **_span_attributes(spec)):
        records = tuple(_records(spec, graded, runtime))
    return GroupResult(
        group_id=spec.group_id,
        key=spec.key,
        rollouts=records,
        signal=whole.signal,
        mean_reward=whole.mean,
        spread=whole.spread,
        proposals=tuple(proposal for reflection in reflections for proposal in reflection.proposals),
        rejected=tuple(pair for reflection in reflections for pair in reflection.rejected),
        judgements=tuple(judgement for reflection in reflections for judgement in reflection.judgements),
        reflection_failure=_first(spend.failure for spend in spends),
        learning=Usage.total(spend.usage for spend in spends),
        rewarder_fault=_first(part.timed_out for part in graded),
        judging=Usage.total(part.judging.usage for part in graded),
        budget_refused=refused or _first(spend.budget_refused for spend in spends),
        fatal=fatal or _first(spend.fatal for spend in spends),
        duration_s=perf_counter() - start,
        broken_calls=tuple(call for spend in (*(part.judging for part in graded), *spends) for call in spend.broken),
        halves=_halves(spec, whole.rewards, runtime),
    )


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value), None)


def _joined(parts: Sequence[GroupComparison]) -> GroupComparison:
    """Return the comparisons of the halves as one: the spread is pooled over their scored attempts."""
    if len(parts) == 1:
        return parts[0]
    rewards, advantages, ranks = (
        {name: value for part in parts for name, value in getattr(part, field).items()}
        for field in ("rewards", "advantages", "ranks")
    )
    squares = math.fsum(len(part.rewards) * part.spread**2 for part in parts if part.spread is not None)
    signals = {part.signal for part in parts}
    clear = signals - {"lost"} or signals
    return GroupComparison(
        rewards=rewards,
        advantages=advantages,
        ranks=ranks,
        mean=math.fsum(rewards.values()) / len(rewards) if rewards else None,
        spread=math.sqrt(squares / len(rewards)) if rewards else None,
        signal="mixed" if "mixed" in signals else clear.pop() if len(clear) == 1 else "flat",
    )


def _halves(spec: GroupSpec, rewards: Mapping[str, float], runtime: Runtime) -> tuple[HalfResult, ...]:
    """Return the rewards by half; empty for a group that is not split."""
    settings, score_range = runtime.context.settings.tfgrpo, _score_range(runtime)
    results = []
    for half, indices in spec.halves if spec.champion else ():
        names = [name for name in (rollout_id_of(spec, index) for index in indices) if name in rewards]
        each = compare({name: rewards[name] for name in names}, settings.min_spread, score_range)
        results.append(HalfResult(half.key.arm, each.signal, each.mean, each.spread))
    return tuple(results)


def _span_attributes(spec: GroupSpec) -> Attributes:
    return {
        "epoch": spec.key.epoch,
        "phase": spec.key.phase,
        "group_id": spec.group_id,
        "item_id": spec.item.id,
        "group_size": spec.size,
    }


async def _graded(spec: GroupSpec, runtime: Runtime) -> Sequence[_Graded]:
    """Run and score all attempts; their spans stay open until they are scored, or this is cancelled."""
    with ExitStack() as until_graded:
        rollouts = await asyncio.gather(
            *(run_rollout(half, at, runtime, until_graded) for half, indices in spec.halves for at in indices)
        )
        parts = ((part, rollouts[indices.start : indices.stop]) for part, indices in spec.compared)
        return await asyncio.gather(*(_compared(part, some, runtime) for part, some in parts))


async def _compared(spec: GroupSpec, rollouts: Sequence[FinishedRollout], runtime: Runtime) -> _Graded:
    """Score attempts and compare them with each other."""
    judge = GroupJudge(spec, runtime)
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
    return _Graded(spec, rollouts, given, outcomes, comparison, judge.spend, scores.timed_out)


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


def _instructive(spec: GroupSpec, graded: Sequence[_Graded], signal: Signal, runtime: Runtime) -> Sequence[_Graded]:
    """Return what is reflected on: the comparisons with different rewards, or one in which all failed, if that is set."""
    settings, shows = runtime.context.settings.tfgrpo, {"mixed"}
    if signal == "all_fail" and settings.learn_from == "failures_too" and runtime.context.rules > 3:
        shows = {"all_fail"} if settings.show_ground_truth and spec.item.answer else set()
    parts = [part for part in graded if part.comparison.signal in shows] if spec.reflect else []
    return parts[-1:] if signal == "all_fail" else parts


async def _reflection(graded: _Graded, runtime: Runtime) -> Reflection:
    spec, comparison = graded.spec, graded.comparison
    ranked = [
        RankedAttempt(rollout, comparison.rewards[name], comparison.ranks[name], graded.scores[name])
        for name, rollout in ((rollout.rollout_id, rollout) for rollout in graded.rollouts)
        if name in comparison.rewards
    ]
    # Queued behind waiting rollouts: the longest chain of a batch is a rollout with its reflection.
    async with runtime.slots:
        with runtime.telemetry.span("tfgrpo.extract", **_span_attributes(spec)):
            return await reflect_on_group(spec, ranked, comparison.spread or 0.0, runtime)


def _records(spec: GroupSpec, graded: Sequence[_Graded], runtime: Runtime) -> Iterator[RolloutRecord]:
    """Yield the records of all attempts in the order of their indices, each under the text that it was made with."""
    made = [(part, rollout) for part in graded for rollout in part.rollouts]
    halves = [half for half, indices in spec.halves for _ in indices]
    return (_record(half, rollout, part, runtime) for half, (part, rollout) in zip(halves, made, strict=True))


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
