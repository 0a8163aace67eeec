"""``tfgrpo history``: every change of the library in force with its evidence, the newest last."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tfgrpo.flows.commands.options import existing_task
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.report.nights import Night, nights_of
from tfgrpo.rewarders.statistics.sequential import Capital
from tfgrpo.stores.experiences.library import IN_FORCE, Promotion, chain_problems, promotions
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.gate import evidence_text

_COLUMNS = ("no.", "decided (UTC)", "decision", "run", "lessons", "held out", "evidence")


@dataclass(frozen=True, slots=True)
class Change:
    """One decision, and what it changed in the library in force."""

    number: int
    """Of its line, from 1: what ``tfgrpo experiences rollback`` takes."""
    decision: Promotion
    added: tuple[str, ...]
    removed: tuple[str, ...]
    night: Night | None
    """What a gate decided on; None for what a person did."""

    @property
    def evidence(self) -> str:
        """Figures, reasons and person behind the decision."""
        one = self.decision
        parts = [f"{name}: {reason}" for name, reason in one.reasons.items()]
        if one.estimate is not None and one.low is not None and one.high is not None:
            interval = f"{one.estimate:+.3f} ({one.low:+.3f} to {one.high:+.3f})"
            parts.append(f"{interval} over {pluralize(one.pairs, 'held-out item')}")
        if one.capital:
            nights = f" of {pluralize(one.nights, 'night')}" if one.nights else ""
            parts.append(f"evidence {evidence_text(Capital(one.capital))}{nights}")
        parts += [text for text in (one.why, f"by {one.who}" if one.who else "") if text]
        return "; ".join(parts) or "without a comparison"

    def as_json(self) -> dict[str, Any]:
        """Return the change as JSON."""
        fields = self.decision.model_dump(mode="json", exclude={"schema_version", "signatures", "previous", "capital"})
        value = Capital(self.decision.capital).log_value if self.decision.capital else None
        delta = {"added": list(self.added), "removed": list(self.removed)}
        rewards = {name: self.night and getattr(self.night, name) for name in ("before", "after")}
        return {"number": self.number, **fields, "log_capital": value, **delta, **rewards, "evidence": self.evidence}


def changes(task: TaskPaths) -> Iterator[Change]:
    """Yield every decision with its difference to the library in force before, for simulated and real models apart."""
    before: dict[bool, tuple[str, ...]] = {}
    for number, one in enumerate(promotions(task.promotions), start=1):
        night = next(iter(nights_of(task, [one])), None)
        if one.decision not in IN_FORCE:
            yield Change(number, one, (), (), night)
            continue
        old, new = before.get(one.simulated, ()), one.experience_ids
        before[one.simulated] = new
        added = tuple(name for name in new if name not in old)
        yield Change(number, one, added, tuple(name for name in old if name not in new), night)


def history(options: argparse.Namespace, console: Console) -> None:
    """Print the changes of the library in force, or with ``--all`` every decision."""
    task = existing_task(options)
    shown = [each for each in changes(task) if options.all or each.decision.decision in IN_FORCE]
    problems = chain_problems(task.promotions)
    for problem in problems:
        console.say(problem, style="yellow")
    if console.as_json:
        console.result({"changes": [each.as_json() for each in shown], "problems": problems})
    elif not shown:
        console.say("The library of this task never changed; --all lists every decision of the gate.")
    else:
        console.table(_COLUMNS, map(_row, shown))
        console.say("`tfgrpo experiences rollback NO` puts the library of one of these into force again.")


def _row(change: Change) -> tuple[str, ...]:
    one = change.decision
    delta = f" (+{len(change.added)} −{len(change.removed)})" if one.decision in IN_FORCE else ""
    simulated = " (SIMULATED)" if one.simulated else ""
    return (
        str(change.number),
        f"{one.decided_at:%Y-%m-%d %H:%M}",
        one.decision + simulated,
        one.run_id,
        f"{len(one.experience_ids)}{delta}",
        change.night.held_out if change.night else "",
        change.evidence,
    )
