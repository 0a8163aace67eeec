"""``tfgrpo runs`` lists the runs of a task, or of every task, newest first; ``tfgrpo report`` writes the page of one again."""

from __future__ import annotations

from dataclasses import asdict

from tfgrpo.flows.commands.options import Place
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.run.index import RunEntry, known_tasks, runs_of
from tfgrpo.stores.files.layout import TaskPaths

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
    from tfgrpo.flows.report.night import Night  # noqa: PLC0415
    from tfgrpo.flows.report.page import write_report  # noqa: PLC0415

    night = Night.of(TaskPaths(paths.root.parent.parent), paths)
    if not console.as_json:  # first: of a run in a directory that is only readable they can be shown
        console.labelled([line for line in night.lines if line.label != "report"], whole=("next",))
    page = str(write_report(night, console.say))
    console.answer({"report": page, "morning": night.as_json()}, page)


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
