"""Open a run: names, directories, the champion it starts from and the manifest, in that order.

What must be unchanged in a resumed or replayed run (pack, items) is compared with its manifest before any writing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from filelock import FileLock, Timeout

from tfgrpo.flows.console.observer import Observer
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.flows.run.champion import champion_library, champion_problems, library_of, missing, retirement, verified
from tfgrpo.flows.run.context import run_context
from tfgrpo.flows.run.loop.announcer import Announcer
from tfgrpo.flows.run.loop.records import RunFiles, voided_groups
from tfgrpo.flows.run.loop.session import Books, LearningState, RunGroups, Session, Stopwatch
from tfgrpo.flows.run.prepare import Prepared
from tfgrpo.flows.run.resume import manifest_of
from tfgrpo.pipelines.datasets.items import Item, item_texts
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.pipelines.plan.sampling import Difficulty, difficulty_so_far
from tfgrpo.pipelines.settings.layers import describe
from tfgrpo.prompt_packs.stamps import approved_stamps
from tfgrpo.rewarders.judge.model import judge_loads
from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.errors import CorruptFile, SettingsError
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.identifiers import ACCEPTED, LONGEST
from tfgrpo.stores.ledger.ledger import Ledger
from tfgrpo.stores.ledger.shared import totals_in
from tfgrpo.stores.ledger.state import Budget, Totals
from tfgrpo.stores.runs.journal import Journal
from tfgrpo.stores.runs.manifest import ManifestFile
from tfgrpo.stores.telemetry.setup import configure
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.models.wire import encode_tool
from tfgrpo.tasks.runtime.host import call_blocking, close_runtime
from tfgrpo.tasks.runtime.runtime import LEARNING_RULES, RunContext, Runtime
from tfgrpo.tasks.tools.schema import load_tools


@dataclass(frozen=True, slots=True)
class _Location:
    """Directories of a run; a replay reads from ``source`` and writes to ``task``."""

    run_id: str
    task: TaskPaths
    source: TaskPaths
    run: RunPaths
    earlier: dict[str, Any] | None
    """Manifest of the run that is resumed or replayed."""


def open_session(
    request: RunRequest,
    prepared: Prepared,
    observer: Observer,
    fan_out: RunGroups,
    *,
    clock: Clock,
) -> Session:
    """Open a new, resumed or replayed run. Raises ``SettingsError`` before anything is written."""
    plan = prepared.plan
    location = _locate(request, plan, clock)
    identity = _identity(plan)
    if location.earlier is not None:
        _refuse_other_world(location.earlier, identity)
    champion, retired = _champion(location, plan)
    telemetry = configure(_context(request, plan, location).telemetry, os.environ)  # refuses an invalid OTEL endpoint
    if request.replay is not None:
        _refuse_damage(location)
        location = _apart(location)
    context = _context(request, plan, location)
    with ExitStack() as undo:
        lock = _lock(location.run)
        undo.callback(lock.release)
        _begin_task_ledger(context, location.task, simulated=plan.simulated)
        undo.callback(close_runtime, context)
        runtime = call_blocking(context, _itself)
        manifest = ManifestFile(location.run.manifest)
        manifest.update(**_opening_fields(request, prepared, location, identity, champion, clock))
        damage = runtime.journal.warning if runtime.journal is not None else None
        happened = (*retired, *([damage] if damage else []))
        warnings = (*prepared.warnings, *happened, *telemetry.warnings)
        for warning in warnings:
            manifest.warn(warning, lasting=warning in happened)
        session = Session(
            plan=plan,
            run_id=location.run_id,
            task=location.task,
            paths=location.run,
            context=context,
            runtime=runtime,
            store=_store(location, plan, clock),
            books=Books(
                manifest, RunFiles(location.run, location.run_id, plan.group_size, plan.rewarders), plan.group_size
            ),
            announcer=Announcer(observer, runtime.telemetry, plan),
            learning=LearningState(champion),
            champion=champion,
            fan_out=fan_out,
            clock=clock,
            lock=lock,
            stopwatch=Stopwatch.start(runtime.ledger.totals().calls),
            difficulty=_difficulty(location, plan),
            replay_of=location.source if request.replay is not None else None,
            voided=voided_groups(location.source.run(location.run_id)),
        )
        undo.pop_all()
    observer.run_started(plan, location.run_id, warnings)
    return session


def _difficulty(location: _Location, plan: Plan) -> Difficulty | None:
    """Return the item statistics of runs before this one started; None without a curriculum."""
    if plan.settings.tfgrpo.curriculum == "none":
        return None
    drawn = (location.earlier or {}).get("cohorts", {}).get("1")
    if drawn is not None:
        return Difficulty.from_json(drawn["sampling"]["curriculum"])
    return difficulty_so_far(location.source, model=plan.models.name, simulated=plan.simulated)


def _refuse_damage(location: _Location) -> None:
    """Raise ``SettingsError`` for a damaged journal: a replay answers from it alone."""
    with Journal(location.source.run(location.run_id).journal, repair=False) as journal:
        damaged = journal.damaged
    if damaged:
        accepted = f"a whole journal; `--resume {location.run_id}` sets damaged lines aside and asks those calls again"
        raise SettingsError.one("--replay", f"{location.run_id} with {pluralize(damaged, 'damaged line')}", accepted)


async def _itself(runtime: Runtime) -> Runtime:
    return runtime


def _locate(request: RunRequest, plan: Plan, clock: Clock) -> _Location:
    source = TaskPaths.of(plan.settings.out, plan.settings.task_id)
    if request.earlier is not None:
        earlier = manifest_of(request, plan.settings)
        return _Location(request.earlier, source, source, source.run(request.earlier), earlier)
    run_id = f"{clock():%Y%m%dT%H%M%S}-{secrets.token_hex(2)}" if request.run_id is None else request.run_id
    try:
        run = source.run(run_id)
    except ValueError as error:
        raise SettingsError.one("--run-id", repr(run_id), ACCEPTED) from error
    if run.manifest.exists():
        raise SettingsError.one(
            "--run-id", run_id, f"a name not used before; to go on with that run: --resume {run_id}"
        )
    return _Location(run_id, source, source, run, None)


def _apart(location: _Location) -> _Location:
    """Return the location with a new task directory for the replay, under the first free number."""
    endings = (f"-{number}" for number in itertools.count(1))
    tasks = (location.source.replay(location.run_id[: LONGEST - len(ending)] + ending) for ending in endings)
    task = next(filter(_is_new, tasks))
    return dataclasses.replace(location, task=task, run=task.run(location.run_id))


def _is_new(task: TaskPaths) -> bool:
    """Create the task's directory; return False if it existed. Atomic, so that two replays never share one."""
    try:
        task.root.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        return False
    return True


