"""Know the runs of a task by their manifests: list them, newest first, resolve ``latest``, and find those that were killed.

A run that could not start is recorded here, too, so that every night that was asked for is listed.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.errors import CorruptFile, SettingsError, StoreError
from tfgrpo.stores.experiences.decisions import nights_unchanged, read_decisions
from tfgrpo.stores.files.atomic import read_json
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.files.lines import open_regular
from tfgrpo.stores.json_values import mapping_of
from tfgrpo.stores.ledger import Totals, totals_in
from tfgrpo.stores.runs import ManifestFile, RunStatus
from tfgrpo.stores.text import IDENTIFIER_RULE

LATEST: Final = "latest"
"""Name of the newest run of a task, unless a run is called that."""

SATURATED: Final = 3
"""Nights in a row that left what is in force as it was, and would have put nothing else: then a task is saturated."""
_BEGINNING: Final = 4  # characters of a run's name, at least
_NAMED: Final = 10
# Files that make a directory a task.
_OF_TASK: Final = ("*/runs/*/manifest.json", "*/experiences.jsonl")
# Files that say when a task was used.
_USES: Final = ("*/runs/*/manifest.json", "*/state.json")


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One run as its manifest describes it; None for a missing field."""

    task_id: str
    run_id: str
    started_at: datetime
    status: str
    """As in the manifest: a run that was killed stays ``running``. ``unreadable``: the manifest is damaged."""
    state: str
    """The status; ``unfinished`` for a run that was killed, also while its books closed, which can be resumed."""
    night: int | None
    """Number of a run that learns, by its start, from 1: of its task, for simulated and real models apart."""
    decision: str | None
    message: str | None
    """The decision in words, or the reason of an early end."""
    ledger: Totals | None
    """What was spent, as of now while the run has not ended. None for a run that did not start, and for a damaged ledger."""
    lessons: int | None
    """Lessons on trial at the end. None for a run that ended no epoch, and for one that is no night."""
    simulated: bool | None
    model: str | None
    pack: str | None
    """Its id and the beginning of its stamp, to which lessons belong."""
    items_changed: str | None
    """How the dataset differs from that of the night before."""
    begun: bool
    """Whether it was opened; a run that was refused, or found no server of Prefect's, has a manifest and nothing else."""
    slots: int | None
    ended_at: datetime | None = None


def runs_of(task: TaskPaths) -> list[RunEntry]:
    """Return all runs of a task, newest first; no night is newer than one with a higher number, even if a clock went back."""
    entries = [_entry(RunPaths(path.parent), task.root.name) for path in task.root.glob("runs/*/manifest.json")]
    began = {entry.run_id: entry.started_at for entry in entries}
    following: dict[bool | None, datetime] = {}
    nights = sorted((one for one in entries if one.night), key=lambda one: -(one.night or 0))
    for _, same in groupby(nights, lambda one: one.night):
        begun = {one: min(one.started_at, following.get(one.simulated, one.started_at)) for one in same}
        began |= {one.run_id: moment for one, moment in begun.items()}
        following |= {one.simulated: moment for one, moment in begun.items()}
    return sorted(entries, key=lambda entry: (began[entry.run_id], entry.night or 0, entry.run_id), reverse=True)


def nights_begun(task: TaskPaths, *, simulated: bool) -> int:
    """Return how many nights of a task have begun with this kind of model. Raises ``CorruptFile``.

    Of those whose directory was removed, the ones that ended with a decision count.
    """
    numbers = [entry.night or 0 for entry in runs_of(task) if entry.simulated == simulated]
    decided = sum(one.ends_night for one in read_decisions(task.promotions) if one.simulated == simulated)
    return max(decided, *numbers, 0)


def unchanged_nights(task: TaskPaths, *, simulated: bool) -> int:
    """Return how many nights in a row changed nothing, up to the last one of this kind of model. Raises ``CorruptFile``."""
    return nights_unchanged(one for one in read_decisions(task.promotions) if one.simulated == simulated)


def has_begun(manifest: Mapping[str, Any]) -> bool:
    """Return whether a manifest is that of a run that was opened."""
    return "began_with" in manifest or manifest.get("status") not in {"refused", "failed"}


def is_unclosed(manifest: Mapping[str, Any]) -> bool:
    """Return whether a run was opened and its books were not closed: the record of its files comes last."""
    return has_begun(manifest) and manifest.get("files") == {} and "pruned_at" not in manifest


