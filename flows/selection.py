"""Run a best-of-K selection for one request: plan, sample, choose, record.

A selection of a task has a directory with journal and ledger until it is over: the same request again continues it, and
asks no answered call again. Its history and memory are written at its end. Without a task no file is written.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator, SchemaError

from tfgrpo.flows.orchestration.request import EXIT_CODES, SelectRequest, Status
from tfgrpo.flows.run.damage import refuse_lost
from tfgrpo.flows.run.index import lock_run, task_named
from tfgrpo.flows.run.lessons import lessons_of, pack_of_lessons
from tfgrpo.flows.run.prepare import check_endpoint_of, lasting_settings, run_context
from tfgrpo.pipelines.datasets.datasets import read_dataset, shipped_dataset
from tfgrpo.pipelines.datasets.items import Item, RecordCounts, item_texts
from tfgrpo.pipelines.plan.plan import BasePlan, checked_scorers, mix_of, pack_for
from tfgrpo.pipelines.settings.guardrails import validate_tfgrpo_config
from tfgrpo.pipelines.settings.layers import Resolved
from tfgrpo.pipelines.settings.model_choice import ModelChoice, choose_models, dry_run_warnings, key_warnings
from tfgrpo.pipelines.settings.tree import RewarderSettings, Settings
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.stamps import SHIPPED_ROOT, known_packs, pack_stamp
from tfgrpo.rewarders.powl import reference_in, structural_key, to_text
from tfgrpo.rewarders.powl.scoring import REFERENCE_KEYS
from tfgrpo.rewarders.registry import COMPARING, COMPARING_MODELS
from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.errors import DatasetError, PowlError, Problem, ProblemCollector, SettingsError, StoreError
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.json_values import canonical_json, sha256_hex, to_builtins
from tfgrpo.stores.ledger import Totals
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.actors.registry import check_actor
from tfgrpo.tasks.runtime.host import open_runtime
from tfgrpo.tasks.runtime.runtime import RunContext
from tfgrpo.tasks.selection import history
from tfgrpo.tasks.selection import round as rounds

# Domain of packs that teach how to write process models.
_MODELLING: Final = "process-models"


@dataclass(frozen=True, slots=True)
class SelectionPlan(BasePlan):
    """A selection that can start."""

    spec: rounds.SelectionSpec
    task: TaskPaths | None
    stage: history.StageDecision | None
    """None when rewarders were named."""
    memory: history.PatternMemory | None
    measure: str
    """Names of the rewarders that count."""

    @property
    def context(self) -> RunContext:
        """Context of the runtime. Without a task it keeps no journal and writes no file."""
        name = self.spec.selection_id
        if self.task is None:
            return run_context(self, name, Path(self.settings.out) / name, None)
        directory = self.task.selection(name)
        return replace(run_context(self, name, directory.root, self.settings.task_id), ledger_path=directory.ledger)


def plan_selection(request: SelectRequest, env: Mapping[str, str], *, clock: Clock) -> SelectionPlan:
    """Resolve, check and load. Raises one ``ConfigError`` with all problems."""
    resolved = _resolved(request, env)
    settings, checks = resolved.settings, ProblemCollector()
    simulated = choose_models(settings).simulated
    items = checks.run(_requested_item, request, settings)
    answers = checks.run(_requested_answer, request, settings)
    formats = checks.run(_requested_format, settings)
    # A task that any layer of the settings names; none if the setting has its default.
    named_task = None if resolved.sources["task_id"] == "default" else settings.task_id
    tasks = [None] if named_task is None else checks.run(task_named, named_task, settings.out)
    packs = checks.run(_pack, resolved, tasks[0] if tasks else None, simulated=simulated)
    named = checks.run(_requested_rewarders, request, resolved)
    checks.run(_check_numbers, settings, has_task=any(tasks))
    checks.raise_problems()
    pack, answer, graded, stage = packs[0], formats[0], named[0], None
    # Absolute: an agent that is a function may change the working directory of the process.
    task = None if tasks[0] is None else TaskPaths(tasks[0].root.absolute())
    # A reference in the request counts before that of the item.
    item = items[0] if answers[0] is None else replace(items[0], answer=answers[0], alternatives=())
    if graded is None:
        stage = _stage(settings, item, task, simulated=simulated)
        graded = _graded(settings, stage, item, in_request=answers[0] is not None)
    settings = settings.model_copy(update={"rewarders": graded, "pack": pack.manifest.id})
    checks.run(validate_tfgrpo_config, settings, sources=resolved.sources)
    checks.refuse(check_actor(settings.actor))
    rewarders = checks.run(lambda: checked_scorers(settings, mix_of(settings), group_size=settings.selection.k))
    checks.refuse(_without_reference(item, settings))
    checks.raise_problems()
    models = choose_models(settings)  # again: now the judges are known
    measure = ", ".join(sorted(entry.name for entry in graded if entry.weight > 0))
    scope = history.MemoryScope(item.domain or pack.manifest.domain, measure, simulated=simulated, pack=pack_stamp(pack))
    remembers = settings.selection.memory != "off"
    memory = history.PatternMemory(task.patterns, scope, clock) if remembers and task is not None else None
    text, skipped = lessons_of(task, pack, simulated=simulated)
    if isinstance(answer, rounds.PowlFormat) and pack.manifest.domain == _MODELLING:
        answer = replace(answer, instructions="")  # the pack has them
    hint = "" if memory is None else rounds.hint_of(memory.read(), settings.selection.memory)
    spec = rounds.SelectionSpec(selection_id="", item=item, pack=text, settings=settings.selection, format=answer, hint=hint)
    unread = RecordCounts(entry.scorer for entry in rewarders[0])
    unread.add(item.id, item.as_record())
    return SelectionPlan(
        settings=settings,
        models=models,
        pack=pack,
        rewarders=rewarders[0],
        warnings=(*skipped, *_warnings(request, settings, env, models), *unread.warnings),
        spec=replace(spec, selection_id=_new_id(spec, settings, clock)),
        task=task,
        stage=stage,
        memory=memory,
        measure=measure,
    )


def _new_id(spec: rounds.SelectionSpec, settings: Settings, clock: Clock) -> str:
    # The digest is of all that the answers depend on: by it a killed selection continues.
    began_with = [spec.system.digest, item_texts(spec.item), lasting_settings(settings)]
    digest = sha256_hex(canonical_json(began_with).encode("utf-8", "surrogatepass"))[:12]
    return f"select-{clock():%Y%m%dT%H%M%S}-{secrets.token_hex(2)}-{digest}"


def _resolved(request: SelectRequest, env: Mapping[str, str]) -> Resolved:
    """Return the settings, with the time limit of selections, and their endpoint and model unless another is named."""
    resolved = request.resolved(env)
    settings = resolved.settings
    model, selection = settings.model, settings.selection
    if not settings.dry_run and model.base_url is None:
        named = {"base_url": selection.base_url, "name": model.name or selection.model}
        model = model.model_copy(update=named)
    actor = settings.actor.model_copy(update={"timeout_s": selection.timeout_s})
    return replace(resolved, settings=settings.model_copy(update={"model": model, "actor": actor}))


def _pack(resolved: Resolved, task: TaskPaths | None, *, simulated: bool) -> LoadedPack:
    """Return the pack that the settings name, else that of the task's lessons, else the one that fits the format."""
    settings = resolved.settings
    name: str | None = settings.pack
    if resolved.sources["pack"] == "default":
        name = pack_of_lessons(task, simulated=simulated)
    if name is None:
        root = Path(settings.packs_root) if settings.packs_root is not None else SHIPPED_ROOT
        name = "powl" if settings.selection.format == "powl" and "powl" in known_packs(root) else "general"
    return pack_for(settings, name)


