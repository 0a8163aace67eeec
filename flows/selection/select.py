"""Run a best-of-K selection for one request: plan, sample, choose, record.

    from tfgrpo.flows.selection.select import select
    from tfgrpo.flows.orchestration.request import SelectRequest

    answer = select(SelectRequest(prompt="…", model="NAME", rewarders=["judge"])).selection.best.text

A selection of a task has a directory with journal and ledger until it is over: the same request again continues it, and
asks no answered call again. Its history and memory are written at its end. Without a task no file is written.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from tfgrpo.flows.orchestration.request import EXIT_CODES, SelectRequest, Status
from tfgrpo.flows.run.damage import refuse_lost
from tfgrpo.flows.run.open import lock_run
from tfgrpo.flows.run.prepare import check_endpoint_of
from tfgrpo.flows.selection.plan import SelectionPlan, plan_selection
from tfgrpo.rewarders.powl import label_fingerprint, structural_key, to_text
from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.errors import SettingsError, StoreError
from tfgrpo.stores.frozen_json import to_builtins
from tfgrpo.stores.ledger import Totals
from tfgrpo.stores.patterns import Observation
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.runtime.host import open_runtime
from tfgrpo.tasks.selection.history import SelectionRound, record_round
from tfgrpo.tasks.selection.round import Candidate, Selection, select_best


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
        return self.selection.choice.index

    @property
    def status(self) -> Status:
        """``stopped`` if the budget left no candidate, ``failed`` if there is none for another reason."""
        if self.chosen is not None:
            return "finished"
        return "stopped" if self.selection.choice.over_budget else "failed"

    @property
    def exit_code(self) -> int:
        """Exit code of the process."""
        return EXIT_CODES[self.status]

    @property
    def message(self) -> str:
        """One sentence: the choice with its reason and the losses, or why there is none."""
        why, losses = self.selection.choice.why, self.selection.losses
        if self.chosen is None:
            return why
        said = f"candidate {self.chosen}: {why}"
        if not losses or "best effort" in why:  # which names the losses itself
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
            "candidates": list(map(_candidate_json, selection.candidates)),
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
    """Run a planned selection on the running event loop, or go on with one of the same request that is not over.

    Raises ``EndpointError`` if no call could succeed, and ``SettingsError`` if answers that were paid for are lost.
    """
    warnings = [*plan.warnings, *await check_endpoint_of(plan, logging.getLogger("tfgrpo.select").warning)]
    with _directory(plan) as begun:
        task, files, spent = begun.task, begun.context.paths, Totals()
        if task is not None and any(file.exists() and file.stat().st_size for file in (files.journal, files.ledger)):
            known = refuse_lost(begun.context, "--task-id", f"restore the file, or remove {files.root} to begin anew")
            warnings, spent = [*warnings, *known.warnings], known.spent
        runtime = await open_runtime(begun.context, journaled=task is not None)
        try:
            runtime.ledger.start_at_least(spent)
            if runtime.journal:
                calls = pluralize(len(runtime.journal), "answered call")
                warnings.append(f"{begun.spec.selection_id} was not over: it goes on, and {calls} are not asked again")
            # The ledger of a task's selection has the calls of its earlier parts, too.
            before = None if task is None else Totals()
            selected = Selected(begun, await select_best(begun.spec, runtime, before=before), ())
        finally:
            await runtime.aclose()
            unsent = await asyncio.to_thread(runtime.telemetry.shutdown)
        warnings += await asyncio.to_thread(_remember, selected, clock)
    if runtime.journal is not None and runtime.journal.warning is not None:
        warnings.append(runtime.journal.warning)
    return replace(selected, warnings=(*warnings, *runtime.telemetry.warnings, *([unsent] if unsent else [])))


@contextmanager
def _directory(plan: SelectionPlan) -> Iterator[SelectionPlan]:
    """Lock the directory of a selection of the same request that is not over, else a new one; none without a task."""
    if plan.task is None:
        yield plan
        return
    new = plan.spec.selection_id
    for path in (*sorted(plan.task.root.glob(f"select-*-{new.rpartition('-')[2]}")), plan.task.root / new):
        try:
            lock = lock_run(plan.task.selection(path.name))
        except SettingsError:  # another process is at work on it
            continue
        try:
            yield replace(plan, spec=replace(plan.spec, selection_id=path.name))
        finally:
            lock.release()
        return


def _remember(selected: Selected, clock: Clock) -> tuple[str, ...]:
    """Write history and memory of a selection that is over, and remove its directory.

    A ``StoreError`` becomes a warning, so that the answer is not lost.
    """
    plan, selection = selected.plan, selected.selection
    if plan.task is None or not selection.is_over:
        return ()
    try:
        # Once, even if the process of an earlier part was killed here.
        if record_round(plan.task.selections, _round_of(selected, clock)) and plan.memory is not None:
            seen = [
                Observation(structural_key(model), label_fingerprint(model), to_text(model), each.reward)
                for each in selection.candidates
                if each.reward is not None and (model := each.outcome.value) is not None
            ]
            plan.memory.observe(seen, selection.spec.selection_id)
    except StoreError as error:
        return (f"the selection was not remembered: {error}",)
    shutil.rmtree(plan.context.run_dir, ignore_errors=True)
    return ()


def _round_of(selected: Selected, clock: Clock) -> SelectionRound:
    plan, selection, cost = selected.plan, selected.selection, selected.selection.cost
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
        reward=None if selected.chosen is None else selection.best.reward,
        mean_reward=selection.mean_reward,
        calls=None if cost.unmeasured_attempts else cost.calls,
        tokens=None if cost.unmeasured_attempts else cost.tokens,
        cost_usd=cost.usd,
        duration_s=selection.duration_s,
    )


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    outcome = candidate.outcome
    return {
        "index": candidate.index,
        "outcome": outcome.name,
        "reason": outcome.reason or None,
        "error_type": outcome.error_type,
        "text": candidate.text,
        "reward": candidate.reward,
        "advantage": candidate.advantage,
        "scores": [
            {
                "name": each.rewarder_id,
                "score": each.score,
                "evidence": each.evidence,
                "details": to_builtins(each.details),
            }
            for each in candidate.scores
        ],
        "ungraded": candidate.ungraded or None,
        "repairs": [{"text": text, "reason": reason} for text, reason in candidate.refused],
        "temperature": candidate.temperature,
        "seed": candidate.seed,
        **asdict(candidate.usage),
        "latency_s": candidate.latency_s,
    }
