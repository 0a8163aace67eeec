"""``tfgrpo report RUN``: write a run's report again from its files."""

from __future__ import annotations

import argparse

from tfgrpo.flows.commands.options import add_run, run_of
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.parsing import Parser
from tfgrpo.stores.files.layout import TaskPaths


def add(parser: Parser) -> None:
    """Add the arguments of the command."""
    add_run(parser, "run id")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Write the page and print its path."""
    run = run_of(options)
    from tfgrpo.flows.report.page import write_report  # noqa: PLC0415 - templates and charts, which `--help` need not load

    page = write_report(TaskPaths(run.root.parent.parent), run)
    if console.as_json:
        console.result({"report": str(page)})
    else:
        console.text(str(page))
    return 0
