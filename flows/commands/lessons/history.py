"""``tfgrpo history``: every change of the library in force with its evidence, the newest last."""

from __future__ import annotations

import argparse
from typing import Any

from tfgrpo.flows.commands.options import existing_task
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.report.nights import Change, changes_of
from tfgrpo.rewarders.statistics.sequential import Capital
from tfgrpo.stores.experiences.library import IN_FORCE, Promotion, chain_problems, promotions
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.gate import evidence_text

_COLUMNS = ("no.", "decided (UTC)", "decision", "run", "lessons", "held out", "evidence")


def history(options: argparse.Namespace, console: Console) -> None:
    """Print the changes of the library in force, or with ``--all`` every decision."""
    task = existing_task(options, console)
    decided = changes_of(task, promotions(task.promotions))
    shown = [each for each in decided if options.all or each.decision.decision in IN_FORCE]
    problems = chain_problems(task.promotions)
    for problem in problems:
        console.say(problem, style="yellow")
    if console.as_json:
        console.result({"changes": list(map(_json, shown)), "problems": problems})
    elif not shown:
        console.say("The library of this task never changed; --all lists every decision of the gate.")
    else:
        console.table(_COLUMNS, map(_row, shown))
        console.say("`tfgrpo experiences rollback NO` puts a library that was in force into force again.")


def _evidence(one: Promotion) -> str:
    """Return figures, reasons and person behind a decision."""
    parts = [f"{name}: {reason}" for name, reason in one.reasons.items()]
    if one.estimate is not None and one.low is not None and one.high is not None:
        interval = f"{one.estimate:+.3f} ({one.low:+.3f} to {one.high:+.3f})"
        parts.append(f"{interval} over {pluralize(one.pairs, 'held-out item')}")
    if one.capital and any(one.capital):
        nights = f" after {pluralize(one.nights, 'night')}" if one.nights else ""
        parts.append(f"evidence {evidence_text(Capital(one.capital))}{nights}")
    parts += [text for text in (one.why, f"by {one.who}" if one.who else "") if text]
    return "; ".join(parts) or "without a comparison"


def _json(change: Change) -> dict[str, Any]:
    one = change.decision
    return {
        "number": change.number,
        **one.model_dump(mode="json", exclude={"schema_version", "signatures", "previous", "capital"}),
        "log_capital": Capital(one.capital).log_value if one.capital else None,
        "added": list(change.added),
        "removed": list(change.removed),
        "before": change.before,
        "after": change.after,
        "evidence": _evidence(one),
    }


def _row(change: Change) -> tuple[str, ...]:
    one = change.decision
    changed = one.decision in IN_FORCE
    about = f"+{len(change.added)} −{len(change.removed)}" if changed else f"{len(one.experience_ids)} tested"
    simulated = " (SIMULATED)" if one.simulated else ""
    return (
        str(change.number),
        f"{one.decided_at:%Y-%m-%d %H:%M}",
        one.decision + simulated,
        one.run_id,
        f"{change.lessons} ({about})",
        change.held_out,
        _evidence(one),
    )
