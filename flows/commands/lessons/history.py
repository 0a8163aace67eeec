"""``tfgrpo history``: every change of the library in force with its evidence, the newest last."""

from __future__ import annotations

from typing import Any

from tfgrpo.flows.commands.options import Place
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.report.nights import Change, changes_of
from tfgrpo.stores.experiences.decisions import Decision, chain_problems, read_decisions
from tfgrpo.tasks.decision import sentence_of

_COLUMNS = ("no.", "decided (UTC)", "decision", "run", "lessons", "why")


def history(place: Place, console: Console, *, every: bool) -> None:
    """Print the changes of the library in force, or with ``--all`` every decision."""
    task = place.existing(console)
    shown = [each for each in changes_of(read_decisions(task.promotions)) if every or each.added or each.removed]
    problems = chain_problems(task.promotions)
    for problem in problems:
        console.say(problem, style="yellow")
    if console.as_json:
        console.result({"changes": list(map(_json, shown)), "problems": problems})
    elif not shown:
        console.say("The library of this task never changed; --all lists every decision.")
    else:
        console.table(_COLUMNS, map(_row, shown))
        console.say("`tfgrpo experiences rollback NO` puts a library that was in force into force again.")


def _sentence(one: Decision) -> str:
    """Return the figures of a night, or the reasons of a person, in a sentence."""
    if one.ends_night:
        return sentence_of(one)
    names = {reason: name for name, reason in reversed(one.reasons.items())}  # the newest of several wordings
    reasons = [f"{name}: {reason}" for reason, name in names.items()]
    return "; ".join(filter(None, (*reasons, one.why, one.who and f"by {one.who}"))) or "without a reason"


def _json(change: Change) -> dict[str, Any]:
    return {
        "number": change.number,
        "night": change.night,
        **change.decision.model_dump(mode="json", exclude={"schema_version", "signatures", "previous", "night"}),
        "added": list(change.added),
        "removed": list(change.removed),
        "sentence": _sentence(change.decision),
    }


def _row(change: Change) -> tuple[str, ...]:
    one = change.decision
    return (
        str(change.number),
        f"{one.decided_at:%Y-%m-%d %H:%M}",
        one.decision + (" (SIMULATED)" if one.simulated else ""),
        one.run_id,
        f"{change.lessons} (+{len(change.added)} −{len(change.removed)})",
        _sentence(one).removeprefix(f"{one.decision.capitalize()}: "),  # which the decision says
    )
