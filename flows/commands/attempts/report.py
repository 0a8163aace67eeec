"""``tfgrpo report``: the page of a run that was made before."""

from __future__ import annotations

from tfgrpo.flows.commands.options import TaskChoice
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.report.night import Night
from tfgrpo.flows.report.page import write_report
from tfgrpo.flows.run.damage import record_file, refuse_changed
from tfgrpo.stores.files.layout import TaskPaths


def report(run: str, choice: TaskChoice, console: Console) -> None:
    """Write the report of a run again from its files, and print its morning page and its path."""
    paths = choice.run(run, console)
    refuse_changed(paths)
    night = Night.of(TaskPaths(paths.root.parent.parent), paths)
    if not console.as_json:  # first: of a run in a directory that is only readable they can be shown
        console.labelled([line for line in night.lines if line.label != "report"], whole=("next",))
    page = write_report(night)
    record_file(paths, page)
    console.answer({"report": str(page), "morning": night.as_json()}, str(page))
