"""``tfgrpo runs``: list the runs of a task, or of every task, newest first."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from tfgrpo.flows.commands.options import add_task, existing_task, names_task, task_of
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.parsing import Parser
from tfgrpo.flows.run.index import RunEntry, known_tasks, runs_of
from tfgrpo.stores.files.layout import TaskPaths

_COLUMNS = ("task", "run", "started (UTC)", "status", "spent", "lessons", "result")


def add(parser: Parser) -> None:
    """Add the arguments of the command."""
    add_task(parser)
    parser.epilog = "Without a task, the runs of every task are listed. `unfinished`: in progress, or killed."


def execute(options: argparse.Namespace, console: Console) -> int:
    """Print a row for each run, or one JSON object with all of them."""
    entries = sorted(
        (entry for task in _tasks(options) for entry in runs_of(task)),
        key=lambda entry: (entry.started_at, entry.run_id),
        reverse=True,
    )
    if console.as_json:
        console.result({"runs": [asdict(entry) | {"started_at": entry.started_at.isoformat()} for entry in entries]})
    elif entries:
        console.table(_COLUMNS, map(_row, entries))
    else:
        console.say(f"There are no runs in {task_of(options).root.parent} yet; `tfgrpo run --dry-run` makes the first.")
    return 0


def _tasks(options: argparse.Namespace) -> list[TaskPaths]:
    if names_task(options):
        return [existing_task(options)]
    out = task_of(options).root.parent
    return [TaskPaths(out / name) for name in known_tasks(out)]


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