def _identity(plan: Plan) -> dict[str, Any]:
    """Return what must not change between the parts of a run."""
    pack = plan.pack.manifest

    mix = plan.data.mix
    return {
        "pack": {"id": pack.id, "domain": pack.domain, "stamp": pack.stamp, "stamped_at": str(pack.stamped_at)},
        "dataset": {
            "learn": len(plan.learn_items),
            "held_out": len(plan.eval_items),
            "held_out_of": len(plan.data.split.held_out),
            "learn_digest": _digest_of(plan.learn_items),
            "held_out_digest": _digest_of(plan.eval_items),
            **({"mix_sha256": mix.config.digest} if mix is not None else {}),
        },
        "judges": [
            {"model": plan.models.judge(load.model), "instructions": sha256_hex(load.instructions)}
            for weighted in plan.rewarders
            for load in judge_loads(weighted.rewarder, plan.group_size)
        ],
    }


def _digest_of(items: Iterable[Item]) -> str:
    """Return the SHA-256 of a JSON list of the items, item by item: there may be more than fit into memory."""
    digest = hashlib.sha256(b"[")
    for number, item in enumerate(items):
        line = canonical_json(item_texts(item))
        digest.update(f"{',' if number else ''}{line}".encode())
    digest.update(b"]")
    return digest.hexdigest()