def _check_numbers(settings: Settings, *, has_task: bool) -> None:
    own, cap, remembers = settings.selection, settings.budget.max_calls, settings.selection.memory != "off"
    succeed = f"{own.min_success} of {own.k} candidates"
    checks = (
        (own.min_success > own.k, "--min-success", succeed, f"at most {own.k}, or a larger --k"),
        (cap is not None and cap < own.k, "--max-calls", str(cap), f"at least {own.k}, a call for each candidate"),
        (remembers and own.format != "powl", "--memory", f"it with --format {own.format}", "--format powl"),
        (remembers and not has_task, "--memory", "it without a task", "--task-id TASK, where it is kept"),
    )
    if problems := [Problem(*problem) for fails, *problem in checks if fails]:
        raise SettingsError(problems)


def _has_reference(item: Item) -> bool:
    return bool(item.answer.strip()) or any(item.metadata.get(key) for key in REFERENCE_KEYS)


def _without_reference(item: Item, settings: Settings) -> list[Problem]:
    """Return a problem for each rewarder that would abstain for lack of a reference, and leave no reward to choose by."""
    counting = {entry.name for entry in settings.rewarders if entry.weight > 0}
    bare = counting & COMPARING if not item.answer.strip() else set()
    if not _has_reference(item):
        bare |= counting & COMPARING_MODELS
    accepted = "--reference TEXT or @FILE, an item with an answer, or rewarders that need none"
    return [Problem("--rewarder", f"{name} without an answer to compare with", accepted) for name in sorted(bare)]


