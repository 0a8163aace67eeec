"""``tfgrpo runs`` lists the runs of a task, or of every task, newest first; ``tfgrpo report`` writes the page of one again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import reduce
from typing import Any

from tfgrpo.flows.commands.options import Place
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.figures import spending
from tfgrpo.flows.run.index import RunEntry, known_tasks, runs_of
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.ledger.state import Totals
from tfgrpo.stores.text import pluralize

_COLUMNS = ("task", "run", "night", "started (UTC)", "state", "spent", "lessons tested", "result")


def runs(place: Place, console: Console) -> None:
    """Print a row for each run and what all took, or one JSON object with it."""
    out = place.task.root.parent
    named = [place.existing(console)] if place.is_named else []
    tasks = named or [TaskPaths(out / name) for name in known_tasks(out)]
    entries = sorted(
        (entry for task in tasks for entry in runs_of(task)),
        key=lambda entry: (entry.started_at, entry.run_id),
        reverse=True,
    )
    if console.as_json:
        totals = [*_totals(entries)]
        console.result({"runs": [*map(_json, entries)], **({"totals": totals} if totals else {})})
    elif entries:
        console.table(_COLUMNS, map(_row, entries))
        for total in _totals(entries):
            simulated = " (SIMULATED)" if total["simulated"] else ""
            count, calls = pluralize(total["runs"], "run"), pluralize(total["calls"], "call")
            console.line(f"{count}, {calls}, {total['spent']}{simulated}")
    else:
        console.say(f"There are no runs in {out} yet; `tfgrpo run --dry-run` makes the first.")


def report(run: str, place: Place, console: Console) -> None:
    """Write the report of a run again from its files, and print its morning page and its path."""
    paths = place.run(run, console)
    # Templates and charts, for this command only.
    from tfgrpo.flows.report.morning import morning_page  # noqa: PLC0415
    from tfgrpo.flows.report.page import write_report  # noqa: PLC0415

    task = TaskPaths(paths.root.parent.parent)
    morning = morning_page(task, paths)
    if not console.as_json:  # first: of a run in a directory that is only readable they can be shown
        console.labelled([line for line in morning.lines if line.label != "report"], whole=("next",))
    page = str(write_report(task, paths, console.say))
    console.answer({"report": page, "morning": morning.as_json()}, page)


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
    return asdict(entry) | {"started_at": entry.started_at.isoformat(), "spent": spent}


def _totals(entries: Sequence[RunEntry]) -> Iterator[dict[str, Any]]:
    """Yield what the runs with real models took, and those with the SIMULATED one."""
    for simulated in (False, True):
        some = [entry for entry in entries if bool(entry.simulated) is simulated]
        total = reduce(Totals.plus, (entry.ledger for entry in some if entry.ledger is not None), Totals())
        if some:
            yield {"simulated": simulated, "runs": len(some), **asdict(total), "spent": spending(total)}
