"""``tfgrpo history``: every night of a task and every change of its library by a person in one table, the newest last."""

from __future__ import annotations

from typing import Any

from tfgrpo.flows.commands.options import Place
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.figures import spending
from tfgrpo.flows.report.nights import COLUMNS, HistoryEntry, history_of
from tfgrpo.stores.experiences.decisions import chain_problems


def history(place: Place, console: Console) -> None:
    """Print a row for each night and each change."""
    task = place.existing(console)
    entries, problems = history_of(task), chain_problems(task.promotions)
    for problem in problems:
        console.say(problem, style="yellow")
    if console.as_json:
        console.result({"nights": list(map(_json, entries)), "problems": problems})
    elif not entries:
        console.say("This task has no night yet.")
    else:
        console.table(COLUMNS, (each.cells for each in entries))
        console.say("`tfgrpo experiences rollback NO` puts a library that was in force into force again.")


def _json(entry: HistoryEntry) -> dict[str, Any]:
    """Return a line of the history, with what the manifest and the decision say."""
    own = ("number", "night", "run_id", "outcome", "why", "simulated", "lessons", "added", "removed", "news")
    ledger = entry.run.ledger if entry.run else None
    spent = {"calls": ledger and ledger.calls, "spent": ledger and spending(ledger)}
    run = {name: getattr(entry.run, name, None) for name in ("status", "model")} | spent
    decision = entry.decision and entry.decision.model_dump(mode="json", exclude={"signatures", "previous", "night"})
    return {**{name: getattr(entry, name) for name in own}, "at": entry.at.isoformat(), **run, "decision": decision}
