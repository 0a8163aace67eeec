"""``tfgrpo report RUN``: write a run's report again from its files."""

from __future__ import annotations

import argparse

from flows.console import Console
from flows.report import write_report
from stores.errors import SettingsError
from stores.layout import TaskPaths


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="run id")
    parser.add_argument("--out", default="out", help="where tasks are kept [default: out]")
    parser.add_argument("--task-id", default="tfgrpo-learning", help="task of the run [default: tfgrpo-learning]")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Write the page and say where it is."""
    try:
        task = TaskPaths.of(options.out, options.task_id)
        run = task.run(options.run)
    except ValueError as error:
        raise SettingsError.one("tfgrpo report", f"{options.task_id}/{options.run}", str(error)) from error
    if not run.manifest.is_file():
        known = sorted(path.parent.name for path in task.root.glob("runs/*/manifest.json"))
        raise SettingsError.one(
            "tfgrpo report", options.run, f"a run of {task.root}: {', '.join(known) or 'there is none'}"
        )
    page = write_report(task, run)
    if console.as_json:
        console.result({"report": str(page)})
    else:
        console.text(str(page))
    return 0
