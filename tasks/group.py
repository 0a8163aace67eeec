"""Run one group: G rollouts of an item, score them, reflect if their rewards differ.

A group with two sides (``GroupSpec.first_half``) is scored and reflected on as a whole: better attempts are contrasted with
worse ones, whichever lessons they carried, and the reflections see which. Ranks and advantages stay within a side, unless
one has a single attempt.

It writes no file and does not end the run: a refused budget or a dead endpoint is reported in the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Literal, NamedTuple

from tfgrpo.rewarders.advantages.group import group_advantage, relative_ranks
from tfgrpo.rewarders.composite import total_range
from tfgrpo.rewarders.judge.model import JudgeQuestion, JudgeReply
from tfgrpo.rewarders.scorer import UNIT, Abstained, Attempt, Range, RewardContext, Verdict, Weighted
from tfgrpo.stores.errors import BudgetRefused, ModelCallError, ModelTimeout
from tfgrpo.stores.json_values import derive_seed
from tfgrpo.stores.outcomes import (
    REWARDER_BROKE,
    REWARDER_LATE,
    Outcome,
    Refused,
    RewardScore,
    Scored,
    Signal,
    Ungraded,
    classify,
)
from tfgrpo.stores.runs import CallKey
from tfgrpo.stores.telemetry.setup import Attributes, SpanHandle, Telemetry
from tfgrpo.stores.text import shorten_middle
from tfgrpo.tasks.learning.ask import Spend
from tfgrpo.tasks.learning.reflect import RankedAttempt, Reflection, reflect_on_group
from tfgrpo.tasks.models.base import CUT_OFF, AnswerSchema, ChatRequest, Message
from tfgrpo.tasks.models.endpoint import scrubbed
from tfgrpo.tasks.rollout import FinishedRollout, rollout_id_of, run_rollout, signs_of, summarize_trajectory
from tfgrpo.tasks.runtime.runtime import FATAL, Runtime, model_key
from tfgrpo.tasks.shapes import GroupResult, GroupSpec, HalfResult, RolloutRecord


class GroupJudge:
    """``JudgeModel`` within one group, whose calls are seeded, journalled and charged like every other."""

    def __init__(self, spec: GroupSpec, runtime: Runtime) -> None:
        self._spec = spec
        self._runtime = runtime
        self.spend = Spend()

    def context(self, outputs: Sequence[Attempt]) -> RewardContext:
        """Return the context of the rewarders: the group's item and lessons, these attempts, and this judge."""
        item = self._spec.item
        return RewardContext(
            fixture_path=f"{item.source.rpartition(':')[0] or item.source or 'dataset'}#{item.id}",
            item_id=item.id,
            prompt=item.prompt,
            answer=item.answer,
            outputs=tuple(outputs),
            experiences=self._spec.pack.experiences,
            metadata=item.metadata,
            judge=self,
            alternatives=item.alternatives,
            failures=self._spec.failures,
        )

    async def ask(self, question: JudgeQuestion, timeout_s: float | None = None) -> JudgeReply:
        """Answer one question. A cancelled call is recorded as broken, so that a replay loses it too."""
        spec, context = self._spec, self._runtime.context
        rollout, turn, attempt = question.rollout, question.turn, question.attempt
        key = CallKey(spec.key, rollout, turn, "judge", attempt)
        night_seed = context.settings.tfgrpo.night_seed
        request = ChatRequest(
            model=context.models.judge(question.model),
            messages=tuple(Message(role, text) for role, text in question.messages),
            temperature=question.temperature,
            max_tokens=0 if question.embeds else question.max_tokens or context.models.roles["judge"].max_tokens,
            # Without the arm: in the sweep equal outputs of both sides are judged by the same draw.
            seed=derive_seed(night_seed, "judge", spec.key.epoch, spec.key.draw_id, rollout, turn, attempt),
            answer_schema=None if question.schema is None else AnswerSchema(question.schema_name, question.schema),
            embeds=question.embeds,
        )
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._runtime.model.complete(request, key)
        except TimeoutError:
            late = ModelTimeout(f"no judgement within the time limit of the group ({timeout_s:.3g} s were left)")
            self.spend.note(late, model_key(key, request))
            raise late from None
        except asyncio.CancelledError:
            self.spend.note(ModelTimeout("the judge was given up on"), model_key(key, request))
            raise
        except (BudgetRefused, *FATAL, ModelCallError) as error:
            self.spend.note(error, model_key(key, request))
            raise
        self.spend.calls.append(reply.used)
        return JudgeReply(
            text=reply.message.content or "",
            cut_off=reply.finish_reason in CUT_OFF,
            tokens=reply.usage.total if reply.usage is not None else None,
            cost_usd=reply.cost_usd,
            model=reply.model,
        )


# Most characters of an answer in ``rollouts.jsonl``; the whole answer is in the journal.
RECORDED_CHARS = 2_000


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


