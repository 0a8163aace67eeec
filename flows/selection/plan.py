"""What exactly will a selection do? Everything cheap is checked and loaded here, before anything is spent or written.

It raises one error with every problem it found. Reading stdin and running are done elsewhere.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from tfgrpo.flows.selection.context import context_of, lessons_of, memory_of, pack_of_lessons
from tfgrpo.flows.selection.item import answer_asked, format_asked, item_asked, rewarders_asked
from tfgrpo.flows.selection.request import FIELDS, SelectRequest
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.rewarders import build_rewarders, mix_of
from tfgrpo.pipelines.problems import ProblemCollector
from tfgrpo.pipelines.settings.guardrails import validate_tfgrpo_config
from tfgrpo.pipelines.settings.layers import Resolved, resolve_settings
from tfgrpo.pipelines.settings.model_choice import (
    SIMULATED_MODEL,
    ModelChoice,
    choose_models,
    dry_run_warnings,
    key_is_missing,
)
from tfgrpo.pipelines.settings.pipeline_file import find_pipeline
from tfgrpo.pipelines.settings.rewarding import RewarderSettings
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.prompt_packs.loader import SHIPPED_ROOT, known_packs, load_prompt_pack
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.rewarders.powl.scoring.answers import REFERENCE_KEYS
from tfgrpo.rewarders.registry import COMPARING_MODELS, COMPARING_REWARDERS
from tfgrpo.rewarders.scoring import check_rewarders
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.errors import ConfigError, Problem, SettingsError
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.identifiers import ACCEPTED
from tfgrpo.stores.patterns.memory import PatternMemory
from tfgrpo.stores.runs.selections import recorded_rounds
from tfgrpo.tasks.actors.registry import check_actor
from tfgrpo.tasks.learning.curriculum_stage import BEHAVIOUR, VALIDITY, PastRound, StageDecision, Use, decide_stage
from tfgrpo.tasks.runtime.context import RunContext
from tfgrpo.tasks.selection.formats import AnswerFormat, PowlFormat
from tfgrpo.tasks.selection.hints import hint_of
from tfgrpo.tasks.selection.shapes import SelectionSpec

_MODELLING: Final = "process-models"
"""Domain of packs that teach how to write process models."""
_FLAGS: Final = {f"--set {key}": f"--{name.replace('_', '-')}" for name, key in FIELDS.items()}


@dataclass(frozen=True, slots=True)
class SelectionPlan:
    """A selection that can start."""

    settings: Settings
    spec: SelectionSpec
    context: RunContext
    models: ModelChoice
    task: TaskPaths | None
    """Where history and memory are kept; None for a selection of no task."""
    stage: StageDecision | None
    """None when rewarders were named."""
    memory: PatternMemory | None
    measure: str
    """Names of the rewarders that count."""
    warnings: tuple[str, ...]

    @property
    def simulated(self) -> bool:
        """Whether the SIMULATED model answers, in process or served."""
        return _is_simulated(self.models)


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
    loaded = _Loaded(asked, _told_once(fmt[0], pack[0]), pack[0], task[0], named[0], answer[0] is not None)
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
    """Whether a reference was given beside the item."""

    @property
    def has_reference(self) -> bool:
        """Whether there is something to compare with."""
        return bool(self.item.answer.strip()) or any(self.item.metadata.get(key) for key in REFERENCE_KEYS)


def _planned(
    request: SelectRequest, resolved: Resolved, env: Mapping[str, str], loaded: _Loaded, clock: Clock
) -> SelectionPlan:
    selection_id = f"select-{clock():%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    settings = _with_endpoint(resolved.settings)
    models = choose_models(settings)
    simulated = _is_simulated(models)
    stage = None if loaded.named is not None else _stage(settings, loaded, simulated=simulated)
    rewarders = loaded.named if loaded.named is not None else _rewarded(settings, stage, loaded)
    settings = settings.model_copy(
        update={
            "rewarders": rewarders,
            "pack": loaded.pack.manifest.id,
            "actor": settings.actor.model_copy(update={"timeout_s": settings.selection.timeout_s}),
        }
    )
    _check_parts(settings, resolved.sources, loaded)
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
        spec=spec,
        context=context_of(settings, loaded.pack, models, selection_id, settings.task_id if loaded.task else None),
        models=models,
        task=loaded.task,
        stage=stage,
        memory=memory,
        measure=measure,
        warnings=(*skipped, *_warnings(request, settings, env, models)),
    )


def _resolved(request: SelectRequest, env: Mapping[str, str]) -> Resolved:
    """Settings; a problem of an option of the command is told in the words of the command."""
    path = find_pipeline(request.pipeline) if request.pipeline is not None else None
    try:
        return resolve_settings(cli=request.options(), env=env, pipeline_path=path)
    except ConfigError as error:
        problems = [replace(problem, source=_FLAGS.get(problem.source, problem.source)) for problem in error.problems]
        raise type(error)(problems) from None


def _with_endpoint(settings: Settings) -> Settings:
    """Where to ask, unless the settings say so: the endpoint of the selection, and with it its model."""
    model, selection = settings.model, settings.selection
    if settings.dry_run or model.base_url is not None:
        return settings
    update = {"base_url": selection.base_url, "name": model.name or selection.model}
    return settings.model_copy(update={"model": model.model_copy(update=update)})


def _pack(resolved: Resolved, task: TaskPaths | None) -> LoadedPack:
    """The pack that the settings name, else that of the task's lessons, else what fits the format."""
    settings = resolved.settings
    root = Path(settings.packs_root) if settings.packs_root is not None else None
    name: str | None = settings.pack
    if resolved.sources["pack"] == "default":
        name = pack_of_lessons(task, simulated=_is_simulated(choose_models(_with_endpoint(settings))))
    if name is None:
        own = settings.selection.format == "powl" and "powl" in known_packs(root or SHIPPED_ROOT)
        name = "powl" if own else "general"
    learning = settings.tfgrpo
    return replace(
        load_prompt_pack(name, root),
        words_allowed=learning.experience_max_words,
        max_chars=learning.experience_max_chars,
    )


