"""Run K candidates for one request concurrently, grade them together, and choose one.

It writes no file and raises only cancellation: failures are in the value it returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

from tfgrpo.rewarders.advantages.group import group_advantage
from tfgrpo.rewarders.base import Abstained, Attempt
from tfgrpo.rewarders.powl import Activity, Operator, Silent
from tfgrpo.rewarders.powl.scoring.rewarders import MODEL_KEY
from tfgrpo.rewarders.scoring import GroupScores, score_group
from tfgrpo.stores.ledger.state import Totals
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.stores.usage import Usage
from tfgrpo.tasks.runtime.judging import GroupJudge
from tfgrpo.tasks.runtime.observing import observe_scores
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.runtime.scrubbing import scrubbed_scores
from tfgrpo.tasks.selection.candidate import group_of, run_candidate
from tfgrpo.tasks.selection.choosing import choose, usable_candidates
from tfgrpo.tasks.selection.shapes import Candidate, Choice, Cost, Grade, NotChosen, Selection, SelectionSpec, Sound


async def select_best(spec: SelectionSpec, runtime: Runtime) -> Selection:
    """Run one selection with the runtime's actor, rewarders and slots."""
    telemetry = runtime.telemetry
    with (
        telemetry.attached(runtime.context.carrier),
        telemetry.group_span(
            epoch=0, phase="eval", group_id=spec.selection_id, item_id=spec.item.id, group_size=spec.k, arm="candidate"
        ) as span,
    ):
        selection = await _run(spec, runtime)
        for index, grade in selection.grades.items():
            observe_scores(span, grade.scores, runtime.rewarders, rollout_index=index)
    return selection


async def _run(spec: SelectionSpec, runtime: Runtime) -> Selection:
    start, before = perf_counter(), runtime.ledger.totals()
    group = group_of(spec)
    work = (run_candidate(spec, index, group, runtime) for index in range(spec.k))
    candidates = tuple(_scrubbed(candidate, runtime) for candidate in await asyncio.gather(*work))
    usable = usable_candidates(spec, candidates)
    judge = GroupJudge(group, runtime)
    raw = await score_group(
        runtime.rewarders, judge.context([_attempt(candidate) for candidate in usable]), runtime.threads
    )
    scores = scrubbed_scores(raw, runtime.scrub)
    grades = grades_of(usable, scores)
    rewards = [grade.reward for grade in grades.values() if grade.reward is not None]
    compared = group_advantage(rewards) if rewards else None
    return Selection(
        spec=spec,
        candidates=candidates,
        grades=grades,
        choice=_within_budget(choose(spec, candidates, grades), judge),
        mean_reward=compared.mean if compared is not None else None,
        spread=compared.std if compared is not None else None,
        faults=scores.faults,
        cost=_cost(before, runtime.ledger.totals(), candidates, judge),
        duration_s=perf_counter() - start,
    )


def grades_of(candidates: Sequence[Candidate], scores: GroupScores) -> dict[int, Grade]:
    """Return the grades of these candidates, with advantages among those that have a total."""
    names = [str(candidate.index) for candidate in candidates]
    rewards = {name: scores.totals[name] for name in names if name in scores.totals}
    values = group_advantage(list(rewards.values())).advantages if rewards else ()
    advantages = dict(zip(rewards, values, strict=True))
    return {
        candidate.index: Grade(
            reward=rewards.get(name),
            advantage=advantages.get(name),
            scores=tuple(verdict for verdict in verdicts if isinstance(verdict, RewardScore)),
            reason="" if name in rewards else _abstentions(verdicts),
        )
        for candidate, name, verdicts in zip(candidates, names, scores.verdicts, strict=True)
    }


def _abstentions(verdicts: Sequence[object]) -> str:
    silent = [verdict for verdict in verdicts if isinstance(verdict, Abstained)]
    return "; ".join(verdict.message for verdict in silent) or "no rewarder gave a score"


def _attempt(candidate: Candidate) -> Attempt:
    return Attempt(
        str(candidate.index), candidate.index, candidate.text, candidate.usage.completion_tokens, _read(candidate)
    )


def _read(candidate: Candidate) -> Mapping[str, Any]:
    """Return a process model already read, so that rewarders do not read it again."""
    return {MODEL_KEY: candidate.value} if isinstance(candidate.value, Activity | Silent | Operator) else {}


def _within_budget(choice: Choice, judge: GroupJudge) -> Choice:
    """Mark a choice as over budget if the ledger refused a judge."""
    if isinstance(choice, NotChosen) and judge.spend.budget_refused is not None:
        return replace(choice, over_budget=True)
    return choice


def _scrubbed(candidate: Candidate, runtime: Runtime) -> Candidate:
    """Remove the API key, which an actor of the user may have put into its answer."""
    scrub, outcome = runtime.scrub, candidate.outcome
    text = scrub(candidate.text)
    return replace(
        candidate,
        text=text,
        value=candidate.value if text == candidate.text else None,
        refused=tuple((scrub(answer), scrub(reason)) for answer, reason in candidate.refused),
        outcome=outcome if isinstance(outcome, Sound) else replace(outcome, reason=scrub(outcome.reason)),
    )


def _cost(before: Totals, after: Totals, candidates: Sequence[Candidate], judge: GroupJudge) -> Cost:
    """Return the cost by the ledger, which counts lost calls too; its price is unknown if that of any call is."""
    usage = Usage.total([*(candidate.usage for candidate in candidates), judge.spend.usage])
    priced = usage.cost_usd is not None and after.unknown_price_calls == before.unknown_price_calls
    return Cost(
        calls=after.calls - before.calls,
        tokens=after.tokens - before.tokens,
        usd=after.usd - before.usd if priced else None,
        at_risk_usd=after.at_risk_usd - before.at_risk_usd,
        unmeasured_attempts=after.unmeasured_attempts - before.unmeasured_attempts,
    )