def _stage(settings: Settings, item: Item, task: TaskPaths | None, *, simulated: bool) -> history.StageDecision:
    named = settings.selection.stage
    if named == history.BEHAVIOUR and not _has_reference(item):
        accepted = "--reference TEXT or @FILE, an item with an answer, or another stage"
        raise SettingsError.one("--stage", f"{named} without a reference", accepted)
    earlier = None if task is None else list(history.recorded_rounds(task.selections, simulated=simulated))
    return history.decide_stage(earlier, reference=_has_reference(item), choice=named)


def _graded(settings: Settings, stage: history.StageDecision, item: Item, *, in_request: bool) -> tuple[RewarderSettings, ...]:
    compares = RewarderSettings(name="powl_footprint" if settings.selection.format == "powl" else "gt")
    judge = RewarderSettings(name="judge")
    if stage.stage == history.BEHAVIOUR:
        return (compares,)
    if not _has_reference(item):
        return (judge,)
    # A reference that the request has counts, unless the judge's stage was named; the other scorer is only shown.
    first, beside = (compares, judge) if in_request and settings.selection.stage == "auto" else (judge, compares)
    return (first, beside.model_copy(update={"weight": 0.0}))


def _warnings(request: SelectRequest, settings: Settings, env: Mapping[str, str], models: ModelChoice) -> Iterator[str]:
    yield from dry_run_warnings(settings)
    if models.in_process:
        if request.prompt is not None:
            yield "the SIMULATED model knows only the items of its own worlds; what it says to a prompt means nothing"
        elif request.item is None:
            yield f"no prompt: the first item of the SIMULATED world {settings.simulated.world!r} is asked"
    is_file = False
    with suppress(OSError, ValueError):  # a text too long for a name, a null character
        is_file = request.reference is not None and Path(request.reference).is_file()
    if is_file:
        compared = f"as answers are compared with; the file is @{request.reference}"
        yield f"--reference is the text {request.reference!r}, {compared}"
    yield from key_warnings(models, env)


def _requested_item(request: SelectRequest, settings: Settings) -> Item:
    if request.prompt is not None and request.item is not None:
        raise SettingsError.one("--item", "it beside a prompt", "one of the two")
    if request.item is not None:
        path, mark, wanted = request.item.rpartition("#")
        if not mark or not path or not wanted:
            raise SettingsError.one("--item", repr(request.item), "FILE#ID, a dataset and the id of one of its items")
        items = read_dataset(path, settings.dataset.fields).items
        for item in items:
            if item.id == wanted:
                return item
        accepted = f"one of its {len(items)} ids, such as {items[0].id}"
        raise DatasetError.one("--item", f"no item {wanted!r} in {path}", accepted)
    if request.prompt is not None and request.prompt.strip():
        digest = sha256_hex(request.prompt.encode("utf-8", "surrogatepass"))
        return Item(id=f"prompt-{digest[:12]}", prompt=request.prompt, answer="", source="prompt")
    if settings.dry_run and request.prompt is None:
        return read_dataset(shipped_dataset(settings.simulated.world)).items[0]
    accepted = "a prompt by --prompt or on standard input, or --item FILE#ID"
    raise SettingsError.one("--prompt", "nothing to ask", accepted)


def _requested_answer(request: SelectRequest, settings: Settings) -> str | None:
    if request.reference is not None and request.answer is not None:
        raise SettingsError.one("--reference", "it beside an answer", "one of the two")
    if request.reference is None:
        text, source = request.answer, "answer"
    elif request.reference.startswith("@"):
        path = Path(request.reference[1:])
        try:
            text, source = path.read_text(encoding="utf-8-sig"), f"--reference @{path}"
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror or type(error).__name__ if isinstance(error, OSError) else "no UTF-8"
            raise DatasetError.one("--reference", f"@{path}: {why}", "@ and a file of text that can be read") from None
    else:
        text, source = request.reference, "--reference"
    if text is None:
        return None
    if not text.strip():
        raise DatasetError.one(source, "an empty text", "the reference as text, or @FILE")
    if settings.selection.format == "powl":
        try:
            reference_in(text)  # a footprint may be of any mode, which its rewarder checks
        except PowlError as error:
            accepted = "a process model as text or JSON, or a footprint as JSON"
            raise DatasetError.one(source, str(error), accepted) from error
    return text