class _Member(NamedTuple):
    spec: GroupSpec
    half: int
    rollout: FinishedRollout
    # Ranks it: of its side, or of the group if a side has fewer than two rewards.
    own: GroupComparison
    outcome: Outcome
    scores: tuple[RewardScore, ...]
    failures: Mapping[str, str]


async def run_group(spec: GroupSpec, runtime: Runtime, carrier: Mapping[str, str] | None = None) -> GroupResult:
    """Run, score and compare the attempts, and reflect if the group is informative. Raises only cancellation.

    ``carrier`` is the trace context of the group; None: that of the run.
    """
    start, telemetry, about = perf_counter(), runtime.telemetry, span_attributes(spec)
    with (
        telemetry.attached(runtime.context.carrier if carrier is None else carrier),
        telemetry.span("tfgrpo.group", **(about | {"arm": spec.key.arm})) as span,
    ):
        members, comparison, halves, judging = await _graded(spec, runtime)
        losses = [each.rollout.loss for each in members]
        refused = next((loss.reason for loss in losses if isinstance(loss, Refused)), None) or judging.budget_refused
        fatal = next((each.rollout.fatal for each in members if each.rollout.fatal), None) or judging.fatal
        # A reflection would be wasted when the run ends with this group.
        reflection = Reflection() if refused or fatal else await _reflection(spec, members, comparison, runtime)
        learning = reflection.spend
        fatal = fatal or learning.fatal or await runtime.sync()
        with telemetry.span("tfgrpo.summarize", **about):
            records = tuple(_record(each, runtime) for each in members)
        result = GroupResult(
            group_id=spec.group_id,
            key=spec.key,
            rollouts=records,
            signal=comparison.signal,
            mean_reward=comparison.mean,
            spread=comparison.spread,
            proposals=reflection.proposals,
            rejected=reflection.rejected,
            judgements=reflection.judgements,
            contrasts=reflection.contrasts,
            reflection_failure=learning.failure,
            learning=learning.usage,
            judging=judging.usage,
            budget_refused=refused or learning.budget_refused,
            fatal=fatal,
            duration_s=perf_counter() - start,
            broken_calls=(*judging.broken, *learning.broken),
            halves=tuple(
                HalfResult(attempts.spec.key.arm, half.signal, half.mean, half.spread)
                for attempts, half in zip(spec.halves, halves, strict=False)
            ),
        )
        observe_group(telemetry, span, spec, result, runtime.context.settings.actor.kind)
    return result


def span_attributes(spec: GroupSpec) -> Attributes:
    """Return what the spans of a group and of its steps say of it."""
    return {
        "epoch": spec.key.epoch,
        "phase": spec.key.phase,
        "group_id": spec.group_id,
        "item_id": spec.item.id,
        "group_size": spec.size,
    }


async def _graded(
    spec: GroupSpec, runtime: Runtime
) -> tuple[Sequence[_Member], GroupComparison, Sequence[GroupComparison], Spend]:
    """Run and score the attempts; return them, their comparison as a whole and by half, and what judging took."""
    judge = GroupJudge(spec, runtime)
    # Spans stay open until the attempts are scored, or this is cancelled.
    with ExitStack() as until_graded:
        rollouts = await asyncio.gather(
            *(run_rollout(half, at, runtime, until_graded) for half, indices in spec.halves for at in indices)
        )
        answered = [
            Attempt(rollout.rollout_id, rollout.index, rollout.output, rollout.usage.completion_tokens, rollout.facts)
            for rollout in rollouts
            if rollout.loss is None
        ]
        scores = scrubbed(await runtime.scorers.score_group(runtime.rewarders, judge.context(answered)), runtime.scrub)
        verdicts_of = dict(zip((attempt.rollout_id for attempt in answered), scores.verdicts, strict=True))
        least, score_range = runtime.context.settings.tfgrpo.min_spread, total_range(runtime.rewarders)
        comparison = compare(scores.totals, least, score_range)
        halves: list[GroupComparison] = []
        for half in spec.halves if spec.first_half else ():
            names = (rollout_id_of(spec, index) for index in half.indices)
            of_half = {name: scores.totals[name] for name in names if name in scores.totals}
            halves.append(compare(of_half, least, score_range))
        fair = bool(halves) and all(len(half.rewards) > 1 for half in halves)
        members = []
        sides = [(at, side) for at, (side, indices) in enumerate(spec.halves) for _ in indices]
        for (number, side), rollout in zip(sides, rollouts, strict=True):
            name, own = rollout.rollout_id, halves[number] if fair else comparison
            verdicts, reward = verdicts_of.get(name, ()), scores.totals.get(name)
            own_scores = tuple(verdict for verdict in verdicts if isinstance(verdict, RewardScore))
            scored = None if reward is None else Scored(reward, own_scores)
            outcome = rollout.loss or scored or _ungraded(verdicts, runtime.rewarders)
            silent = [verdict for verdict in verdicts if isinstance(verdict, Abstained)]
            failures = {each.rewarder_id: each.reason for each in silent if each.broke or each.late}
            members.append(_Member(side, number, rollout, own, outcome, own_scores, failures))
            if rollout.span is not None:
                rollout.span.set(outcome=outcome.name, reward=reward, relative_rank=own.ranks.get(name))
                observe_scores(rollout.span, own_scores, runtime.rewarders)
    return members, comparison, halves, judge.spend


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


