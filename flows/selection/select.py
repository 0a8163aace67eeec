"""Run a best-of-K selection for one request: plan, sample, choose, record.

    from tfgrpo.flows.selection.select import select
    from tfgrpo.flows.selection.request import SelectRequest

    answer = select(SelectRequest(prompt="…", model="NAME", rewarders=["judge"])).selection.best.text

There is no journal: an interrupted selection starts again. History and memory of its task, if any, are written at its
end.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from tfgrpo.flows.run.exit_status import EXIT_CODES, Status
from tfgrpo.flows.run.prepare import check_endpoint_of
from tfgrpo.flows.selection.plan import SelectionPlan, plan_selection
from tfgrpo.flows.selection.request import SelectRequest
from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.errors import StoreError
from tfgrpo.stores.frozen_json import to_builtins
from tfgrpo.stores.patterns import Observation
from tfgrpo.stores.runs.selections import SelectionRound, record_round
from tfgrpo.tasks.runtime.assembly import open_runtime
from tfgrpo.tasks.selection.formats import Sound
from tfgrpo.tasks.selection.round import select_best
from tfgrpo.tasks.selection.shapes import Candidate, Grade, NotChosen, Selection

_UNGRADED: Final = Grade(None, None, ())


@dataclass(frozen=True, slots=True, repr=False)
class Selected:
    """A selection that was run, with its plan.

    Examples:
        >>> best = tfgrpo.select("What is 17 * 23?", answer="391", rewarders=["gt"], dry_run=True)
        >>> best.text, best.selection.cost.usd
    """

    plan: SelectionPlan
    selection: Selection
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Selected({self.status}: {self.message})"

    @property
    def text(self) -> str:
        """The chosen answer. Raises ``SelectionFailed`` when there is none."""
        return self.selection.best.text

    @property
    def chosen(self) -> int | None:
        """Index of the chosen candidate; None when there is none."""
        choice = self.selection.choice
        return None if isinstance(choice, NotChosen) else choice.index

    @property
    def status(self) -> Status:
        """``stopped`` if the budget left no candidate, ``failed`` if there is none for another reason."""
        choice = self.selection.choice
        if not isinstance(choice, NotChosen):
            return "finished"
        return "stopped" if choice.over_budget else "failed"

    @property
    def exit_code(self) -> int:
        """Exit code of the process."""
        return EXIT_CODES[self.status]

    @property
    def message(self) -> str:
        """One sentence: the choice with its reason and the losses, or why there is none."""
        choice, losses = self.selection.choice, self.selection.losses
        if isinstance(choice, NotChosen):
            return choice.why
        said = f"candidate {choice.index}: {choice.why}"
        if not losses or "best effort" in choice.why:  # which names the losses itself
            return said
        return f"{said}; of {len(self.selection.candidates)} candidates {losses}"

    def as_json(self) -> dict[str, Any]:
        """Return the selection as one JSON object."""
        selection, plan, chosen = self.selection, self.plan, self.chosen
        return {
            "status": self.status,
            "message": self.message,
            "selection_id": selection.spec.selection_id,
            "simulated": plan.simulated,
            "model": plan.models.name,
            "item_id": selection.spec.item.id,
            "format": selection.spec.format.name,
            "rewarders": plan.measure,
            "stage": None if plan.stage is None else to_builtins(plan.stage),
            "chosen": chosen,
            "text": None if chosen is None else selection.candidates[chosen].text,
            "outcomes": dict(selection.outcomes),
            "mean_reward": selection.mean_reward,
            "spread": selection.spread,
            "candidates": [_candidate_json(candidate, selection) for candidate in selection.candidates],
            "faults": dict(selection.faults),
            "experience_ids": list(selection.spec.pack.experience_ids),
            "cost": asdict(selection.cost),
            "duration_s": selection.duration_s,
            "warnings": list(self.warnings),
        }


def select(request: SelectRequest, env: Mapping[str, str] = os.environ, *, clock: Clock = utc_now) -> Selected:
    """Run a selection, for callers without an event loop.

    Raises ``ConfigError`` with all problems before any call. A selection without a choice is returned like any other;
    its ``selection.best`` raises.
    """
    plan = plan_selection(request, env, clock=clock)
    return asyncio.run(run_selection(plan, clock=clock))


async def run_selection(plan: SelectionPlan, *, clock: Clock = utc_now) -> Selected:
    """Run a planned selection on the running event loop. Raises ``EndpointError`` if no call could succeed."""
    warnings = await check_endpoint_of(plan, logging.getLogger("tfgrpo.select").warning)
    runtime = await open_runtime(plan.context, journaled=False)
    try:
        selected = Selected(plan, await select_best(plan.spec, runtime), ())
    finally:
        await runtime.aclose()
        lost = await asyncio.to_thread(runtime.telemetry.shutdown)
    kept = await asyncio.to_thread(_remember, selected, clock)
    told = (*runtime.telemetry.warnings, *([lost] if lost else []))
    return replace(selected, warnings=(*plan.warnings, *warnings, *kept, *told))


def _remember(selected: Selected, clock: Clock) -> tuple[str, ...]:
    """Write history and memory; a ``StoreError`` becomes a warning, so that the answer is not lost."""
    plan, selection = selected.plan, selected.selection
    if plan.task is None:
        return ()
    try:
        record_round(plan.task.selections, _round_of(selected, clock))
        if plan.memory is not None:
            plan.memory.observe(list(_observations(selection)), selection.spec.selection_id)
    except StoreError as error:
        return (f"the selection was not remembered: {error}",)
    return ()


def _observations(selection: Selection) -> Iterator[Observation]:
    """Yield an observation of every graded candidate whose format has a structure."""
    for candidate in selection.candidates:
        reward = selection.grades.get(candidate.index, _UNGRADED).reward
        pattern = None if candidate.value is None else selection.spec.format.pattern(candidate.value)
        if reward is not None and pattern is not None:
            yield Observation(pattern.structure, pattern.label, pattern.text, reward)


def _round_of(selected: Selected, clock: Clock) -> SelectionRound:
    plan, selection, cost = selected.plan, selected.selection, selected.selection.cost
    grade = _UNGRADED if selected.chosen is None else selection.grades.get(selected.chosen, _UNGRADED)
    return SelectionRound(
        selection_id=selection.spec.selection_id,
        at=clock(),
        item_id=selection.spec.item.id,
        model=plan.models.name,
        simulated=plan.simulated,
        stage="" if plan.stage is None else plan.stage.stage,
        measure=plan.measure,
        format=selection.spec.format.name,
        k=selection.spec.settings.k,
        outcomes={str(name): count for name, count in selection.outcomes.items()},
        answered=sum(bool(candidate.text.strip()) for candidate in selection.candidates),
        valid=sum(candidate.valid for candidate in selection.candidates),
        chosen=selected.chosen,
        reward=grade.reward,
        mean_reward=selection.mean_reward,
        calls=None if cost.unmeasured_attempts else cost.calls,
        tokens=None if cost.unmeasured_attempts else cost.tokens,
        cost_usd=cost.usd,
        duration_s=selection.duration_s,
    )


def _candidate_json(candidate: Candidate, selection: Selection) -> dict[str, Any]:
    grade, outcome = selection.grades.get(candidate.index, _UNGRADED), candidate.outcome
    return {
        "index": candidate.index,
        "outcome": outcome.name,
        "reason": None if isinstance(outcome, Sound) else outcome.reason,
        "error_type": getattr(outcome, "error_type", None),
        "text": candidate.text,
        "reward": grade.reward,
        "advantage": grade.advantage,
        "scores": [
            {
                "name": each.rewarder_id,
                "score": each.score,
                "evidence": each.evidence,
                "details": to_builtins(each.details),
            }
            for each in grade.scores
        ],
        "ungraded": grade.reason or None,
        "repairs": [{"text": text, "reason": reason} for text, reason in candidate.refused],
        "temperature": candidate.temperature,
        "seed": candidate.seed,
        **asdict(candidate.usage),
        "latency_s": candidate.latency_s,
    }
