"""``tfgrpo runs`` lists runs, newest first; ``tfgrpo report`` writes the page of one again; ``tfgrpo verify`` checks files."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from tfgrpo.flows.commands.options import Place
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.run.damage import record_file, refuse_changed, run_problems, task_problems
from tfgrpo.flows.run.index import RunEntry, find_run, known_runs, known_tasks, runs_of
from tfgrpo.flows.run.lessons import library_in_force, screened
from tfgrpo.prompt_packs.loader import stamps_in_force
from tfgrpo.stores.errors import SettingsError, StoreError
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.text import pluralize

_COLUMNS = ("task", "run", "started (UTC)", "status", "spent", "lessons tested", "result")


def runs(place: Place, console: Console) -> None:
    """Print a row for each run, or one JSON object with all of them."""
    out = place.task.root.parent
    named = [place.existing(console)] if place.is_named else []
    tasks = named or [TaskPaths(out / name) for name in known_tasks(out)]
    entries = sorted(
        (entry for task in tasks for entry in runs_of(task)),
        key=lambda entry: (entry.started_at, entry.run_id),
        reverse=True,
    )
    if console.as_json:
        console.result({"runs": [asdict(entry) | {"started_at": entry.started_at.isoformat()} for entry in entries]})
    elif entries:
        console.table(_COLUMNS, map(_row, entries))
    else:
        console.say(f"There are no runs in {out} yet; `tfgrpo run --dry-run` makes the first.")


def report(run: str, place: Place, console: Console) -> None:
    """Write the report of a run again from its files, and print its morning page and its path."""
    paths = place.run(run, console)
    # Templates and charts, for this command only.
    from tfgrpo.flows.report.morning import morning_page  # noqa: PLC0415
    from tfgrpo.flows.report.page import write_report  # noqa: PLC0415

    task = TaskPaths(paths.root.parent.parent)
    refuse_changed(paths)
    morning = morning_page(task, paths)
    if not console.as_json:  # first: of a run in a directory that is only readable they can be shown
        console.labelled([line for line in morning.lines if line.label != "report"], whole=("next",))
    page = write_report(task, paths, console.say)
    record_file(paths, page)
    console.answer({"report": str(page), "morning": morning.as_json()}, str(page))


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
        f"{entry.started_at:%Y-%m-%d %H:%M}",
        "unfinished" if entry.status == "running" else entry.status,
        "–" if entry.spent is None else f"{entry.spent}{' (SIMULATED)' if entry.simulated else ''}",
        "–" if entry.lessons is None else str(entry.lessons),
        entry.message or "–",
    ]
