"""``tfgrpo report RUN``: write a run's report again from its files."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from flows.commands.options import add_place, known_tasks, place_of
from flows.console import Console
from flows.report import write_report
from stores.errors import SettingsError
from stores.identifiers import ACCEPTED
from stores.layout import RunPaths, TaskPaths


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="run id")
    add_place(parser)


def execute(options: argparse.Namespace, console: Console) -> int:
    """Write the page and say where it is."""
    if options.task_id is None:
        options.task_id = _task_with(options)
    task = place_of(options)
    page = write_report(task, _run_of(task, options.run))
    if console.as_json:
        console.result({"report": str(page)})
    else:
        console.text(str(page))
    return 0


def _task_with(options: argparse.Namespace) -> str | None:
    """The only task that has the run; None leaves it to the environment and the default."""
    out = Path(options.out or os.environ.get("TFGRPO_OUT") or "out")
    having = [name for name in known_tasks(out) if (out / name / "runs" / options.run / "manifest.json").is_file()]
    return having[0] if len(having) == 1 else None


def _run_of(task: TaskPaths, name: str) -> RunPaths:
    try:
        run = task.run(name)
    except ValueError as error:
        raise SettingsError.one("RUN", repr(name), ACCEPTED) from error
    if not run.manifest.is_file():
        known = sorted(path.parent.name for path in task.root.glob("runs/*/manifest.json"))
        raise SettingsError.one("RUN", repr(name), f"a run of {task.root}: {', '.join(known) or 'there is none'}")
    return run