def _requested_format(settings: Settings) -> rounds.AnswerFormat:
    selection = settings.selection
    if selection.json_schema is not None and selection.format != "json":
        raise SettingsError.one("--json-schema", f"it with --format {selection.format}", "--format json")
    if selection.format != "json":
        return rounds.PowlFormat(selection.repair) if selection.format == "powl" else rounds.TextFormat()
    if selection.json_schema is None:
        return rounds.JsonFormat(None, selection.repair)
    try:
        schema: Any = json.loads(Path(selection.json_schema).read_text(encoding="utf-8-sig"))
        if isinstance(schema, dict):
            Draft202012Validator.check_schema(schema)
            return rounds.JsonFormat(schema, selection.repair)
        why = f"a {type(schema).__name__}"
    except OSError as error:
        why = error.strerror or type(error).__name__
    except SchemaError as error:
        why = f"{error.json_path}: {error.message}"
    except (ValueError, RecursionError) as error:
        why = str(error)
    raise SettingsError.one("--json-schema", f"{selection.json_schema}: {why}", "a file with a JSON schema")


def _requested_rewarders(request: SelectRequest, resolved: Resolved) -> tuple[RewarderSettings, ...] | None:
    if not request.rewarders:
        return None if resolved.sources["rewarders"] == "default" else resolved.settings.rewarders
    options = {entry.name: entry.options for entry in resolved.settings.rewarders}
    rewarders, problems = list[RewarderSettings](), list[Problem]()
    for text in request.rewarders:
        name, _, weight = text.rpartition("=") if "=" in text else (text, "", "1")
        try:
            rewarders.append(RewarderSettings(name=name, weight=float(weight), options=dict(options.get(name, {}))))
        except ValueError:
            problems.append(Problem("--rewarder", repr(text), "NAME=WEIGHT, a weight of at least 0"))
    if problems:
        raise SettingsError(problems)
    return tuple(rewarders)


@dataclass(frozen=True, slots=True, repr=False)
class Selected:
    """A selection that was run, with its plan.

    Examples:
        >>> best = tfgrpo.select("What is 17 * 23?", answer="391", rewarders=["gt"], dry_run=True)
        >>> best.text, best.selection.cost.usd
    """

    plan: SelectionPlan
    selection: rounds.Selection
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
        why, losses = self.selection.choice.why, rounds.lost_and_flawed(self.selection.candidates)
        if self.chosen is None:
            return why
        choice = f"candidate {self.chosen}: {why}"
        if not losses or "best effort" in why:  # which names the losses itself
            return choice
        return f"{choice}; of {len(self.selection.candidates)} candidates {losses}"

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
            earlier = refuse_lost(begun.context, "--task-id", f"restore the file, or remove {files.root} to begin anew")
            warnings, spent = [*warnings, *earlier.warnings], earlier.spent
        runtime = await open_runtime(begun.context, journaled=task is not None)
        try:
            runtime.ledger.start_at_least(spent)
            if runtime.journal:
                calls = pluralize(len(runtime.journal), "answered call")
                warnings.append(f"{begun.spec.selection_id} was not over: it goes on, and {calls} are not asked again")
            # The ledger of a task's selection has the calls of its earlier parts, too.
            before = None if task is None else Totals()
            selected = Selected(begun, await rounds.select_best(begun.spec, runtime, before=before), ())
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
    plan, selection, cost = selected.plan, selected.selection, selected.selection.cost
    if plan.task is None or not selection.is_over:
        return ()
    over = history.SelectionRound(
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
    try:
        # Once, even if the process of an earlier part was killed here.
        if history.record_round(plan.task.selections, over) and plan.memory is not None:
            seen = [
                history.Observation(structural_key(model), to_text(model), each.reward)
                for each in selection.candidates
                if each.reward is not None and (model := each.outcome.value) is not None
            ]
            plan.memory.observe(seen, selection.spec.selection_id)
    except StoreError as error:
        # A warning: the answer is paid for, and is not lost with its record.
        return (f"the selection was not remembered: {error}",)
    shutil.rmtree(plan.context.run_dir, ignore_errors=True)
    return ()


def _candidate_json(candidate: rounds.Candidate) -> dict[str, Any]:
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
            {"name": each.rewarder_id, "score": each.score, "evidence": each.evidence, "details": to_builtins(each.details)}
            for each in candidate.scores
        ],
        "ungraded": candidate.ungraded or None,
        "repairs": [{"text": text, "reason": reason} for text, reason in candidate.refused],
        "temperature": candidate.temperature,
        "seed": candidate.seed,
        **asdict(candidate.usage),
        "latency_s": candidate.latency_s,
    }
