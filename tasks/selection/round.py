"""Run K candidates for one request concurrently, grade them together, and choose one.

It writes no file and raises only cancellation: failures are in the value it returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Final

from tfgrpo.rewarders.powl import Activity, Operator, Silent
from tfgrpo.rewarders.powl.scoring import MODEL_KEY
from tfgrpo.rewarders.repairing import corrected
from tfgrpo.rewarders.scorer import Abstained, Attempt, Verdict
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.stores.errors import BudgetRefused, RepairExhausted, error_kind
from tfgrpo.stores.ledger.state import Totals, Usage
from tfgrpo.stores.outcomes import Failed, GroupKey, Refused, RewardScore, status_of
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.group import GroupComparison, compare
from tfgrpo.tasks.learning.summarize import shorten_middle
from tfgrpo.tasks.models.endpoint import scrubbed
from tfgrpo.tasks.rollout import FinishedRollout, run_rollout
from tfgrpo.tasks.runtime.judging import GroupJudge
from tfgrpo.tasks.runtime.observing import observe_scores
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.selection.formats import CandidateEnd, CandidateOutcome
from tfgrpo.tasks.selection.shapes import (
    Candidate,
    Selection,
    SelectionChoice,
    SelectionCost,
    SelectionSpec,
    lost_and_flawed,
)
from tfgrpo.tasks.shapes import GroupSpec

_QUOTED_CHARS: Final = 20_000
_REVISION: Final = (
    "Your earlier answer to this task cannot be used. It stands below as data, with the reason. "
    "Hand in a corrected answer to the task above, whole, and nothing else."
)
_CUT_OFF: Final = "the answer was cut off at the token limit: give a shorter one"


async def select_best(spec: SelectionSpec, runtime: Runtime, *, before: Totals | None = None) -> Selection:
    """Run one selection with the runtime's actor, rewarders and slots.

    ``before``: what its ledger had counted before the selection began; None: that of now.
    """
    telemetry = runtime.telemetry
    with (
        telemetry.attached(runtime.context.carrier),
        telemetry.span(
            "tfgrpo.group",
            epoch=0,
            phase="eval",
            group_id=spec.selection_id,
            item_id=spec.item.id,
            group_size=spec.settings.k,
            arm="group",
        ) as span,
    ):
        selection = await _run(spec, runtime, before or runtime.ledger.totals())
        for each in selection.candidates:
            observe_scores(span, each.scores, runtime.rewarders, rollout_index=each.index)
    return selection


async def _run(spec: SelectionSpec, runtime: Runtime, before: Totals) -> Selection:
    start = perf_counter()
    group = GroupSpec(
        group_id=spec.selection_id,
        key=GroupKey(0, "eval", "group", 0, spec.item.id, run=spec.selection_id),
        item=spec.item,
        size=spec.settings.k,
        temperature=0.0,  # each candidate has its own
        pack=spec.system,
        reflect=False,
    )
    made = await asyncio.gather(*(_candidate(spec, index, group, runtime) for index in range(group.size)))
    await runtime.sync()
    usable = usable_candidates(spec, made)
    judge = GroupJudge(group, runtime)
    raw = await runtime.scorers.score_group(runtime.rewarders, judge.context(list(map(_attempt, usable))))
    scores = scrubbed(raw, runtime.scrub)
    comparison = compare(scores.totals)
    graded = dict(zip((each.index for each in usable), scores.verdicts, strict=True))
    candidates = tuple(_graded(each, graded[each.index], comparison) if each.index in graded else each for each in made)
    return Selection(
        spec=spec,
        candidates=candidates,
        choice=choose(spec, candidates, over_budget=judge.spend.budget_refused is not None),
        mean_reward=comparison.mean,
        spread=comparison.spread,
        faults=scores.faults,
        cost=_cost(before, runtime.ledger.totals(), candidates, judge),
        duration_s=perf_counter() - start,
    )


def _attempt(candidate: Candidate) -> Attempt:
    """Return the candidate for rewarders, which do not read a process model again."""
    value = candidate.outcome.value
    read = {MODEL_KEY: value} if isinstance(value, Activity | Silent | Operator) else {}
    known = {**candidate.facts, **read}
    return Attempt(str(candidate.index), candidate.index, candidate.text, candidate.usage.completion_tokens, known)


def _graded(candidate: Candidate, verdicts: Sequence[Verdict], comparison: GroupComparison) -> Candidate:
    name = str(candidate.index)
    silent = [verdict.message for verdict in verdicts if isinstance(verdict, Abstained)]
    return replace(
        candidate,
        reward=comparison.rewards.get(name),
        advantage=comparison.advantages.get(name),
        scores=tuple(verdict for verdict in verdicts if isinstance(verdict, RewardScore)),
        ungraded="" if name in comparison.rewards else "; ".join(silent) or "no rewarder gave a score",
    )


def _cost(before: Totals, after: Totals, candidates: Sequence[Candidate], judge: GroupJudge) -> SelectionCost:
    """Return the cost by the ledger, which counts lost calls too; its price is unknown if that of any call is."""
    usage = Usage.total([*(candidate.usage for candidate in candidates), judge.spend.usage])
    priced = usage.cost_usd is not None and after.unknown_price_calls == before.unknown_price_calls
    return SelectionCost(
        calls=after.calls - before.calls,
        tokens=after.tokens - before.tokens,
        usd=after.usd - before.usd if priced else None,
        at_risk_usd=after.at_risk_usd - before.at_risk_usd,
        unmeasured_attempts=after.unmeasured_attempts - before.unmeasured_attempts,
    )


def usable_candidates(spec: SelectionSpec, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates to grade: the valid ones, or, for best effort without any, all that have an answer."""
    valid = [candidate for candidate in candidates if candidate.valid]
    if valid or spec.settings.none_valid == "raise":
        return valid
    return [candidate for candidate in candidates if candidate.text.strip()]


