"""Plan a selection: check and load all that its request names, before any spending or writing.

It raises one error with all problems.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from tfgrpo.flows.run.context import run_context
from tfgrpo.flows.selection.context import lessons_of, memory_of, pack_of_lessons
from tfgrpo.flows.selection.item import answer_asked, format_asked, item_asked, rewarders_asked
from tfgrpo.flows.selection.request import FIELDS, SelectRequest
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.plan import BasePlan, load_pack, raise_problems
from tfgrpo.pipelines.plan.rewarders import build_rewarders, mix_of
from tfgrpo.pipelines.problems import ProblemCollector
from tfgrpo.pipelines.settings.guardrails import validate_tfgrpo_config
from tfgrpo.pipelines.settings.layers import Resolved, resolve_settings
from tfgrpo.pipelines.settings.model_choice import (
    ModelChoice,
    choose_models,
    dry_run_warnings,
    key_is_missing,
)
from tfgrpo.pipelines.settings.pipeline_file import find_pipeline
from tfgrpo.pipelines.settings.rewarding import RewarderSettings
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.prompt_packs.loader import SHIPPED_ROOT, known_packs
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.rewarders.powl.scoring.answers import REFERENCE_KEYS
from tfgrpo.rewarders.registry import COMPARING_MODELS, COMPARING_REWARDERS
from tfgrpo.rewarders.scoring import WeightedRewarder, check_rewarders
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.errors import ConfigError, Problem, SettingsError
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.identifiers import ACCEPTED
from tfgrpo.stores.patterns.memory import PatternMemory
from tfgrpo.stores.runs.selections import recorded_rounds
from tfgrpo.tasks.actors.registry import check_actor
from tfgrpo.tasks.learning.curriculum_stage import BEHAVIOUR, VALIDITY, PastRound, StageDecision, Use, decide_stage
from tfgrpo.tasks.runtime.runtime import RunContext
from tfgrpo.tasks.selection.formats import AnswerFormat, PowlFormat
from tfgrpo.tasks.selection.hints import hint_of
from tfgrpo.tasks.selection.shapes import SelectionSpec

_MODELLING: Final = "process-models"
"""Domain of packs that teach how to write process models."""
_FLAGS: Final = {f"--set {key}": f"--{name.replace('_', '-')}" for name, key in FIELDS.items()}


@dataclass(frozen=True, slots=True)
class SelectionPlan(BasePlan):
    """A selection that can start."""

    spec: SelectionSpec
    task: TaskPaths | None
    """Task of history and memory; None for a selection of no task."""
    stage: StageDecision | None
    """None when rewarders were named."""
    memory: PatternMemory | None
    measure: str
    """Names of the rewarders that count."""

    @property
    def context(self) -> RunContext:
        """Context of the runtime, which keeps no journal and writes no file."""
        selection_id, task_id = self.spec.selection_id, self.settings.task_id if self.task else None
        return run_context(self, selection_id, Path(self.settings.out) / selection_id, task_id)


def plan_selection(request: SelectRequest, env: Mapping[str, str], *, clock: Clock) -> SelectionPlan:
    """Resolve, check and load. Raises one ``ConfigError`` with all problems."""
    resolved = _resolved(request, env)
    settings = resolved.settings
    checks = ProblemCollector()
    item = checks.run(partial(item_asked, request, settings))
    answer = checks.run(partial(answer_asked, request, settings))
    fmt = checks.run(partial(format_asked, settings))
    task = checks.run(partial(_task, resolved))
    pack = checks.run(partial(_pack, resolved, task[0] if task else None))
    named = checks.run(partial(rewarders_asked, request, resolved))
    checks.run(partial(_check_numbers, settings, has_task=bool(task and task[0])))
    checks.raise_problems()
    asked = item[0] if answer[0] is None else replace(item[0], answer=answer[0])
    loaded = _Loaded(asked, _without_repetition(fmt[0], pack[0]), pack[0], task[0], named[0], answer[0] is not None)
    return _planned(request, resolved, env, loaded, clock)


@dataclass(frozen=True, slots=True)
class _Loaded:
    item: Item
    format: AnswerFormat
    pack: LoadedPack
    task: TaskPaths | None
    named: tuple[RewarderSettings, ...] | None
    """None: what the stage rewards."""
    reference_given: bool
    """Whether the request has a reference in addition to the item."""

    @property
    def has_reference(self) -> bool:
        """Whether there is a reference to compare with."""
        return bool(self.item.answer.strip()) or any(self.item.metadata.get(key) for key in REFERENCE_KEYS)


def _planned(
    request: SelectRequest, resolved: Resolved, env: Mapping[str, str], loaded: _Loaded, clock: Clock
) -> SelectionPlan:
    selection_id = f"select-{clock():%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    settings = _with_endpoint(resolved.settings)
    models = choose_models(settings)
    simulated = models.answers_simulated
    stage = None if loaded.named is not None else _stage(settings, loaded, simulated=simulated)
    rewarders = loaded.named if loaded.named is not None else _rewarded(settings, stage, loaded)
    settings = settings.model_copy(
        update={
            "rewarders": rewarders,
            "pack": loaded.pack.manifest.id,
            "actor": settings.actor.model_copy(update={"timeout_s": settings.selection.timeout_s}),
        }
    )
    built = _checked_rewarders(settings, resolved.sources, loaded)
    measure = ", ".join(sorted(entry.name for entry in rewarders if entry.weight > 0))
    scope = (loaded.item.domain or loaded.pack.manifest.domain, measure)
    memory = memory_of(settings, loaded.task, loaded.pack, scope, clock, simulated=simulated)
    text, skipped = lessons_of(loaded.task, loaded.pack, settings.tfgrpo.retrieval, simulated=simulated)
    spec = SelectionSpec(
        selection_id=selection_id,
        item=loaded.item,
        pack=text,
        k=settings.selection.k,
        min_success=settings.selection.min_success,
        max_repairs=settings.selection.max_validations,
        none_valid=settings.selection.none_valid,
        temperatures=settings.selection.temperatures,
        format=loaded.format,
        hint=hint_of(memory.read(), settings.selection.memory) if memory is not None else "",
    )
    return SelectionPlan(
        settings=settings,
        models=models,
        pack=loaded.pack,
        rewarders=built,
        warnings=(*skipped, *_warnings(request, settings, env, models)),
        spec=spec,
        task=loaded.task,
        stage=stage,
        memory=memory,
        measure=measure,
    )


def _resolved(request: SelectRequest, env: Mapping[str, str]) -> Resolved:
    """Return the settings; problems name the option of the command."""
    path = find_pipeline(request.pipeline) if request.pipeline is not None else None
    try:
        return resolve_settings(cli=request.options(), env=env, pipeline_path=path)
    except ConfigError as error:
        problems = [replace(problem, source=_FLAGS.get(problem.source, problem.source)) for problem in error.problems]
        raise type(error)(problems) from None


def _with_endpoint(settings: Settings) -> Settings:
    """Return the settings with the endpoint and model of selections, unless they name an endpoint."""
    model, selection = settings.model, settings.selection
    if settings.dry_run or model.base_url is not None:
        return settings
    update = {"base_url": selection.base_url, "name": model.name or selection.model}
    return settings.model_copy(update={"model": model.model_copy(update=update)})


def _pack(resolved: Resolved, task: TaskPaths | None) -> LoadedPack:
    """Return the pack that the settings name, else that of the task's lessons, else the one that fits the format."""
    settings = resolved.settings
    name: str | None = settings.pack
    if resolved.sources["pack"] == "default":
        name = pack_of_lessons(task, simulated=choose_models(_with_endpoint(settings)).answers_simulated)
    if name is None:
        root = Path(settings.packs_root) if settings.packs_root is not None else SHIPPED_ROOT
        name = "powl" if settings.selection.format == "powl" and "powl" in known_packs(root) else "general"
    return load_pack(settings, name)