def _ungraded(verdicts: Sequence[Verdict], rewarders: Sequence[Weighted]) -> Ungraded:
    pairs = zip(verdicts, rewarders, strict=True)
    silent = [verdict for verdict, of in pairs if of.weight and isinstance(verdict, Abstained)]
    reason = "; ".join(verdict.message for verdict in silent) or "no rewarder that counts gave a score"
    broke = REWARDER_BROKE if any(verdict.broke for verdict in silent) else "rewarder"
    return Ungraded(REWARDER_LATE if any(verdict.late for verdict in silent) else broke, reason)


async def _reflection(spec: GroupSpec, members: Sequence[_Member], comparison: GroupComparison, runtime: Runtime) -> Reflection:
    # Different rewards teach, and failures whose right answer can be shown.
    failures = spec.failures_teach and bool(spec.item.answer)
    if not spec.reflect or comparison.signal not in ({"mixed", "all_fail"} if failures else {"mixed"}):
        return Reflection()
    rewards, ranks = comparison.rewards, comparison.ranks
    ranked = [
        RankedAttempt(each.rollout, rewards[name], ranks[name], each.scores, each.half)
        for each in members
        if (name := each.rollout.rollout_id) in rewards
    ]
    # Queued behind waiting rollouts: the longest chain of a batch is a rollout with its reflection.
    async with runtime.slots:
        with runtime.telemetry.span("tfgrpo.extract", **span_attributes(spec)):
            spread = (comparison.spread or 0.0) if comparison.signal == "mixed" else 0.0
            return await reflect_on_group(spec, ranked, spread, runtime)


def _record(member: _Member, runtime: Runtime) -> RolloutRecord:
    spec, rollout, own = member.spec, member.rollout, member.own
    return RolloutRecord(
        rollout_id=rollout.rollout_id,
        group_id=spec.group_id,
        key=spec.key,
        index=rollout.index,
        outcome=member.outcome,
        scores=member.scores,
        advantage=own.advantages.get(rollout.rollout_id),
        relative_rank=own.ranks.get(rollout.rollout_id),
        output=shorten_middle(rollout.output, RECORDED_CHARS),
        summary=summarize_trajectory(rollout.frames, rollout.output, max_words=runtime.pack.max_words),
        tools=rollout.tools,
        usage=rollout.usage,
        latency_s=rollout.latency_s,
        seed=rollout.seed,
        prompt_digest=spec.pack.digest,
        finish_reason=rollout.finish_reason,
        failures=member.failures,
        signs=signs_of(spec, rollout) if spec.key.phase == "eval" else (),
    )


def observe_group(telemetry: Telemetry, span: SpanHandle, spec: GroupSpec, result: GroupResult, agent: str) -> None:
    """Report one complete group to telemetry, from what is recorded anyway."""
    if not telemetry.active:
        return
    span.set(spread=result.spread)
    record = partial(telemetry.record, epoch=spec.key.epoch, phase=spec.key.phase)
    for rollout in result.rollouts:
        outcome = rollout.outcome
        record(
            "rollout",
            outcome=outcome.name,
            duration_s=rollout.latency_s,
            agent=agent,
            error_type=outcome.error_type if outcome.name in ("failed", "ungraded") else None,
            group_size=spec.size,
        )
        for score in rollout.scores:
            record("reward", arm=spec.key.arm, rewarder=score.rewarder_id, score=score.score)
        for event in rollout.tools:
            record(
                "tool_call",
                tool=event.tool,
                duration_s=event.latency_ms / 1000.0,
                tokens=event.tokens,
                tool_cost_usd=event.cost_usd,
                outcome="ok" if event.ok else "error",
                error_type=None if event.ok else "tool_error",
                group_size=spec.size,
            )
    record("group", signal=result.signal, spread=result.spread, group_size=spec.size)


def observe_scores(
    span: SpanHandle, scores: Sequence[RewardScore], rewarders: Sequence[Weighted], rollout_index: int | None = None
) -> None:
    """Add an event for every score, labelled where it is an end of the range that its rewarder declares."""
    ranges = {each.scorer.rewarder_id: each.range for each in rewarders}
    for score in scores:
        label: Literal["pass", "fail"] | None = None
        # A rank orders the attempts of a group; the best of them may still be wrong.
        if score.rewarder_id != "relative":
            least, most = ranges.get(score.rewarder_id, UNIT)
            label = "fail" if score.score == least else "pass" if score.score == most else None
        span.evaluation(
            scored_by=score.rewarder_id, score=score.score, label=label, index=rollout_index, evidence=score.evidence
        )
