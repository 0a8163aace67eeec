"""Plan a selection: check and load all that its request names, before any spending or writing.

It raises one error with all problems.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator, SchemaError

from tfgrpo.flows.orchestration.request import SelectRequest
from tfgrpo.flows.run.index import task_named
from tfgrpo.flows.run.lessons import lessons_of, pack_of_lessons
from tfgrpo.flows.run.prepare import lasting_settings, run_context
from tfgrpo.pipelines.datasets.datasets import read_dataset, shipped_dataset
from tfgrpo.pipelines.datasets.items import Item, RecordCounts, item_texts
from tfgrpo.pipelines.plan.plan import BasePlan, build_scorers, mix_of, pack_for
from tfgrpo.pipelines.problems import ProblemCollector
from tfgrpo.pipelines.settings.guardrails import validate_tfgrpo_config
from tfgrpo.pipelines.settings.layers import Resolved
from tfgrpo.pipelines.settings.model_choice import ModelChoice, choose_models, dry_run_warnings, key_warnings
from tfgrpo.pipelines.settings.tree import RewarderSettings, Settings
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.stamps import SHIPPED_ROOT, known_packs, pack_stamp
from tfgrpo.rewarders.composite import check_scorers
from tfgrpo.rewarders.powl import reference_in
from tfgrpo.rewarders.powl.scoring import REFERENCE_KEYS
from tfgrpo.rewarders.registry import COMPARING, COMPARING_MODELS
from tfgrpo.rewarders.scorer import Weighted
from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.errors import DatasetError, PowlError, Problem, SettingsError
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.patterns import MemoryScope, PatternMemory
from tfgrpo.tasks.actors.registry import check_actor
from tfgrpo.tasks.runtime.runtime import RunContext
from tfgrpo.tasks.selection.history import BEHAVIOUR, StageDecision, decide_stage, recorded_rounds
from tfgrpo.tasks.selection.round import AnswerFormat, JsonFormat, PowlFormat, SelectionSpec, TextFormat, hint_of

_MODELLING: Final = "process-models"
"""Domain of packs that teach how to write process models."""


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
        """Context of the runtime. Without a task it keeps no journal and writes no file."""
        selection_id, task = self.spec.selection_id, self.task
        if task is None:
            return run_context(self, selection_id, Path(self.settings.out) / selection_id, None)
        directory = task.selection(selection_id)
        context = run_context(self, selection_id, directory.root, self.settings.task_id)
        return replace(context, ledger_path=directory.ledger)


def plan_selection(request: SelectRequest, env: Mapping[str, str], *, clock: Clock) -> SelectionPlan:
    """Resolve, check and load. Raises one ``ConfigError`` with all problems."""
    resolved = _resolved(request, env)
    settings, checks = resolved.settings, ProblemCollector()
    simulated = choose_models(settings).simulated
    items = checks.run(_item_asked, request, settings)
    answers = checks.run(_answer_asked, request, settings)
    formats = checks.run(_format_asked, settings)
    # A task that any layer of the settings names; none if the setting has its default.
    named_task = None if resolved.sources["task_id"] == "default" else settings.task_id
    tasks = [None] if named_task is None else checks.run(task_named, named_task, settings.out)
    packs = checks.run(_pack, resolved, tasks[0] if tasks else None, simulated=simulated)
    named = checks.run(_rewarders_asked, request, resolved)
    checks.run(_check_numbers, settings, has_task=any(tasks))
    checks.raise_problems()
    pack, graded, stage = packs[0], named[0], None
    # Absolute: an agent that is a function may change the working directory of the process.
    task = None if tasks[0] is None else TaskPaths(tasks[0].root.absolute())
    # A reference in the request counts before that of the item.
    item = items[0] if answers[0] is None else replace(items[0], answer=answers[0], alternatives=())
    if graded is None:
        stage = _stage(settings, item, task, simulated=simulated)
        graded = _graded(settings, stage, item, given=answers[0] is not None)
    settings = settings.model_copy(update={"rewarders": graded, "pack": pack.manifest.id})
    checks.run(validate_tfgrpo_config, settings, sources=resolved.sources)
    checks.refuse(check_actor(settings.actor))
    rewarders = checks.run(_built, settings)
    checks.refuse(_without_reference(item, settings))
    checks.raise_problems()
    models = choose_models(settings)  # again: now the judges are known
    measure = ", ".join(sorted(entry.name for entry in graded if entry.weight > 0))
    scope = MemoryScope(item.domain or pack.manifest.domain, measure, simulated=simulated, pack=pack_stamp(pack))
    remembers = settings.selection.memory != "off"
    memory = PatternMemory(task.patterns, scope, clock) if remembers and task is not None else None
    text, skipped = lessons_of(task, pack, simulated=simulated)
    answer = formats[0]
    if isinstance(answer, PowlFormat) and pack.manifest.domain == _MODELLING:
        answer = replace(answer, instructions="")  # the pack has them
    spec = SelectionSpec(
        selection_id="",
        item=item,
        pack=text,
        settings=settings.selection,
        format=answer,
        hint="" if memory is None else hint_of(memory.read(), settings.selection.memory),
    )
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


def _new_id(spec: SelectionSpec, settings: Settings, clock: Clock) -> str:
    """Return an id that ends with the digest of all that the answers depend on: by it a killed selection continues."""
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
    asked, cap, remembers = settings.selection, settings.budget.max_calls, settings.selection.memory != "off"
    succeed = f"{asked.min_success} of {asked.k} candidates"
    checks = (
        (asked.min_success > asked.k, "--min-success", succeed, f"at most {asked.k}, or a larger --k"),
        (cap is not None and cap < asked.k, "--max-calls", str(cap), f"at least {asked.k}, a call for each candidate"),
        (remembers and asked.format != "powl", "--memory", f"it with --format {asked.format}", "--format powl"),
        (remembers and not has_task, "--memory", "it without a task", "--task-id TASK, where it is kept"),
    )
    if problems := [Problem(*problem) for fails, *problem in checks if fails]:
        raise SettingsError(problems)


def _built(settings: Settings) -> tuple[Weighted, ...]:
    built = build_scorers(settings, mix_of(settings))
    check_scorers(built, group_size=settings.selection.k)
    return built


def _has_reference(item: Item) -> bool:
    """Return whether there is a reference to compare with."""
    return bool(item.answer.strip()) or any(item.metadata.get(key) for key in REFERENCE_KEYS)


def _without_reference(item: Item, settings: Settings) -> list[Problem]:
    """Return a problem for each rewarder that would abstain for lack of a reference, and leave no reward to choose by."""
    counting = {entry.name for entry in settings.rewarders if entry.weight > 0}
    bare = counting & COMPARING if not item.answer.strip() else set()
    if not _has_reference(item):
        bare |= counting & COMPARING_MODELS
    accepted = "--reference TEXT or @FILE, an item with an answer, or rewarders that need none"
    return [Problem("--rewarder", f"{name} without an answer to compare with", accepted) for name in sorted(bare)]


def _stage(settings: Settings, item: Item, task: TaskPaths | None, *, simulated: bool) -> StageDecision:
    asked = settings.selection.stage
    if asked == BEHAVIOUR and not _has_reference(item):
        accepted = "--reference TEXT or @FILE, an item with an answer, or another stage"
        raise SettingsError.one("--stage", f"{asked} without a reference", accepted)
    history = None if task is None else list(recorded_rounds(task.selections, simulated=simulated))
    return decide_stage(history, reference=_has_reference(item), asked=asked)


def _graded(settings: Settings, stage: StageDecision, item: Item, *, given: bool) -> tuple[RewarderSettings, ...]:
    """Return the rewarders of a stage: a judge, or the comparison with the reference, the other with weight 0.

    A reference ``given`` in the request counts, unless the judge's stage was named.
    """
    compares = RewarderSettings(name="powl_footprint" if settings.selection.format == "powl" else "gt")
    judge = RewarderSettings(name="judge")
    if stage.stage == BEHAVIOUR:
        return (compares,)
    if not _has_reference(item):
        return (judge,)
    first, beside = (compares, judge) if given and settings.selection.stage == "auto" else (judge, compares)
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
        named = f"as answers are compared with; the file is @{request.reference}"
        yield f"--reference is the text {request.reference!r}, {named}"
    yield from key_warnings(models, env)


def _item_asked(request: SelectRequest, settings: Settings) -> Item:
    """Return the item with its answer, if any. Raises ``ConfigError`` for no prompt or item, or for both."""
    if request.prompt is not None and request.item is not None:
        raise SettingsError.one("--item", "it beside a prompt", "one of the two")
    if request.item is not None:
        return _item_of(request.item, settings)
    if request.prompt is not None and request.prompt.strip():
        digest = sha256_hex(request.prompt.encode("utf-8", "surrogatepass"))
        return Item(id=f"prompt-{digest[:12]}", prompt=request.prompt, answer="", source="prompt")
    if settings.dry_run and request.prompt is None:
        return read_dataset(shipped_dataset(settings.simulated.world)).items[0]
    accepted = "a prompt by --prompt or on standard input, or --item FILE#ID"
    raise SettingsError.one("--prompt", "nothing to ask", accepted)


def _item_of(name: str, settings: Settings) -> Item:
    path, mark, wanted = name.rpartition("#")
    if not mark or not path or not wanted:
        raise SettingsError.one("--item", repr(name), "FILE#ID, a dataset and the id of one of its items")
    items = read_dataset(path, settings.dataset.fields).items
    found = next((item for item in items if item.id == wanted), None)
    if found is None:
        accepted = f"one of its {len(items)} ids, such as {items[0].id}"
        raise DatasetError.one("--item", f"no item {wanted!r} in {path}", accepted)
    return found


def _answer_asked(request: SelectRequest, settings: Settings) -> str | None:
    """Return the reference of the request as text; None without one. Raises ``ConfigError``."""
    if request.reference is not None and request.answer is not None:
        raise SettingsError.one("--reference", "it beside an answer", "one of the two")
    if request.reference is None:
        text, source = request.answer, "answer"
    elif request.reference.startswith("@"):
        path = Path(request.reference[1:])
        text, source = _read_text(path), f"--reference @{path}"
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


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        given = error.strerror or type(error).__name__ if isinstance(error, OSError) else "no UTF-8"
        raise DatasetError.one("--reference", f"@{path}: {given}", "@ and a file of text that can be read") from None


def _format_asked(settings: Settings) -> AnswerFormat:
    """Return the answer format. Raises ``SettingsError`` for an invalid schema."""
    selection = settings.selection
    if selection.json_schema is not None and selection.format != "json":
        raise SettingsError.one("--json-schema", f"it with --format {selection.format}", "--format json")
    if selection.format == "json":
        return JsonFormat(_schema(selection.json_schema), selection.repair)
    return PowlFormat(selection.repair) if selection.format == "powl" else TextFormat()


def _schema(path: str | None) -> Mapping[str, Any] | None:
    if path is None:
        return None
    try:
        schema: Any = json.loads(Path(path).read_text(encoding="utf-8-sig"))
        if isinstance(schema, dict):
            Draft202012Validator.check_schema(schema)
            return schema
        given = f"a {type(schema).__name__}"
    except OSError as error:
        given = error.strerror or type(error).__name__
    except SchemaError as error:
        given = f"{error.json_path}: {error.message}"
    except (ValueError, RecursionError) as error:
        given = str(error)
    raise SettingsError.one("--json-schema", f"{path}: {given}", "a file with a JSON schema")


def _rewarders_asked(request: SelectRequest, resolved: Resolved) -> tuple[RewarderSettings, ...] | None:
    """Return the rewarders of the request, else those that the settings name; None for those of the stage."""
    if not request.rewarders:
        return None if resolved.sources["rewarders"] == "default" else resolved.settings.rewarders
    problems: list[Problem] = []
    options = {entry.name: entry.options for entry in resolved.settings.rewarders}
    named = []
    for given in request.rewarders:
        name, mark, weight = given.rpartition("=") if "=" in given else (given, "", "1")
        try:
            share = float(weight)
            named.append(RewarderSettings(name=name, weight=share, options=dict(options.get(name, {}))))
        except ValueError:
            problems.append(Problem("--rewarder", repr(given), f"NAME{mark or '='}WEIGHT, a weight of at least 0"))
    if problems:
        raise SettingsError(problems)
    return tuple(named)
