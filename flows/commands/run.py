"""``tfgrpo run``: a learning run from the command line, with the morning page or one JSON object."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.environment import check_prefect_home
from tfgrpo.flows.console.observer import Progress, Screen
from tfgrpo.flows.orchestration.local_server import start_prefect
from tfgrpo.flows.orchestration.request import RunRequest, RunSummary, resume_command
from tfgrpo.flows.run.close import report_unbegun
from tfgrpo.flows.run.prepare import Prepared, prepare
from tfgrpo.stores.errors import TfgrpoError

# Thresholds of the garbage collector; the first is in objects, 700 by default. A run makes next to no cyclic garbage, and
# searching for it took up to a tenth of its CPU.
_COLLECT_AFTER: Final = (5_000, 10, 10)
PASTED: Final = ("report", "next")
"""Lines of the morning page that are kept whole on a terminal."""


def run(pipeline: str, settings: Mapping[str, str], console: Console, **named: Any) -> int:
    """Check everything cheap first, then start Prefect and learn. ``named``: fields of the request, such as ``run_id``."""
    request = RunRequest(pipeline=pipeline, settings=dict(settings), **named)

    def ended(summary: RunSummary) -> None:
        show_summary(summary, console)
        if console.as_json:
            console.result(summary.as_json())

    try:
        prepared = prepare(request, os.environ, starts=True)
        check_prefect_home(os.environ, make=True)
        progress = Progress(console.people)
        progress.announce(prepared.plan)
        return _run(prepared, Screen(console.say, progress, ended)).exit_code
    except TfgrpoError as error:  # before it began: an error of a run is in its summary
        for warning in report_unbegun(request, error, os.environ).details.get("warnings", ()):
            console.say(warning)
        raise


test = partial(run, test=True)


def _run(prepared: Prepared, screen: Screen) -> RunSummary:
    screen.say("starting Prefect …")
    # Objects made by the import of Prefect live as long as the process: the collector need not look at them, neither now nor
    # in its later rounds.
    gc.disable()
    try:
        run_locally, server = start_prefect(os.environ)
        gc.freeze()
        gc.set_threshold(*_COLLECT_AFTER)
    finally:
        gc.enable()
    return run_locally(prepared, screen, server)


def show_summary(summary: RunSummary, console: Console) -> None:
    """Show people the morning page; of a run without one, how it ended."""
    style = {"finished": "bold green", "stopped": "bold yellow"}.get(summary.status, "bold red")
    lines: list[tuple[str, str]] = [(summary.status, summary.message)]
    if page := summary.details.get("morning"):
        lines = [(line["label"], line["text"]) for line in page["lines"]]
    elif command := resume_command(summary.details):
        lines.append(("next", command))
    console.labelled(lines, style=style, whole=PASTED)