def choose(spec: SelectionSpec, candidates: Sequence[Candidate], *, over_budget: bool = False) -> SelectionChoice:
    """Choose the usable candidate with the highest reward, the first among equals, or return why none may be chosen.

    Within a group the advantage rises with the reward, so that choosing by either is the same. ``over_budget``: the
    budget refused a judge.
    """
    settings, usable = spec.settings, usable_candidates(spec, candidates)
    valid = sum(candidate.valid for candidate in usable)
    among, unusable = pluralize(len(candidates), "candidate"), lost_and_flawed(candidates)
    if not usable or (valid < settings.min_success and settings.none_valid == "raise"):
        needed = f", {settings.min_success} needed" if settings.min_success > 1 else ""
        refused = any(candidate.outcome.name == "refused" for candidate in candidates)
        return SelectionChoice(None, f"{valid or 'none'} of {among} valid{needed}: {unusable}", over_budget or refused)
    rewards = {each.index: each.reward for each in usable if each.reward is not None}
    if not rewards:
        reasons = "; ".join(dict.fromkeys(candidate.ungraded for candidate in usable))
        why = f"none of the {pluralize(len(usable), 'usable candidate')} could be graded: {reasons}"
        if settings.none_valid == "raise":
            return SelectionChoice(None, why, over_budget)
        return SelectionChoice(usable[0].index, f"best effort, the first that can be used: {why}")
    short = "" if valid >= settings.min_success else f"best effort, {valid} of {among} valid ({unusable}): "
    index = max(rewards, key=lambda each: rewards[each])  # the first among equals
    equals = sum(reward == rewards[index] for reward in rewards.values())
    tie = f", the first of {equals} that have it" if equals > 1 else ""
    graded = pluralize(len(rewards), "graded candidate")
    return SelectionChoice(index, f"{short}highest reward of {graded}, {rewards[index]:.4g}{tie}")


async def _candidate(spec: SelectionSpec, index: int, group: GroupSpec, runtime: Runtime) -> Candidate:
    """Run one candidate: attempt, read the answer, and repeat with the reason while it is flawed.

    Each attempt is a rollout, with its time limit, slot, seed, ledger and spans.
    """
    temperature = spec.settings.temperatures[index % len(spec.settings.temperatures)]
    rollouts: list[FinishedRollout] = []
    texts: list[str] = []
    readings: list[CandidateOutcome] = []

    async def draft(refused: Sequence[tuple[str, str]]) -> str:
        drafted = replace(_revised(group, refused), temperature=temperature)
        rollouts.append(await run_rollout(drafted, index, runtime))
        texts.append(runtime.scrub(rollouts[-1].output))
        return texts[-1]

    def read(text: str) -> CandidateOutcome:
        loss = rollouts[-1].loss
        if isinstance(loss, Failed | Refused):
            return replace(_lost(loss), value=readings[-1].value if readings else None)
        cut_off = loss is not None and loss.error_type == "truncated"
        readings.append(CandidateOutcome("parse_error", _CUT_OFF) if cut_off else spec.format.read(text))
        if readings[-1].name != "ok" and readings[-1].repairable:
            raise ValueError(readings[-1].reason)
        return readings[-1]

    try:
        outcome = await corrected(read, draft, spec.settings.max_validations + 1, spec.format.name)
    except RepairExhausted:
        outcome = readings[-1]
    usage, latency_s = Usage.total(each.usage for each in rollouts), sum(each.latency_s for each in rollouts)
    # The last text was not sent back, and that of an attempt that is lost has no reading.
    sent_back = zip(texts[:-1], readings, strict=False)
    return Candidate(
        index=index,
        outcome=outcome,
        text=next((text for text in reversed(texts) if text.strip()), ""),
        refused=tuple((text, reading.reason) for text, reading in sent_back),
        temperature=temperature,
        seed=rollouts[-1].seed,
        usage=usage,
        latency_s=latency_s,
        facts={**rollouts[-1].facts, "cost_usd": usage.cost_usd, "latency_s": latency_s},
    )


def _revised(group: GroupSpec, refused: Sequence[tuple[str, str]]) -> GroupSpec:
    """Return the group for one attempt. A repair is another draw of the item, with other seeds and call keys."""
    if not refused:
        return group
    answer, reason = refused[-1]
    quoted = canonical_json({"earlier_answer": shorten_middle(answer, _QUOTED_CHARS), "reason": reason})
    item = replace(group.item, prompt=f"{group.item.prompt}\n\n{_REVISION}\n{quoted}")
    return replace(group, item=item, key=replace(group.key, draw=len(refused)))


def _lost(loss: Failed | Refused) -> CandidateOutcome:
    if isinstance(loss, Refused):
        return CandidateOutcome("refused", loss.reason, error_type=BudgetRefused.__name__)
    status = status_of(error_kind(loss.error_type))
    name: CandidateEnd = "actor_error"
    if status in ("timeout", "transport_error"):
        name = status
    return CandidateOutcome(name, loss.reason, error_type=loss.error_type)
