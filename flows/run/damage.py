"""Compare what the files of a run and of a task know of each other, and refuse a run that would pay or decide by damaged ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from tfgrpo.flows.run.prepare import Prepared
from tfgrpo.stores.errors import CorruptFile, SettingsError
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.files.lines import lines_of
from tfgrpo.stores.frozen_json import mapping_of
from tfgrpo.stores.ledger.shared import totals_in
from tfgrpo.stores.ledger.state import NANO, Totals
from tfgrpo.stores.numeric import is_cost
from tfgrpo.stores.runs.journal import Journal, attempt_and_role
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.models.wire import usage_of
from tfgrpo.tasks.runtime.runtime import RunContext

_ATTEMPTED: Final = frozenset({"scored", "ungraded"})
"""Outcomes of attempts that have an answer in the journal."""


class Known(NamedTuple):
    """What is known of a run before it goes on."""

    spent: Totals = Totals()
    """By its journal."""
    warnings: Sequence[str] = ()


class Journalled(NamedTuple):
    """What a journal accounts for."""

    spent: Totals
    """Answered calls with their tokens and money, and the number of all entries."""
    attempts: int
    """Attempts with an answer."""


def read_journal(path: Path) -> Journalled:
    """Sum a journal up, without damaged lines; nothing without one. Raises ``CorruptFile`` for a file of zeros."""
    entries = calls = tokens = nano = 0
    attempts: set[str] = set()
    for line in lines_of(path):
        entry = mapping_of(json.loads(line.body)) if line.length else {}
        entries += bool(line.length)
        if entry.get("kind") != "reply":
            continue
        with suppress(ValueError):
            attempt, role = attempt_and_role(str(entry.get("key")))
            attempts |= {attempt} if role in {"rollout", "agent"} else set()
        payload = mapping_of(entry.get("payload"))
        if "usage" in payload:  # of a model's answer; tools cost the ledger nothing
            usage, cost = usage_of(payload["usage"]), payload.get("cost_usd")
            calls, tokens = calls + 1, tokens + (0 if usage is None else usage.total)
            nano += round(cost * NANO) if is_cost(cost) and cost else 0
    return Journalled(Totals(calls=calls, tokens=tokens, nano_usd=nano, journalled=entries), len(attempts))


def refuse_damage(context: RunContext, prepared: Prepared) -> Known:
    """Raise ``SettingsError`` for a run whose files do not allow what is asked; return what its journal accounts for.

    A replay answers from the journal alone. A run whose answers are paid for goes on only with all of them, and under a cap
    only if it knows what its calls cost.
    """
    request, run, run_id = prepared.request, context.paths, context.run_id
    if request.replay is not None:
        with Journal(run.journal, repair=False) as journal:
            damaged = journal.damaged
        if damaged:
            accepted = f"a whole journal; `--resume {run_id} --pay-again` asks those calls again"
            raise SettingsError.one("--replay", f"{run_id} with {pluralize(damaged, 'damaged line')}", accepted)
    if request.resume is None:
        return Known()
    try:
        spent = totals_in(run.ledger) if run.ledger.is_file() else None
        attempted = sum(_is_attempted(line.body) for line in lines_of(run.rollouts) if line.length)
    except CorruptFile as error:
        accepted = "a run with a whole ledger: restore the file, or begin a new run"
        raise SettingsError.one("--resume", f"{run_id}: {error}", accepted) from error
    known = Journalled(Totals(), 0)
    with suppress(CorruptFile):  # zeros
        known = read_journal(run.journal)
    closed = mapping_of((prepared.earlier or {}).get("ledger"))
    if not request.pay_again:
        _refuse_lost_answers(run, known, attempted, spent, int(closed.get("journalled", 0)))
    if not known.spent.journalled or spent not in {None, Totals()}:
        return Known(known.spent)
    budget = context.settings.budget
    caps = [name for name in ("max_usd", "max_tokens", "max_calls") if getattr(budget, name) is not None]
    unknown = f"what it has spent is unknown: {run.ledger} is missing or empty"
    if caps:
        without = " ".join(f"--set budget.{name}=none" for name in caps)
        accepted = f"a run with its ledger, or one without caps ({without})"
        raise SettingsError.one("--resume", f"{run_id} under a cap, and {unknown}", accepted)
    answers = pluralize(known.spent.calls, "answered call")
    return Known(known.spent, (f"of the run before it was resumed, {unknown}; it counts the {answers} of the journal",))


def _refuse_lost_answers(run: RunPaths, known: Journalled, attempted: int, spent: Totals | None, closed: int) -> None:
    """Raise ``SettingsError`` where ledger, manifest or rollouts know of answers that the journal lacks."""
    answers = max(spent.journalled if spent else 0, closed)
    lost = max(answers - known.spent.journalled, attempted - known.attempts, 0)
    # Opening a run makes both files, so that only one that was lost is missing.
    unknown = not known.spent.journalled and (
        spent is None or (spent.calls > spent.lost_calls and not run.journal.exists())
    )
    if lost or unknown:
        what = (
            f"{pluralize(lost, 'answered call')} of {max(answers, attempted, lost)}" if lost else "its answered calls"
        )
        again = f"{'it' if lost == 1 else 'they'} would be paid again"
        given = f"{run.root.name}, whose journal {run.journal} is missing, damaged or cut: it lacks {what}, and {again}"
        accepted = (
            "a run with its journal: restore the file, begin a new run, or go on and pay for them with --pay-again"
        )
        raise SettingsError.one("--resume", given, accepted)


def _is_attempted(body: bytes) -> bool:
    row: Any = json.loads(body)
    return isinstance(row, Mapping) and mapping_of(row.get("outcome")).get("name") in _ATTEMPTED