def run_named(task: TaskPaths, name: str) -> RunPaths | None:
    """Return the run with a name, or the ``latest``; None if there is none, as for a name that none can have."""
    with suppress(ValueError):
        if (run := task.run(name)).manifest.is_file():
            return run
    runs = [entry for entry in runs_of(task) if entry.begun] if name == LATEST else []
    return task.run(runs[0].run_id) if runs else None


def find_run(task: TaskPaths, name: str, *, everywhere: bool) -> RunPaths | None:
    """Return the run in a directory, else ``run_named``; with ``everywhere``, else that of the only other task that has one.

    Else it is the only run of the task whose name begins so, as ids of flow runs are long; no name of a task or of a damaged
    run is such a beginning.
    """
    with suppress(ValueError, OSError):  # text that is no path
        if (here := RunPaths(Path(name).resolve())).manifest.is_file():
            return here
    run, tasks = run_named(task, name), known_tasks(task.root.parent)
    matches = [] if run is None else [run]
    if not matches and everywhere:
        named = (run_named(TaskPaths(task.root.parent / each), name) for each in tasks)
        matches = [each for each in named if each is not None]
    if not matches and len(name) >= _BEGINNING and name not in tasks:
        matches = [RunPaths(path) for path in task.root.glob("runs/*") if path.name.startswith(name)]
    return matches[0] if len(matches) == 1 and matches[0].manifest.is_file() else None


def refuse_pruned(run: RunPaths, source: str = "RUN") -> RunPaths:
    """Return the run. Raise ``SettingsError`` for one of whose attempts `tfgrpo prune` has kept only what lessons cite."""
    try:
        pruned_at = ManifestFile(run.manifest).read().get("pruned_at")
    except (CorruptFile, OSError):
        return run  # whoever reads it says what is wrong
    if pruned_at is not None:
        pruned = f"{run.root.name}, pruned on {str(pruned_at)[:10]}: its journal and most of its attempts are gone"
        raise SettingsError.one(source, pruned, "a run that was not pruned; `tfgrpo history` still shows this one's results")
    return run


def task_named(task_id: str | None, out: str | os.PathLike[str] | None) -> TaskPaths:
    """Return the task of these names, else of those in the environment, else the one used last. It need not exist.

    Used last is that of the newest run, or change of a library by a person; before any it is that of the defaults.
    Raises ``SettingsError`` for an invalid name. No other setting is read: what was learned can be seen next to a bad one.
    """
    if out is not None and not (isinstance(out, str | os.PathLike) and os.fspath(out).strip()):
        raise SettingsError.one("--out", repr(out), "a directory for tasks")
    fields = Settings.model_fields
    out = out or os.environ.get("TFGRPO_OUT") or fields["out"].default
    if task_id is None:
        task_id = os.environ.get("TFGRPO_TASK_ID") or _last_used(Path(out)) or fields["task_id"].default
    try:
        return TaskPaths.of(out, task_id)
    except (TypeError, ValueError) as error:  # a TypeError: Python takes any value for a name
        raise SettingsError.one("--task-id", repr(task_id), IDENTIFIER_RULE) from error


def task_of_data(name: str) -> str:
    """Return the name of a task on data: that of the file or folder without its ending, in lower case."""
    stem = Path(name.partition(":")[2] or name).stem
    return re.sub(r"[^A-Za-z0-9]+", "-", stem).strip("-").lower()[:40] or "my-task"