def _task(resolved: Resolved) -> TaskPaths | None:
    """Return the task that any layer of the settings names; None if the setting has its default."""
    if resolved.sources["task_id"] == "default":
        return None
    settings = resolved.settings
    try:
        return TaskPaths.of(settings.out, settings.task_id)
    except ValueError as error:
        raise SettingsError.one("--task-id", repr(settings.task_id[:80]), ACCEPTED) from error


def _check_numbers(settings: Settings, *, has_task: bool) -> None:
    selection = settings.selection
    problems = []
    if selection.min_success > selection.k:
        given = f"{selection.min_success} of {selection.k} candidates"
        problems.append(Problem("--min-success", given, f"at most {selection.k}, or a larger --k"))
    cap = settings.budget.max_calls
    if cap is not None and cap < selection.k:
        problems.append(Problem("--max-calls", str(cap), f"at least {selection.k}, a call for each candidate"))
    if selection.memory.mode != "off":
        if selection.format == "text":
            problems.append(
                Problem("--memory", "it with --format text", "--format json or powl, which have a structure")
            )
        if not has_task:
            problems.append(Problem("--memory", "it without a task", "--task-id TASK, where it is kept"))
    if problems:
        raise SettingsError(problems)


def _checked_rewarders(settings: Settings, sources: Mapping[str, str], loaded: _Loaded) -> tuple[WeightedRewarder, ...]:
    """Check combinations, the actor and the rewarders, and return the rewarders. Raises ``ConfigError``."""
    checks = ProblemCollector()
    checks.run(partial(validate_tfgrpo_config, settings, sources=sources))
    checks.run(partial(raise_problems, lambda each: check_actor(each.actor), settings))
    built = checks.run(partial(_built, settings))
    checks.run(partial(raise_problems, partial(_without_reference, loaded), settings))
    checks.raise_problems()
    return built[0]