def _is_simulated(models: ModelChoice) -> bool:
    return models.simulated or SIMULATED_MODEL in models.in_use


def _task(resolved: Resolved) -> TaskPaths | None:
    """The task that was named, on whatever layer; none was when the setting has its default."""
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


def _check_parts(settings: Settings, sources: Mapping[str, str], loaded: _Loaded) -> None:
    """What runs are checked for too: combinations, the actor, the rewarders, and whether these can grade the item."""
    checks = ProblemCollector()
    checks.run(partial(validate_tfgrpo_config, settings, sources=sources))
    checks.run(partial(_raise, check_actor(settings.actor)))
    checks.run(partial(_check_rewarders, settings))
    checks.run(partial(_refuse_without_reference, settings, loaded))
    checks.raise_problems()


def _check_rewarders(settings: Settings) -> None:
    check_rewarders(build_rewarders(settings, mix_of(settings)), group_size=settings.selection.k)


def _refuse_without_reference(settings: Settings, loaded: _Loaded) -> None:
    """One counting rewarder that abstains leaves every candidate without a reward, after it was paid for."""
    counting = {entry.name for entry in settings.rewarders if entry.weight > 0}
    bare = counting & COMPARING_REWARDERS if not loaded.item.answer.strip() else set()
    if not loaded.has_reference:
        bare |= counting & COMPARING_MODELS
    accepted = "--reference FILE, an item with an answer, or rewarders that need none"
    _raise([Problem("--rewarder", f"{name} without an answer to compare with", accepted) for name in sorted(bare)])


def _raise(problems: Sequence[Problem]) -> None:
    if problems:
        raise SettingsError(problems)


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
    """What a stage rewards: a judge's opinion, or likeness to the reference, which is recorded in either.

    A reference that was given counts, unless the judge's stage was asked for by name: the judge is recorded then.
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


def _told_once(fmt: AnswerFormat, pack: LoadedPack) -> AnswerFormat:
    """The format without instructions where the pack has its own: a pack for process models says how one is handed in."""
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
