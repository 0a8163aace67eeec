"""``tfgrpo prune`` frees the space of old runs that have finished: of their records it keeps what later commands ask for.

A run that can be resumed is not touched, whatever its age. Of a pruned one remain the manifest (decision, cost, forecast), the
page, the sums by epoch, the last line of the ledger, the ids of its items, and the attempts that a lesson in the store cites.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from tfgrpo.flows.commands.options import Place
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.run.damage import extents, refuse_changed
from tfgrpo.flows.run.index import runs_of
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import CorruptFile, StoreError
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.atomic import replace_text
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.files.lines import disk, sound_lines, whole_lines
from tfgrpo.stores.runs.manifest import ManifestFile, expected_shape
from tfgrpo.stores.text import pluralize

_REMOVED: Final = ("journal", "groups", "prompts", "metrics")
"""Files that only a resume, a replay, an export and the making of a page or a table read."""


def prune(keep: int, place: Place, console: Console, *, dry_run: bool) -> int:
    """Prune the finished runs of a task but the newest ``keep``; exit code 1 if a run could not be. Raise ``CorruptFile``."""
    task = place.existing(console)
    cited = _cited(task)
    pruned, left = list[dict[str, Any]](), list[dict[str, Any]]()
    for entry in [entry for entry in runs_of(task) if entry.begun][keep:]:
        run, why, failed = task.run(entry.run_id), "", False
        about = {"run_id": entry.run_id, "started_at": entry.started_at.isoformat()}
        try:
            if entry.status != "finished":
                why = entry.state if entry.state in {"running", "unreadable"} else f"{entry.state}, and can be resumed"
            elif freed := sum(size for _, _, size in _pruned(run, cited)) if dry_run else _prune(run, cited):
                pruned.append({**about, "bytes": freed})
        except (StoreError, OSError, Timeout) as error:
            failed = not isinstance(error, Timeout)
            why = str(error) if failed else "a process has it open"
        if why:
            size = sum(path.stat().st_size for path in run.root.iterdir() if path.is_file())
            left.append({**about, "bytes": size, "failed": failed, "why": why})
    freed = sum(each["bytes"] for each in pruned)
    if console.as_json:
        asked = {"task_id": task.root.name, "keep": keep, "dry_run": dry_run}
        console.result({**asked, "bytes": freed, "pruned": pruned, "left": left})
    else:
        console.table(("run", "bytes"), [(each["run_id"], f"{each['bytes']:,}") for each in pruned])
        done = "would be pruned" if dry_run else "pruned"
        console.line(
            f"{pluralize(len(pruned), 'run')} of {task.root.name} {done}, {freed / 1e6:,.1f} MB; newest {keep} kept"
        )
        for each in left:
            console.say(f"{each['run_id']} stays whole, {each['bytes'] / 1e6:,.1f} MB: {each['why']}")
    return int(any(each["failed"] for each in left))


def _cited(task: TaskPaths) -> frozenset[str]:
    """Return the attempts that the lessons cite. Raise ``CorruptFile`` for a store that may have cited others."""
    store = ExperienceStore(task.experiences, approved={})
    if problems := store.problems():
        raise CorruptFile(f"{'; '.join(problems)}: nothing is pruned, for that lesson's attempts are unknown")
    return frozenset(rollout for record in store.records() for rollout in record.evidence)


def _prune(run: RunPaths, cited: Collection[str]) -> int:
    """Prune a run that no process has open, and return the bytes that are free. Raise ``Timeout`` and ``StoreError``."""
    manifest = ManifestFile(run.manifest)
    with FileLock(run.root / ".lock", timeout=0, mode=0o600):  # nobody resumes it meanwhile
        content = manifest.read()
        if content.get("status") != "finished":
            raise StoreError("it was resumed meanwhile")
        if "pruned_at" not in content:
            refuse_changed(run)  # afterwards nothing would tell
        files = list(_pruned(run, cited))
        if files:  # first: a kill leaves no run that only looks whole
            manifest.update(pruned_at=content.get("pruned_at") or utc_now().isoformat(), files={})
        for path, text, _ in files:
            if text:
                replace_text(path, text.decode())
            else:
                with disk(path, "cannot be removed"):
                    path.unlink()
        if files or not content.get("files"):
            manifest.update(files=extents(run))
    return sum(size for _, _, size in files)


def _pruned(run: RunPaths, cited: Collection[str]) -> Iterator[tuple[Path, bytes, int]]:
    """Yield the files that are not pruned yet, what remains of each, and how many bytes go. Raise ``CorruptFile``."""
    kept = {run.rollouts: list[bytes](), run.items: list[bytes](), run.ledger: list[bytes]()}
    with expected_shape(run.root):
        attempts = [(json.loads(line.body), line.body) for line in sound_lines(run.rollouts)]
        kept[run.rollouts] = [body for row, body in attempts if row["rollout_id"] in cited]
        shown = {row["item_id"] for row, _ in attempts if row["rollout_id"] in cited}
        for line in sound_lines(run.items):  # the ids tell which sealed items a run has seen
            name = json.loads(line.body)["item_id"]
            kept[run.items].append(line.body if name in shown else json.dumps({"item_id": name}).encode())
        kept[run.ledger] = [line.body for line in sound_lines(run.ledger)][-1:]
    texts = {path: whole_lines(bodies) for path, bodies in kept.items()}
    texts |= {getattr(run, name): b"" for name in _REMOVED}
    texts |= {path.with_name(f"{path.name}.torn"): b"" for path in tuple(texts)}
    there = ((path, text, path.stat().st_size - len(text)) for path, text in texts.items() if path.is_file())
    yield from (each for each in there if each[2])
