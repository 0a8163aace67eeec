"""``tfgrpo select``: print the best of K candidates for one request on stdout, and the table of all on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.figures import NOTHING, decimal
from tfgrpo.flows.orchestration.request import SelectRequest
from tfgrpo.flows.selection import Selected
from tfgrpo.flows.selection import select as best_of
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.selection.round import first_line

_COLUMNS = ("", "no", "outcome", "reward", "advantage", "repairs", "temp", "seconds")


def select(
    *,
    prompt: str | None,
    item: str | None,
    reference: str | None,
    rewarders: Sequence[str],
    pipeline: str | None,
    settings: Mapping[str, str],
    console: Console,
) -> int:
    """Ask, choose, show."""
    if prompt is None and item is None and sys.stdin is not None and not sys.stdin.isatty():
        try:
            piped = sys.stdin.buffer.read().decode("utf-8")
        except UnicodeDecodeError as error:
            raise SettingsError.one("standard input", f"no UTF-8 at byte {error.start}", "a prompt in UTF-8") from None
        prompt = piped if piped.strip() else None
    request = SelectRequest(
        prompt=prompt, item=item, reference=reference, rewarders=list(rewarders), pipeline=pipeline, settings=dict(settings)
    )
    selected = best_of(request, os.environ)
    if console.as_json:
        console.result(selected.as_json())
    show(selected, console)
    return selected.exit_code


def show(selected: Selected, console: Console) -> None:
    """Show people the table and the reasons; print the chosen text as the result."""
    for warning in selected.warnings:
        console.say(f"warning: {warning}", style="yellow")
    selection, chosen, cost = selected.selection, selected.chosen, selected.selection.cost
    rows = []
    for each in selection.candidates:
        advantage = NOTHING if each.advantage is None else f"{each.advantage:+.2f}"
        figures = (decimal(each.reward), advantage, str(len(each.refused)), f"{each.temperature:g}", f"{each.latency_s:.2f}")
        rows.append(("→" if each.index == chosen else "", str(each.index), each.outcome.name, *figures))
    console.table(_COLUMNS, rows, people=True)
    for candidate in selection.candidates:
        if not candidate.valid:
            console.say(f"{candidate.index:>12}  {first_line(candidate.outcome.reason)}")
    if selected.plan.stage is not None:
        console.say(f"{'stage':>12}  {selected.plan.stage.stage}: {selected.plan.stage.why}")
    console.say(f"{'graded by':>12}  {selected.plan.measure}")
    for name, reason in selection.faults.items():
        console.say(f"{'not graded':>12}  {reason if reason.startswith(name) else f'{name}: {reason}'}")
    more = " + unknown" if cost.unmeasured_attempts else ""
    calls, tokens = pluralize(cost.calls, "call") + more, pluralize(cost.tokens, "token") + more
    price = "at an unknown price"
    if cost.usd is not None:
        price = f"${cost.usd:.4f}{' (SIMULATED)' if selected.plan.simulated else ''}"
    console.say(f"{'spent':>12}  {calls}, {tokens}, {price}, {selection.duration_s:.1f} s")
    if chosen is None:
        console.say(f"tfgrpo: {selected.message}", style="bold red")
        return
    console.say(f"{'chosen':>12}  {selected.message}", style="bold green")
    if not console.as_json:
        console.text(selection.best.text)
