"""List the runs of a task from their manifests, newest first, and resolve ``latest`` to the newest."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.stores.errors import CorruptFile, SettingsError
from tfgrpo.stores.files.atomic import read_json
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.runs.manifest import ManifestFile
from tfgrpo.stores.text import IDENTIFIER_RULE

LATEST: Final = "latest"
"""Name of the newest run of a task, unless a run is called that."""

_DATASET: Final = "{learn:,} + {held_out_of:,} items ({learn_digest:.6})"
_NAMED: Final = 10
"""Most runs that a message names."""
_OF_TASK: Final = ("*/runs/*/manifest.json", "*/experiences.jsonl")
"""Files that make a directory a task."""
_USES: Final = ("*/runs/*/manifest.json", "*/state.json")
"""Files that say when a task was used."""


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One run as its manifest describes it; None for a missing field."""

    task_id: str
    run_id: str
    started_at: datetime
    status: str
    """Of the manifest: a run that was killed stays ``running``. ``unreadable``: the manifest is damaged."""
    decision: str | None
    message: str | None
    """The decision in words, or the reason of an early end."""
    spent: str | None
    lessons: int | None
    """Lessons on trial at the end. None for a run that ended no epoch."""
    simulated: bool | None
    calls: int | None
    model: str | None
    dataset: str | None
    """How many items to learn on and held out, and a digest of the former."""
    ended_at: datetime | None = None


def runs_of(task: TaskPaths) -> list[RunEntry]:
    """Return all runs of a task, newest first."""
    entries = [_entry(RunPaths(path.parent), task.root.name) for path in task.root.glob("runs/*/manifest.json")]
    return sorted(entries, key=lambda entry: (entry.started_at, entry.run_id), reverse=True)


def was_killed(task: TaskPaths, entry: RunEntry) -> bool:
    """Return whether a run is marked as running, and no process has it open."""
    if entry.status != "running":
        return False
    try:
        with FileLock(task.run(entry.run_id).root / ".lock", timeout=0, mode=0o600):
            return True
    except (Timeout, OSError):  # open elsewhere, or a directory that is only readable
        return False


def run_named(task: TaskPaths, name: str) -> RunPaths | None:
    """Return the run with a name, or the ``latest``; None if there is none, as for a name that none can have."""
    with suppress(ValueError):
        if (run := task.run(name)).manifest.is_file():
            return run
    runs = runs_of(task) if name == LATEST else []
    return task.run(runs[0].run_id) if runs else None


def find_run(task: TaskPaths, name: str, *, everywhere: bool) -> RunPaths | None:
    """Return ``run_named``; with ``everywhere``, else the run of the only other task that has one of this name."""
    run = run_named(task, name)
    if run is None and everywhere:
        others = [TaskPaths(task.root.parent / each) for each in known_tasks(task.root.parent)]
        found = [run for each in others if (run := run_named(each, name)) is not None]
        return found[0] if len(found) == 1 else None
    return run


def task_named(task_id: str | None, out: str | os.PathLike[str] | None) -> TaskPaths:
    """Return the task of these names, else of those in the environment, else the one used last. It need not exist.

    Used last is that of the newest run, or change of a library by a person; before any it is that of the defaults.
    Raises ``SettingsError`` for an invalid name. No other setting is read: what was learned can be seen beside a bad one.
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


def known_tasks(out: Path) -> list[str]:
    """Return the names of the tasks under ``out``: of those that have runs, or lessons that were imported."""
    return sorted({path.relative_to(out).parts[0] for of in _OF_TASK for path in out.glob(of)})


def _last_used(out: Path) -> str | None:
    moments = []
    for path in (path for of in _USES for path in out.glob(of)):
        content: Mapping[str, Any] = {}
        with suppress(CorruptFile, OSError):
            content = read_json(path, "a manifest or view") or {}
        moments.append(
            (_moment(content, path, "resumed_at", "started_at", "updated_at"), path.relative_to(out).parts[0])
        )
    return max(moments)[1] if moments else next(iter(known_tasks(out)), None)


def known_runs(task: TaskPaths) -> str:
    """Return the newest runs of a task for a message; without any, the tasks that have some."""
    others = ", ".join(known_tasks(task.root.parent))
    runs = [entry.run_id for entry in runs_of(task)]
    more = f" and {len(runs) - _NAMED} more; `tfgrpo runs` lists them" if len(runs) > _NAMED else ""
    return ", ".join(runs[:_NAMED]) + more or f"there is none{others and f'; of {others} there are'}"


def _entry(run: RunPaths, task_id: str) -> RunEntry:
    try:
        manifest = ManifestFile(run.manifest).read()
    except (CorruptFile, OSError) as error:
        manifest = {"status": "unreadable", "message": str(error)}
    epochs = _block(manifest, "tfgrpo").get("epochs")
    dataset = _block(manifest, "dataset")
    return RunEntry(
        task_id=task_id,
        run_id=run.root.name,
        started_at=_moment(manifest, run.manifest, "started_at"),
        status=str(manifest.get("status")),
        decision=_block(manifest, "decision").get("decision"),
        message=manifest.get("message"),
        spent=_block(manifest, "ledger").get("spent"),
        lessons=epochs[-1].get("lessons") if epochs else None,
        simulated=manifest.get("simulated"),
        calls=_block(manifest, "ledger").get("calls"),
        model=manifest.get("model"),
        dataset=_DATASET.format(**dataset) if "learn_digest" in dataset else None,
        ended_at=_moment(manifest, run.manifest, "ended_at") if manifest.get("ended_at") else None,
    )


def _block(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    block = manifest.get(name)
    return block if isinstance(block, dict) else {}


def _moment(content: Mapping[str, Any], path: Path, *names: str) -> datetime:
    """Return the first of these times in a manifest or view; for a damaged one, its modification time."""
    try:
        moment = next(content[name] for name in names if content.get(name))
        return datetime.fromisoformat(moment).astimezone(UTC)
    except (StopIteration, TypeError, ValueError):
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