def _refuse_other_world(earlier: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    for part, now in identity.items():
        before = earlier.get(part, now)
        if isinstance(now, dict) and isinstance(before, dict):
            before = now | before  # fields that an older manifest lacks count as unchanged
        if before != now:
            raise SettingsError.one(
                f"the run's {part}",
                canonical_json(now),
                f"unchanged since the run began: {canonical_json(earlier[part])}",
            )


def _store(location: _Location, plan: Plan, clock: Clock) -> ExperienceStore:
    return ExperienceStore(
        location.task.experiences,
        approved=approved_stamps([plan.pack]),
        task_id=plan.settings.task_id,
        max_words=plan.pack.max_words,
        epochs=plan.settings.tfgrpo.epochs,
        clock=clock,
    )


def _champion(location: _Location, plan: Plan) -> tuple[Library, list[str]]:
    """Return the library that the run starts from, and warnings for its lost and retired lessons."""
    approved = approved_stamps([plan.pack])
    store = ExperienceStore(location.source.experiences, approved=approved, task_id=plan.settings.task_id)
    if location.earlier is None:
        promoted = champion_library(store, location.source, simulated=plan.simulated)
        lost = champion_problems(store, location.source, simulated=plan.simulated)
    else:
        ids = location.earlier["champion"]["experience_ids"]
        promoted = library_of(store, ids)
        lost = missing(store, [(name, None) for name in ids])
    return verified(promoted, store), [*lost, *retirement(promoted, store)]


def _lock(run: RunPaths) -> FileLock:
    run.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = FileLock(run.root / ".lock", mode=0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise SettingsError.one("the run", run.root.name, "a run that no other process has open") from error
    return lock


def _begin_task_ledger(context: RunContext, task: TaskPaths, *, simulated: bool) -> None:
    """Start the task's ledger with the spending of its earlier runs, unless there is one."""
    if context.task_ledger_path is None:
        return
    try:
        with closing(Ledger(Budget(), shared=context.task_ledger_path)) as ledger:
            ledger.start_from(lambda: _spent_before(task, simulated=simulated))
    except CorruptFile as error:
        raise SettingsError.one("budget.task_max_usd", str(error), "ledgers and manifests that can be read") from error


def _spent_before(task: TaskPaths, *, simulated: bool) -> Totals:
    total = Totals()
    for path in task.root.glob("runs/*/manifest.json"):
        run = RunPaths(path.parent)
        if run.ledger.is_file() and ManifestFile(path).read().get("simulated") == simulated:
            total = total.plus(totals_in(run.ledger))
    return total


def _context(request: RunRequest, plan: Plan, location: _Location) -> RunContext:
    settings = plan.settings
    context = run_context(plan, location.run_id, location.run.root, settings.task_id)
    telemetry = dataclasses.replace(context.telemetry, several_processes=settings.task_runner != "threads")
    context = dataclasses.replace(context, rules=_rules(location), telemetry=telemetry)
    if request.replay is not None:
        return dataclasses.replace(context, replay=True, replay_from=location.source.run(location.run_id).journal)
    shared = None if settings.budget.task_max_usd is None else location.task.ledger(simulated=plan.simulated)
    return dataclasses.replace(context, ledger_path=location.run.ledger, task_ledger_path=shared)


def _rules(location: _Location) -> int:
    """Return the learning rules that the run started with."""
    return LEARNING_RULES if location.earlier is None else int(location.earlier.get("learning_rules", 1))


def _opening_fields(
    request: RunRequest,
    prepared: Prepared,
    location: _Location,
    identity: Mapping[str, Any],
    champion: Library,
    clock: Clock,
) -> dict[str, Any]:
    plan = prepared.plan
    before = location.earlier if location.earlier is not None and location.task == location.source else {}
    # Older manifests do not mark lasting warnings.
    lasting = before.get("lasting_warnings", before.get("warnings", []))
    return {
        "warnings": lasting,
        "lasting_warnings": lasting,
        "schema_version": 1,
        "learning_rules": _rules(location),
        "run_id": location.run_id,
        "task_id": plan.settings.task_id,
        "pipeline": plan.settings.pipeline,
        "flow_run_id": request.flow_run_id if location.earlier is None else location.earlier.get("flow_run_id"),
        "status": "running",
        "simulated": plan.simulated,
        "model": plan.models.name,
        "started_at": location.earlier["started_at"] if location.earlier else clock().isoformat(),
        "resumed_at": clock().isoformat() if before else None,
        "traceback": None,
        "settings": plan.settings.model_dump(mode="json"),
        "sources": dict(prepared.resolved.sources),
        "settings_table": [
            {"key": key, "value": value, "source": source} for key, value, source in describe(prepared.resolved)
        ],
        "seeds": {
            "run": plan.settings.tfgrpo.seed,
            "simulated": plan.settings.simulated.seed if plan.simulated else None,
        },
        "forecast": dataclasses.asdict(plan.forecast),
        "tools": [encode_tool(tool.spec) for tool in load_tools(plan.settings.actor.tools)],
        "champion": {
            "library_id": champion.library_id,
            "experience_ids": [entry.experience_id for entry in champion.entries],
        },
        **identity,
    }
