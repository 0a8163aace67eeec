"""The decisions of a task: what each one changed in the lessons in force, and the picture of the gain over nights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tfgrpo.stores.experiences.decisions import Decision, Gain, read_decisions
from tfgrpo.stores.files.layout import TaskPaths

_MOST: Final = 60
"""Nights in the picture, the newest."""
_LABELS: Final = 20
_STEPS: Final = (1, 2, 5, 10)
"""Distances of grid lines, times a power of ten."""
_LINES: Final = 6


@dataclass(frozen=True, slots=True)
class Change:
    """One decision, and what it changed in the lessons in force."""

    number: int
    """Of its line, from 1: what ``tfgrpo experiences rollback`` takes."""
    decision: Decision
    night: int | None
    """Number of the night of its kind of model that ended with it, from 1; None for a person's word."""
    added: tuple[str, ...]
    removed: tuple[str, ...]

    @property
    def lessons(self) -> int:
        """Lessons in force from then on."""
        return len(self.decision.experience_ids)


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


def decisions_until(task: TaskPaths, manifest: Mapping[str, Any]) -> list[Decision]:
    """Return the decisions about the run's kind of model, up to the run's own; for a run without one, up to its end."""
    simulated = bool(manifest.get("simulated"))
    known = [one for one in read_decisions(task.promotions) if one.simulated == simulated]
    own = [place for place, one in enumerate(known) if one.run_id == manifest.get("run_id")]
    if own:
        return known[: own[-1] + 1]
    ended = manifest.get("ended_at")
    return [one for one in known if ended is None or one.decided_at <= datetime.fromisoformat(ended)]


def changes_of(decisions: Iterable[Decision]) -> Iterator[Change]:
    """Yield what each decision changed in what was in force before, for simulated and real models apart."""
    before: dict[bool, tuple[str, ...]] = {}
    nights = {True: 0, False: 0}
    for number, one in enumerate(decisions, start=1):
        old, new = before.get(one.simulated, ()), one.experience_ids
        before[one.simulated] = new
        nights[one.simulated] = one.night or nights[one.simulated] + one.ends_night
        added, removed = (tuple(name for name in some if name not in other) for some, other in ((new, old), (old, new)))
        yield Change(number, one, nights[one.simulated] if one.ends_night else None, added, removed)


def picture(changes: Iterable[Change]) -> dict[str, Any] | None:
    """Return what the picture of the newest nights is drawn from; None for fewer than two nights with a gain."""
    nights = [each for each in changes if each.night is not None]
    shown = nights[-_MOST:]
    gains = [each.decision.total for each in shown]
    known = [gain for gain in gains if gain is not None]
    if len(known) < 2:
        return None
    return {
        "nights": shown,
        "bands": _bands(gains),
        "every": -(-len(shown) // _LABELS),
        "x": Scale(0, len(shown), 66, 708),
        "y": round_scale(min(0.0, *(gain.low for gain in known)), max(1.0, *(gain.high for gain in known))),
        "earlier": len(nights) - len(shown),
    }


def _bands(gains: Sequence[Gain | None]) -> list[list[tuple[float, Gain]]]:
    """Return the stretches of nights with a gain, each night with its place."""
    bands: list[list[tuple[float, Gain]]] = [[]]
    for place, gain in enumerate(gains):
        if gain is not None:
            bands[-1].append((place + 0.5, gain))
        elif bands[-1]:
            bands.append([])
    return bands


def round_scale(low: float, high: float) -> Scale:
    """Return a scale of a few round steps from below ``low`` to above ``high``, which differ."""
    wanted = (high - low) / _LINES
    unit = 10.0 ** math.floor(math.log10(wanted))
    step = unit * next(each for each in _STEPS if each * unit >= wanted)
    return Scale(math.floor(low / step) * step, math.ceil(high / step) * step, 216, 26, step)
