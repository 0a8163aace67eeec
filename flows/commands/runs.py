"""``tfgrpo runs`` lists runs, newest first; ``tfgrpo report`` writes the page of one again; ``tfgrpo verify`` checks files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any, Final

from tfgrpo.flows.commands.options import Place
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.figures import spending
from tfgrpo.flows.report.nights import COLUMNS, HistoryEntry, history_of
from tfgrpo.flows.run.damage import record_file, refuse_changed, run_problems, task_problems
from tfgrpo.flows.run.index import RunEntry, find_run, known_runs, known_tasks, runs_of
from tfgrpo.flows.run.lessons import library_in_force, screened
from tfgrpo.prompt_packs.loader import stamps_in_force
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import SettingsError, StoreError
from tfgrpo.stores.experiences.decisions import chain_problems
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.ledger.state import Totals
from tfgrpo.stores.text import pluralize

_UNITS: Final = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_COLUMNS = ("task", "run", "night", "started (UTC)", "state", "spent", "lessons tested", "result")


def runs(place: Place, console: Console, *, since: str | None = None) -> int:
    """Print a row for each run and what all took, or one JSON object with it.

    With ``since``, only those that were under way since then; return 1 if one of them failed, or none has ended.
    """
    begin = None if since is None else moment_of(since, utc_now())
    out = place.task.root.parent
    named = [place.existing(console)] if place.is_named else []
    tasks = named or [TaskPaths(out / name) for name in known_tasks(out)]
    entries = sorted(
        (entry for task in tasks for entry in runs_of(task)),
        key=lambda entry: (entry.started_at, entry.run_id),
        reverse=True,
    )
    wrong = None
    if begin is not None:
        entries = [entry for entry in entries if (entry.ended_at or entry.started_at) >= begin]
        wrong = _wrong_since(begin, entries)
    if console.as_json:
        totals = [*_totals(entries)]
        checked = {} if begin is None else {"since": begin.isoformat(), "ok": wrong is None, "why": wrong}
        console.result({"runs": [*map(_json, entries)], **({"totals": totals} if totals else {}), **checked})
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


def moment_of(text: str, now: datetime) -> datetime:
    """Return the moment of an age such as ``26h`` or ``7d``, or of a date. Raise ``SettingsError`` for anything else."""
    age = re.fullmatch(r"(\d{1,6})\s*([mhdw])", text.strip().lower(), re.ASCII)
    try:
        if age is not None:
            return now - int(age[1]) * _UNITS[age[2]]
        moment = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        moment = None
    if moment is None or (moment := moment if moment.tzinfo else moment.replace(tzinfo=UTC)) > now:
        raise SettingsError.one("--since", repr(text), "an age such as 1d, 26h or 90m, or a date in the past (UTC)")
    return moment


def _wrong_since(begin: datetime, entries: Sequence[RunEntry]) -> str | None:
    """Return what is wrong with the runs since a moment: those that failed, else that none has ended."""
    failed = [
        f"{entry.run_id} ({'killed' if entry.state == 'unfinished' else entry.state})"
        for entry in entries
        if entry.state not in {"finished", "stopped", "running"}
    ]
    since = f"since {begin:%Y-%m-%d %H:%M} UTC"
    if failed:
        return f"{pluralize(len(failed), 'run')} failed {since}: {', '.join(failed)}"
    return None if any(entry.status != "running" for entry in entries) else f"no run has ended {since}"


def report(run: str, place: Place, console: Console) -> None:
    """Write the report of a run again from its files, and print its morning page and its path."""
    paths = place.run(run, console)
    # Templates and charts, for this command only.
    from tfgrpo.flows.report.night import Night  # noqa: PLC0415
    from tfgrpo.flows.report.page import write_report  # noqa: PLC0415

    refuse_changed(paths)
    night = Night.of(TaskPaths(paths.root.parent.parent), paths)
    if not console.as_json:  # first: of a run in a directory that is only readable they can be shown
        console.labelled([line for line in night.lines if line.label != "report"], whole=("next",))
    page = write_report(night)
    record_file(paths, page)
    console.answer({"report": str(page), "morning": night.as_json()}, str(page))


def verify(name: str, place: Place, packs_root: Path | None, console: Console) -> int:
    """Print what is damaged, missing or changed of a task or of a run and its task; exit code 1 if anything is."""
    task, runs = _asked(name, place)
    store = ExperienceStore(task.experiences, approved=stamps_in_force(packs_root), task_id=task.root.name)
    problems = [*task_problems(store, task), *(each for run in runs for each in run_problems(run))]
    with suppress(StoreError):  # among the problems
        library = library_in_force(store, task)
        outdated = [entry.experience_id for entry in library.entries if not store.verify_stamp(entry)]
        problems += [f"lesson {each} in force is not stamped for the version of its pack in force" for each in outdated]
        problems += screened(library)[1]
    checked = f"the task and {pluralize(len(runs), 'run')}"
    answer = {
        "ok": not problems,
        "task_id": task.root.name,
        "runs": [run.root.name for run in runs],
        "problems": problems,
    }
    console.answer(answer, "\n".join(problems) or f"{task.root}: all files of {checked} verify")
    return 1 if problems else 0


def _asked(name: str, place: Place) -> tuple[TaskPaths, list[RunPaths]]:
    """Return a task with the runs to check: one, or all of them. Raise ``SettingsError`` for an unknown name."""
    here = RunPaths(Path(name).resolve())
    run = here if here.manifest.is_file() else find_run(place.task, name, everywhere=not place.is_named)
    with suppress(ValueError):  # a name that none can have
        task = TaskPaths.of(place.task.root.parent, name)
        if run is None and task.root.is_dir() and (task.root == place.task.root or not place.is_named):
            return task, [RunPaths(each) for each in sorted(task.root.glob("runs/*")) if any(each.glob("*.json*"))]
        if run is None and place.task.run(name).root.is_dir():  # its manifest is missing
            run = place.task.run(name)
    if run is None:
        known = ", ".join(known_tasks(place.task.root.parent)) or "none"
        accepted = f"a run of {place.task.root.name} ({known_runs(place.task)}), or a task: {known}"
        raise SettingsError.one("RUN|TASK", repr(name), accepted)
    return TaskPaths(run.root.parent.parent), [run]


def _row(entry: RunEntry) -> list[str]:
    return [
        entry.task_id,
        entry.run_id,
        "–" if entry.night is None else str(entry.night),
        f"{entry.started_at:%Y-%m-%d %H:%M}",
        entry.state,
        "–" if entry.ledger is None else f"{spending(entry.ledger)}{' (SIMULATED)' if entry.simulated else ''}",
        "–" if entry.lessons is None else str(entry.lessons),
        "; ".join(filter(None, (entry.message, entry.items_changed))) or "–",
    ]


def _json(entry: RunEntry) -> dict[str, Any]:
    spent = None if entry.ledger is None else spending(entry.ledger)
    row = asdict(entry) | {"spent": spent}
    return {name: each.isoformat() if isinstance(each, datetime) else each for name, each in row.items()}


def _totals(entries: Sequence[RunEntry]) -> Iterator[dict[str, Any]]:
    """Yield what the runs with real models took, and those with the SIMULATED one."""
    for simulated in (False, True):
        some = [entry for entry in entries if bool(entry.simulated) is simulated]
        total = reduce(Totals.plus, (entry.ledger for entry in some if entry.ledger is not None), Totals())
        if some:
            yield {"simulated": simulated, "runs": len(some), **asdict(total), "spent": spending(total)}


def history(place: Place, console: Console) -> None:
    """Print a row for each night and each change."""
    task = place.existing(console)
    entries, problems = history_of(task), chain_problems(task.promotions)
    for problem in problems:
        console.say(problem, style="yellow")
    if console.as_json:
        console.result({"nights": list(map(_night_json, entries)), "problems": problems})
    elif not entries:
        console.say("This task has no night yet.")
    else:
        console.table(COLUMNS, (each.cells for each in entries))
        console.say("`tfgrpo experiences rollback NO` puts a library that was in force into force again.")


def _night_json(entry: HistoryEntry) -> dict[str, Any]:
    """Return a line of the history, with what the manifest and the decision say."""
    own = ("number", "night", "run_id", "outcome", "why", "simulated", "lessons", "added", "removed", "news")
    ledger = entry.run.ledger if entry.run else None
    spent = {"calls": ledger and ledger.calls, "spent": ledger and spending(ledger)}
    run = {name: getattr(entry.run, name, None) for name in ("status", "model")} | spent
    decision = entry.decision and entry.decision.model_dump(mode="json", exclude={"signatures", "previous", "night"})
    return {**{name: getattr(entry, name) for name in own}, "at": entry.at.isoformat(), **run, "decision": decision}
