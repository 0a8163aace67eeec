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
    lines = [(str(each.index), first_line(each.outcome.reason)) for each in selection.candidates if not each.valid]
    if stage := selected.plan.stage:
        lines.append(("stage", f"{stage.stage}: {stage.why}"))
    lines.append(("graded by", selected.plan.measure))
    lines += (("not graded", why if why.startswith(name) else f"{name}: {why}") for name, why in selection.faults.items())
    more = " + unknown" if cost.unmeasured_attempts else ""
    calls, tokens = pluralize(cost.calls, "call") + more, pluralize(cost.tokens, "token") + more
    simulated = " (SIMULATED)" if selected.plan.simulated else ""
    price = "at an unknown price" if cost.usd is None else f"${cost.usd:.4f}{simulated}"
    lines.append(("spent", f"{calls}, {tokens}, {price}, {selection.duration_s:.1f} s"))
    console.labelled(lines if chosen is None else [*lines, ("chosen", selected.message)])
    if chosen is None:
        console.say(f"tfgrpo: {selected.message}", style="bold red")
    elif not console.as_json:
        console.text(selection.best.text)
