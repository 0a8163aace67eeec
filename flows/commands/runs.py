"""``tfgrpo runs``, ``history``, ``verify`` and ``prune``: look after the runs of a task and their files.

Of a pruned run remain the manifest, the page, the sums by epoch, the last line of the ledger, the ids of its items, and the
attempts that a lesson in the store cites. One that can be resumed is not touched at any age.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from tfgrpo.flows.commands.options import TaskChoice
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.figures import NOTHING, spending
from tfgrpo.flows.report.night import COLUMNS, history_of
from tfgrpo.flows.run.damage import extents, record_problems, refuse_changed, run_problems, task_problems
from tfgrpo.flows.run.index import RunEntry, find_run, known_runs, known_tasks, runs_of
from tfgrpo.flows.run.lessons import library_in_force, screened
from tfgrpo.prompt_packs.stamps import stamps_in_force
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import CorruptFile, SettingsError, StoreError
from tfgrpo.stores.experiences.decisions import chain_problems, lost_decision
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.atomic import replace_text
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.files.lines import disk, sound_lines, whole_lines
from tfgrpo.stores.ledger import Totals
from tfgrpo.stores.runs import ManifestFile, expected_shape
from tfgrpo.stores.text import pluralize

_UNITS: Final = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
# How far the clock of another host may be ahead of this one's.
_CLOCKS_DIFFER: Final = timedelta(minutes=10)
_OF_NIGHT: Final = ("number", "night", "run_id", "outcome", "why", "simulated", "lessons", "added", "removed", "news")
_COLUMNS = ("task", "run", "night", "started (UTC)", "state", "spent", "lessons tested", "result")


def runs(choice: TaskChoice, console: Console, *, since: str | None = None) -> int:
    """Print a row for each run and what all took, or one JSON object with it.

    With ``since``, only those that were under way since then; return 1 if one of them failed, or none has ended.
    """
    now = utc_now()
    begin = None if since is None else _moment_of(since, now)
    out = choice.task.root.parent
    tasks = [choice.existing(console)] if choice.is_named else [TaskPaths(out / name) for name in known_tasks(out)]
    entries = [entry for task in tasks for entry in runs_of(task)]
    if len(tasks) > 1:
        entries.sort(key=lambda entry: (entry.started_at, entry.run_id), reverse=True)
    wrong = None
    if begin is not None:
        # What a clock ahead of time dates in the future must not pass for the newest night until then.
        entries = [entry for entry in entries if begin <= (entry.ended_at or entry.started_at) <= now + _CLOCKS_DIFFER]
        wrong = _wrong_since(begin, entries)
    if console.as_json:
        totals = [*_totals(entries)]
        checked = {} if begin is None else {"since": begin.isoformat(), "ok": wrong is None, "why": wrong}
        rows = [asdict(entry) | {"spent": None if entry.ledger is None else spending(entry.ledger)} for entry in entries]
        shown = [{name: each.isoformat() if isinstance(each, datetime) else each for name, each in row.items()} for row in rows]
        console.result({"runs": shown, **({"totals": totals} if totals else {}), **checked})
    elif entries:
        console.table(_COLUMNS, map(_row, entries))
        for total in _totals(entries):
            simulated = " (SIMULATED)" if total["simulated"] else ""
            count, calls = pluralize(total["runs"], "run"), pluralize(total["calls"], "call")
            console.line(f"{count}, {calls}, {total['spent']}{simulated}")
    elif begin is None:
        console.say(f"There are no runs in {out} yet; `tfgrpo run --dry-run` makes the first.")
    if wrong is not None:
        console.say(wrong)
    return int(wrong is not None)


def _row(entry: RunEntry) -> tuple[str, ...]:
    spent = NOTHING if entry.ledger is None else f"{spending(entry.ledger)}{' (SIMULATED)' if entry.simulated else ''}"
    night, lessons = (NOTHING if count is None else str(count) for count in (entry.night, entry.lessons))
    message = "; ".join(filter(None, (entry.message, entry.items_changed))) or NOTHING
    started = f"{entry.started_at:%Y-%m-%d %H:%M}"
    return entry.task_id, entry.run_id, night, started, entry.state, spent, lessons, message


def _moment_of(text: str, now: datetime) -> datetime:
    """Return the moment of an age such as ``26h`` or ``7d``, or of a date. Raise ``SettingsError`` for anything else."""
    age = re.fullmatch(r"(\d{1,6})\s*([mhdw])", text.strip().lower(), re.ASCII)
    # Some 900,000 days ago there was no date.
    with suppress(ValueError, OverflowError):
        if age is not None:
            return now - int(age[1]) * _UNITS[age[2]]
        moment = datetime.fromisoformat(text.strip())
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        if moment <= now:
            return moment
    raise SettingsError.one("--since", repr(text), "an age such as 1d, 26h or 90m, or a date in the past (UTC)")


def _wrong_since(begin: datetime, entries: Sequence[RunEntry]) -> str | None:
    failed = [
        f"{entry.run_id} ({'killed' if entry.state == 'unfinished' else entry.state})"
        for entry in entries
        if entry.state not in {"finished", "stopped", "running"}
    ]
    since = f"since {begin:%Y-%m-%d %H:%M} UTC"
    if failed:
        return f"{pluralize(len(failed), 'run')} failed {since}: {', '.join(failed)}"
    return None if any(entry.status != "running" for entry in entries) else f"no run has ended {since}"


def verify(name: str, choice: TaskChoice, console: Console) -> int:
    """Print what is damaged, missing or changed of a task or of a run and its task; exit code 1 if anything is."""
    task, runs = _task_and_runs(name, choice)
    store = ExperienceStore(task.experiences, approved=stamps_in_force(choice.packs_root), task_id=task.root.name)
    problems = [*task_problems(store, task), *(each for run in runs for each in run_problems(run))]
    with suppress(StoreError):  # among the problems
        library = library_in_force(store, task)
        outdated = [entry.experience_id for entry in library.entries if not store.verify_stamp(entry)]
        problems += [f"lesson {each} in force is not stamped for the version of its pack in force" for each in outdated]
        problems += screened(library)[1]
    checked = f"the task and {pluralize(len(runs), 'run')}"
    answer = {"ok": not problems, "task_id": task.root.name, "runs": [run.root.name for run in runs], "problems": problems}
    console.answer(answer, "\n".join(problems) or f"{task.root}: all files of {checked} verify")
    return 1 if problems else 0


def _task_and_runs(name: str, choice: TaskChoice) -> tuple[TaskPaths, list[RunPaths]]:
    run = find_run(choice.task, name, everywhere=not choice.is_named)
    with suppress(ValueError):  # a name that none can have
        task = TaskPaths.of(choice.task.root.parent, name)
        if run is None and task.root.is_dir() and (task.root == choice.task.root or not choice.is_named):
            # Of a run for whose beginning the disk had no room there are empty files.
            begun = (each for each in task.root.glob("runs/*") if any(path.stat().st_size for path in each.glob("*.json*")))
            return task, [*map(RunPaths, sorted(begun))]
        if run is None and choice.task.run(name).root.is_dir():  # its manifest is missing
            run = choice.task.run(name)
    if run is None:
        tasks = ", ".join(known_tasks(choice.task.root.parent)) or "none"
        accepted = f"a run of {choice.task.root.name} ({known_runs(choice.task)}), or a task: {tasks}"
        raise SettingsError.one("RUN|TASK", repr(name), accepted)
    return TaskPaths(run.root.parent.parent), [run]


def _totals(entries: Sequence[RunEntry]) -> Iterator[dict[str, Any]]:
    for simulated in (False, True):
        some = [entry for entry in entries if bool(entry.simulated) is simulated]
        total = reduce(Totals.plus, (entry.ledger for entry in some if entry.ledger is not None), Totals())
        if some:
            yield {"simulated": simulated, "runs": len(some), **asdict(total), "spent": spending(total)}


def history(choice: TaskChoice, console: Console) -> None:
    """Print a row for each night and each change."""
    task = choice.existing(console)
    entries = history_of(task)
    problems = [*filter(None, [lost_decision(task.promotions)]), *chain_problems(task.promotions)]
    for problem in problems:
        console.say(problem, style="yellow")
    if console.as_json:
        nights = []
        for each in entries:
            ledger, decision = each.run.ledger if each.run else None, each.decision
            row = {name: getattr(each, name) for name in _OF_NIGHT} | {"at": each.at.isoformat()}
            row |= {name: getattr(each.run, name, None) for name in ("status", "model")}
            row |= {"calls": ledger and ledger.calls, "spent": ledger and spending(ledger)}
            row["decision"] = decision and decision.model_dump(mode="json", exclude={"signatures", "previous", "night"})
            nights.append(row)
        console.result({"nights": nights, "problems": problems})
    elif not entries:
        console.say("This task has no night yet.")
    else:
        console.table(COLUMNS, (each.cells for each in entries))
        console.say("`tfgrpo experiences rollback NO` puts a library that was in force into force again.")


# Files that only a resume, a replay, an export and the making of a page or a table read.
_REMOVED: Final = ("journal", "groups", "prompts", "metrics")


def prune(keep: int, choice: TaskChoice, console: Console, *, dry_run: bool) -> int:
    """Prune the finished runs of a task but the newest ``keep``; exit code 1 if a run could not be. Raise ``CorruptFile``."""
    task = choice.existing(console)
    store = ExperienceStore(task.experiences, approved={})
    if problems := record_problems(store, task):
        raise CorruptFile(f"{'; '.join(problems)}: nothing is pruned, for that lesson's attempts are unknown")
    cited = frozenset(rollout for record in store.records() for rollout in record.evidence)
    pruned, left = list[dict[str, Any]](), list[dict[str, Any]]()
    for entry in [entry for entry in runs_of(task) if entry.begun][keep:]:
        run, why, failed = task.run(entry.run_id), "", False
        about = {"run_id": entry.run_id, "started_at": entry.started_at.isoformat()}
        try:
            if entry.state != "finished":
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
        options = {"task_id": task.root.name, "keep": keep, "dry_run": dry_run}
        console.result({**options, "bytes": freed, "pruned": pruned, "left": left})
    else:
        console.table(("run", "bytes"), [(each["run_id"], f"{each['bytes']:,}") for each in pruned])
        done = "would be pruned" if dry_run else "pruned"
        console.line(f"{pluralize(len(pruned), 'run')} of {task.root.name} {done}, {freed / 1e6:,.1f} MB; newest {keep} kept")
        for each in left:
            console.say(f"{each['run_id']} stays whole, {each['bytes'] / 1e6:,.1f} MB: {each['why']}")
    return int(any(each["failed"] for each in left))


def _prune(run: RunPaths, cited: Collection[str]) -> int:
    manifest = ManifestFile(run.manifest)
    with FileLock(run.root / ".lock", timeout=0, mode=0o600):  # nobody resumes it meanwhile
        content = manifest.read()
        if content.get("status") != "finished":
            raise StoreError("it was resumed meanwhile")
        # Afterwards nothing would tell that a file was changed before.
        if "pruned_at" not in content:
            refuse_changed(run)
        files = list(_pruned(run, cited))
        # First the manifest: a kill leaves no run that only looks whole.
        if files:
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
