"""``tfgrpo select``: print the best of K candidates for one request on stdout, and the table of all on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.figures import NOTHING, decimal
from tfgrpo.flows.orchestration.request import SelectRequest
from tfgrpo.flows.selection import Selected
from tfgrpo.flows.selection import select as best_of
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.selection.round import Selection, first_line

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
    request = SelectRequest(
        prompt=_piped() if prompt is None and item is None else prompt,
        item=item,
        reference=reference,
        rewarders=list(rewarders),
        pipeline=pipeline,
        settings=dict(settings),
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
    selection = selected.selection
    chosen = selected.chosen
    console.show(_COLUMNS, _rows(selection, chosen))
    for candidate in selection.candidates:
        if not candidate.valid:
            console.say(f"{candidate.index:>12}  {first_line(candidate.outcome.reason)}")
    if selected.plan.stage is not None:
        console.say(f"{'stage':>12}  {selected.plan.stage.stage}: {selected.plan.stage.why}")
    console.say(f"{'graded by':>12}  {selected.plan.measure}")
    for name, reason in selection.faults.items():
        console.say(f"{'not graded':>12}  {reason if reason.startswith(name) else f'{name}: {reason}'}")
    console.say(f"{'spent':>12}  {_spent(selected)}")
    if chosen is None:
        console.say(f"tfgrpo: {selected.message}", style="bold red")
        return
    console.say(f"{'chosen':>12}  {selected.message}", style="bold green")
    if not console.as_json:
        console.text(selection.best.text)


def _rows(selection: Selection, chosen: int | None) -> Iterator[list[str]]:
    for candidate in selection.candidates:
        yield [
            "→" if candidate.index == chosen else "",
            str(candidate.index),
            candidate.outcome.name,
            decimal(candidate.reward),
            NOTHING if candidate.advantage is None else f"{candidate.advantage:+.2f}",
            str(len(candidate.refused)),
            f"{candidate.temperature:g}",
            f"{candidate.latency_s:.2f}",
        ]


def _spent(selected: Selected) -> str:
    cost = selected.selection.cost
    simulated = " (SIMULATED)" if selected.plan.simulated else ""
    money = "at an unknown price" if cost.usd is None else f"${cost.usd:.4f}{simulated}"
    more = " + unknown" if cost.unmeasured_attempts else ""
    calls, tokens = pluralize(cost.calls, "call") + more, pluralize(cost.tokens, "token") + more
    return f"{calls}, {tokens}, {money}, {selected.selection.duration_s:.1f} s"


def _piped() -> str | None:
    """Return the prompt on standard input; None when that is empty or a terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        return None
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError.one("standard input", f"no UTF-8 at byte {error.start}", "a prompt in UTF-8") from None
    return text if text.strip() else None