def without_pipeline(data: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return what a new run on data of the caller takes where no pipeline is named: that for tasks of one's own.

    Its task is that of the caller or the environment, else that of the data, never the one of the dry run.
    """
    named = settings.get("task_id") or os.environ.get("TFGRPO_TASK_ID")
    return {"pipeline": "general", **({} if named else {"task_id": task_of_data(data)})}


def known_tasks(out: Path) -> list[str]:
    """Return the names of the tasks under ``out``: of those that have runs, or lessons that were imported."""
    return sorted({path.relative_to(out).parts[0] for of in _OF_TASK for path in out.glob(of)})


def _last_used(out: Path) -> str | None:
    moments = []
    for path in (path for of in _USES for path in out.glob(of)):
        content: Mapping[str, Any] = {}
        with suppress(CorruptFile, OSError):
            content = read_json(path, "a manifest or view") or {}
        moments.append((_moment(content, path, "resumed_at", "started_at", "updated_at"), path.relative_to(out).parts[0]))
    return max(moments)[1] if moments else next(iter(known_tasks(out)), None)


def known_runs(task: TaskPaths) -> str:
    """Return the newest runs of a task for a message; without any, the tasks that have some."""
    others = ", ".join(known_tasks(task.root.parent))
    runs = [entry.run_id for entry in runs_of(task)]
    more = f" and {len(runs) - _NAMED} more; `tfgrpo runs` lists them" if len(runs) > _NAMED else ""
    return ", ".join(runs[:_NAMED]) + more or f"there is none{others and f'; of {others} there are'}"


def new_run_id(clock: Clock) -> str:
    """Return the name of a run without one."""
    return f"{clock():%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


def record_unbegun(run: RunPaths, status: RunStatus, message: str, *, clock: Clock, **fields: Any) -> None:
    """Make the manifest of a run that could not start, so that it is listed; a run of this name that began stays as it is.

    What the disk refuses is omitted: the caller reports the end of the run all the same.
    """
    manifest = ManifestFile(run.manifest)
    with suppress(StoreError, OSError):
        if not run.manifest.exists() or not has_begun(manifest.read()):
            message = "; ".join(message.splitlines())
            names = {"run_id": run.root.name, "task_id": run.root.parent.parent.name}
            manifest.update(**names, **fields, status=status, message=message, started_at=clock().isoformat())


def killed_nights(task: TaskPaths, *, pipeline: str, simulated: bool) -> Iterator[RunPaths]:
    """Yield the nights of a task that were killed and can be resumed, the oldest first, each marked as resumed."""
    for entry in reversed(runs_of(task)):
        run = task.run(entry.run_id)
        if entry.state != "unfinished" or entry.night is None or entry.simulated != simulated:
            continue
        manifest = ManifestFile(run.manifest)
        content, answered = manifest.read(), run.journal.stat().st_size if run.journal.exists() else 0
        if content.get("pipeline") == pipeline and content.get("resumed_with_bytes") != answered:
            with suppress(StoreError):  # of a run that cannot be marked nothing is resumed
                manifest.update(resumed_with_bytes=answered)
                yield run


def lock_run(run: RunPaths) -> FileLock:
    """Make the directory of a run, and keep other processes out of it. Raises ``SettingsError`` if one is in it."""
    run.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = FileLock(run.root / ".lock", mode=0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise SettingsError.one("the run", run.root.name, "a run that no other process has open") from error
    return lock


def _entry(run: RunPaths, task_id: str) -> RunEntry:
    try:
        manifest = ManifestFile(run.manifest).read()
    except (CorruptFile, OSError) as error:
        manifest = {"status": "unreadable", "message": str(error)}
    pack = mapping_of(manifest.get("pack"))
    epochs, running = mapping_of(manifest.get("tfgrpo")).get("epochs"), manifest.get("status") == "running"
    ledger = None
    with suppress(StoreError, TypeError, KeyError, ValueError):
        if not running and (closed := mapping_of(manifest.get("ledger"))):
            ledger = Totals.from_json(dict(closed))
        elif run.ledger.is_file():
            ledger = totals_in(run.ledger)
    return RunEntry(
        task_id=task_id,
        run_id=run.root.name,
        started_at=_moment(manifest, run.manifest, "started_at"),
        status=str(manifest.get("status")),
        state="unfinished" if (running or is_unclosed(manifest)) and not _is_open(run) else str(manifest.get("status")),
        night=manifest.get("night"),
        decision=mapping_of(manifest.get("decision")).get("decision"),
        message=manifest.get("message"),
        ledger=ledger,
        lessons=epochs[-1].get("lessons") if epochs and manifest.get("night") else None,
        simulated=manifest.get("simulated"),
        model=manifest.get("model"),
        pack=f"{pack['id']} ({str(pack.get('stamp'))[:12]})" if "id" in pack else None,
        items_changed=manifest.get("items_changed"),
        begun=has_begun(manifest),
        slots=pack.get("slots"),
        ended_at=_moment(manifest, run.manifest, "ended_at") if manifest.get("ended_at") else None,
    )


def _is_open(run: RunPaths) -> bool:
    """Return whether a process has a run open, or may have: its lock cannot be examined."""
    try:
        # Not by ``FileLock``, which would make the file.
        with open(run.root / ".lock", "rb", opener=open_regular) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except (StoreError, OSError):
        return True


def _moment(content: Mapping[str, Any], path: Path, *names: str) -> datetime:
    """Return the first of these times in a manifest or view; for a damaged one, its modification time."""
    try:
        moment = next(content[name] for name in names if content.get(name))
        return datetime.fromisoformat(moment).astimezone(UTC)
    except (StopIteration, TypeError, ValueError):
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