def _built(settings: Settings) -> tuple[WeightedRewarder, ...]:
    built = build_rewarders(settings, mix_of(settings))
    check_rewarders(built, group_size=settings.selection.k)
    return built


def _without_reference(loaded: _Loaded, settings: Settings) -> list[Problem]:
    """Return a problem for each rewarder that would abstain for lack of a reference, and leave no reward to choose by."""
    counting = {entry.name for entry in settings.rewarders if entry.weight > 0}
    bare = counting & COMPARING_REWARDERS if not loaded.item.answer.strip() else set()
    if not loaded.has_reference:
        bare |= counting & COMPARING_MODELS
    accepted = "--reference FILE, an item with an answer, or rewarders that need none"
    return [Problem("--rewarder", f"{name} without an answer to compare with", accepted) for name in sorted(bare)]


def _stage(settings: Settings, loaded: _Loaded, *, simulated: bool) -> StageDecision:
    asked = settings.selection.stage
    if asked == BEHAVIOUR and not loaded.has_reference:
        raise SettingsError.one(
            "--stage", f"{asked} without a reference", "--reference FILE, an item with an answer, or another stage"
        )
    uses: dict[str, Use] = {BEHAVIOUR: "production", VALIDITY: "development"}
    # A selection of no task has no history to wait for: its reference counts at once.
    use = uses.get(asked, "history" if loaded.task is not None else "production")
    history = [] if loaded.task is None else list(recorded_rounds(loaded.task.selections, simulated=simulated))
    return decide_stage(
        [PastRound(entry.reward, entry.answered, entry.valid) for entry in history],
        reference=loaded.has_reference,
        use=use,
        thresholds=settings.selection.thresholds,
    )


def _rewarded(settings: Settings, stage: StageDecision | None, loaded: _Loaded) -> tuple[RewarderSettings, ...]:
    """Return the rewarders of a stage: a judge, or the comparison with the reference, the other with weight 0.

    A reference in the request counts, unless the judge's stage was named.
    """
    compares = RewarderSettings(name="powl_footprint" if loaded.format.name == "powl" else "gt")
    judge = RewarderSettings(name="judge")
    if stage is not None and stage.stage == BEHAVIOUR:
        return (compares,)
    if not loaded.has_reference:
        return (judge,)
    first, beside = (
        (compares, judge) if loaded.reference_given and settings.selection.stage == "auto" else (judge, compares)
    )
    return (first, beside.model_copy(update={"weight": 0.0}))


def _without_repetition(fmt: AnswerFormat, pack: LoadedPack) -> AnswerFormat:
    """Return the format without instructions where the pack, of process models, has its own."""
    if isinstance(fmt, PowlFormat) and pack.manifest.domain == _MODELLING:
        return replace(fmt, instructions="")
    return fmt


def _warnings(request: SelectRequest, settings: Settings, env: Mapping[str, str], models: ModelChoice) -> Iterator[str]:
    yield from dry_run_warnings(settings)
    if models.simulated:
        if request.prompt is not None:
            yield "the SIMULATED model knows only the items of its own worlds; what it says to a prompt means nothing"
        elif request.item is None:
            yield f"no prompt: the first item of the SIMULATED world {settings.simulated.world!r} is asked"
    elif key_is_missing(settings.model, env):
        yield f"{settings.model.api_key_env} is not set: the endpoint is asked without a key"
