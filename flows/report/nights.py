"""The history of a task: its nights, however they ended, with the changes of people, and the picture of their gains."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate, groupby
from typing import Any, Final

from tfgrpo.flows.console.figures import NOTHING, points, spending, whole
from tfgrpo.flows.run.index import RunEntry, runs_of
from tfgrpo.stores.experiences.decisions import Decision, read_decisions
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.tasks.decision import sentence_of

COLUMNS: Final = ("no.", "date (UTC)", "decision", "gain (95 %)", "lessons", "calls", "cost", "run", "besides")
"""Columns of the history; *besides* has a person's reasons, an early end, and what model or dataset is new."""
_MOST: Final = 60
"""Nights in the picture, the newest."""
_LABELS: Final = 20
_STEPS: Final = (1, 2, 5, 10)
"""Distances of grid lines, times a power of ten."""
_LINES: Final = 6


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One line of the history: a night, or what a person changed."""

    run_id: str
    """For a person's change, what it does and the number of its line."""
    at: datetime
    """When it was decided; of a run without a decision, when it began."""
    outcome: str
    """The decision; of a run without one, how it ended."""
    why: str
    """The figures of a night, the reasons of a person, or how a run without a decision ended."""
    simulated: bool
    number: int | None = None
    """Number of the decision's line, from 1: what ``tfgrpo experiences rollback`` takes. None where nothing was decided."""
    night: int | None = None
    """Number of the night of its kind of model, by its start, from 1; None for a person's word."""
    decision: Decision | None = None
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    """Ids of lessons that came into force, and that left."""
    run: RunEntry | None = None
    """None for a person's word, and for a run whose files are gone."""
    news: tuple[str, ...] = ()
    """Model and dataset, where they are others than in the run before."""

    @property
    def lessons(self) -> int | None:
        """Lessons in force from then on; None for a run that decided nothing."""
        return len(self.decision.experience_ids) if self.decision else None

    @property
    def cells(self) -> tuple[str, ...]:
        """Its row in a table with ``COLUMNS``."""
        one, ledger = self.decision, self.run.ledger if self.run else None
        changed = f"{self.lessons} (+{len(self.added)} −{len(self.removed)})"
        proven = ", proven" if one and one.proven else ""
        return (
            "" if self.number is None else str(self.number),
            f"{self.at:%Y-%m-%d %H:%M}",
            f"{self.outcome}{proven}{' (SIMULATED)' if self.simulated else ''}",
            points(one.total if one else None),
            changed if one else NOTHING,
            whole(ledger.calls if ledger else None),
            spending(ledger) if ledger else NOTHING,
            self.run_id,
            "; ".join(filter(None, (*([] if one and one.ends_night else [self.why]), *self.news))),
        )


def changes_of(decisions: Iterable[Decision]) -> Iterator[HistoryEntry]:
    """Yield what each decision changed in what was in force before, for simulated and real models apart."""
    before: dict[bool, tuple[str, ...]] = {}
    nights = {True: 0, False: 0}
    for number, one in enumerate(decisions, start=1):
        old, new = before.get(one.simulated, ()), one.experience_ids
        before[one.simulated] = new
        nights[one.simulated] = one.night or nights[one.simulated] + one.ends_night
        yield HistoryEntry(
            one.run_id,
            one.decided_at,
            one.decision,
            sentence_of(one) if one.ends_night else _reasons(one),
            one.simulated,
            number,
            nights[one.simulated] if one.ends_night else None,
            one,
            added=tuple(name for name in new if name not in old),
            removed=tuple(name for name in old if name not in new),
        )


def _reasons(one: Decision) -> str:
    names = {reason: name for name, reason in reversed(one.reasons.items())}  # the newest of several wordings
    reasons = [f"{name}: {reason}" for reason, name in names.items()]
    return "; ".join(filter(None, (*reasons, one.why, one.who and f"by {one.who}"))) or "without a reason"


def history_of(task: TaskPaths) -> list[HistoryEntry]:
    """Return every run of a task and every person's change of its library, the oldest first. Raise ``CorruptFile``."""
    runs = {run.run_id: run for run in reversed(runs_of(task))}
    news, models = dict[str, tuple[str, ...]](), dict[bool, str]()
    for run in runs.values():
        kind = bool(run.simulated)
        changed = run.model is not None and models.get(kind, run.model) != run.model
        news[run.run_id] = (*([f"model {run.model}"] if changed else []), *filter(None, [run.items_changed]))
        models |= {} if run.model is None else {kind: run.model}
    entries = [replace(each, run=runs.pop(each.run_id, None)) for each in changes_of(read_decisions(task.promotions))]
    # Decisions stay in their order, also those that a clock ahead of time dates after the next.
    moments = [each.at for each in entries]
    placed = dict(enumerate([*accumulate(reversed(moments), min)][::-1], start=1))
    for run in runs.values():
        about = (run.message or "", bool(run.simulated), None, run.night)
        entries.append(HistoryEntry(run.run_id, run.started_at, run.state, *about, run=run))
    named = (replace(each, news=news.get(each.run_id, ())) for each in entries)
    return sorted(named, key=lambda each: placed.get(each.number or 0, each.at))


@dataclass(frozen=True, slots=True)
class Scale:
    """Linear scale: maps the values ``low`` to ``high`` to the places ``start`` to ``end`` of an axis."""

    low: float
    high: float
    start: float
    end: float
    step: float = 1.0
    """Between grid lines."""

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        return round(self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low), 2)

    @property
    def lines(self) -> list[float]:
        """Values for the grid lines."""
        return [self.low + self.step * number for number in range(round((self.high - self.low) / self.step) + 1)]


def picture(entries: Iterable[HistoryEntry]) -> dict[str, Any] | None:
    """Return what the picture of the newest nights is drawn from; None for fewer than two nights with a gain."""
    nights = [each for each in entries if each.decision is not None and each.decision.ends_night]
    shown = nights[-_MOST:]
    gains = [each.decision.total if each.decision else None for each in shown]
    known = [gain for gain in gains if gain is not None]
    if len(known) < 2:
        return None
    places = [(place + 0.5, gain) for place, gain in enumerate(gains)]
    return {
        "nights": shown,
        # The stretches of nights with a gain, each night with its place.
        "bands": [list(band) for drawn, band in groupby(places, lambda each: each[1] is not None) if drawn],
        "every": -(-len(shown) // _LABELS),
        "x": Scale(0, len(shown), 66, 708),
        "y": round_scale(min(0.0, *(gain.low for gain in known)), max(1.0, *(gain.high for gain in known))),
        "earlier": len(nights) - len(shown),
    }


def round_scale(low: float, high: float) -> Scale:
    """Return a scale of a few round steps from below ``low`` to above ``high``, which differ."""
    wanted = (high - low) / _LINES
    unit = 10.0 ** math.floor(math.log10(wanted))
    step = unit * next(each for each in _STEPS if each * unit >= wanted)
    return Scale(math.floor(low / step) * step, math.ceil(high / step) * step, 216, 26, step)
