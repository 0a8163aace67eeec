"""The changes and nights of a task: what was in force, what was tested against it, the evidence so far; and their picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from tfgrpo.flows.report.figures import Scale
from tfgrpo.rewarders.statistics.sequential import Capital
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.experiences.library import IN_FORCE, Promotion, promotions
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.runs.manifest import ManifestFile, expected_shape

_MOST: Final = 60
"""Nights in the picture, the newest."""
_LABELS: Final = 20
_NEEDED: Final = 20.0
"""Evidence for a promotion where a manifest does not say."""
_HIGHEST: Final = 1.2
"""Of a bar of evidence, in units of what a promotion needs."""


@dataclass(frozen=True, slots=True)
class Change:
    """One decision: what it changed in the library in force, and the rewards it is about."""

    number: int
    """Of its line, from 1: what ``tfgrpo experiences rollback`` takes; of a night, that of the night."""
    decision: Promotion
    lessons: int
    """In force afterwards."""
    added: tuple[str, ...]
    removed: tuple[str, ...]
    before: float | None = None
    """Mean held-out reward of the library in force; None without a comparison, or without the run's manifest."""
    after: float | None = None
    """Of the candidate."""
    gain: float | None = None
    """Over no lessons in the night's learning batches; None without such a half."""
    needed: float = _NEEDED
    """Evidence that a promotion needed."""
    scores: tuple[float, float] = (-math.inf, math.inf)
    """Lowest and highest reward there is, where the manifest says."""

    @property
    def interval(self) -> tuple[float, ...]:
        """Where the candidate's reward is: the interval of its difference, as far as there are rewards; empty without one."""
        (low, high), one = self.scores, self.decision
        if self.before is None or one.low is None or one.high is None:
            return ()
        return tuple(min(max(self.before + end, low), high) for end in (one.low, one.high))

    @property
    def held_out(self) -> str:
        """Both rewards for people; empty when they are not known."""
        return "" if self.before is None or self.after is None else f"{self.before:.3f} → {self.after:.3f}"

    @property
    def evidence(self) -> float | None:
        """Logarithm of the evidence so far, in units of what was needed; None without any."""
        capital = self.decision.capital
        return Capital(capital).log_value / math.log(self.needed) if capital else None


def decisions_until(task: TaskPaths, manifest: Mapping[str, Any]) -> list[Promotion]:
    """Return the decisions on libraries of the run's kind of model, up to the run's own; for one without, up to its end."""
    simulated = bool(manifest.get("simulated"))
    known = [one for one in promotions(task.promotions) if one.simulated == simulated]
    own = [place for place, one in enumerate(known) if one.run_id == manifest.get("run_id")]
    if own:
        return known[: own[-1] + 1]
    ended = manifest.get("ended_at")
    return [one for one in known if ended is None or one.decided_at <= datetime.fromisoformat(ended)]


def changes_of(task: TaskPaths, decisions: Iterable[Promotion]) -> Iterator[Change]:
    """Yield what each decision changed in the library in force before, for simulated and real models apart."""
    in_force: dict[bool, tuple[str, ...]] = {}
    for number, one in enumerate(decisions, start=1):
        old = in_force.get(one.simulated, ())
        new = in_force[one.simulated] = one.experience_ids if one.decision in IN_FORCE else old
        added, removed = (tuple(name for name in some if name not in other) for some, other in ((new, old), (old, new)))
        yield Change(number, one, len(new), added, removed, **(_measured(task, one.run_id) if one.ends_night else {}))


def nights_of(task: TaskPaths, decisions: Iterable[Promotion]) -> list[Change]:
    """Return the nights behind these decisions, oldest first, numbered from 1."""
    nights = (each for each in changes_of(task, decisions) if each.decision.ends_night)
    return [replace(each, number=number) for number, each in enumerate(nights, start=1)]


def _measured(task: TaskPaths, run_id: str) -> dict[str, Any]:
    """Return fields of a change that the run's manifest has; none where it cannot be read."""
    with suppress(OSError, CorruptFile), expected_shape(task.root):  # the decision is known without it
        gate = ManifestFile(task.run(run_id).manifest).read().get("gate") or {}
        means = ((gate.get(arm) or {}).get("estimate") for arm in ("champion", "candidate"))
        before, after = (None if mean is None else float(mean) for mean in means)
        low, high = map(float, gate.get("score_range") or (-math.inf, math.inf))
        evidence = gate.get("evidence") or {}
        needed, gain = float(evidence.get("needed", _NEEDED)), (evidence.get("gain") or {}).get("estimate")
        found = {"before": before, "after": after, "needed": needed, "scores": (low, high)}
        return {**found, "gain": None if gain is None else float(gain)}
    return {}


def picture(nights: Sequence[Change]) -> dict[str, Any] | None:
    """Return what the picture of the newest nights is drawn from: places and scales; None for fewer than two to tell of."""
    shown = nights[-_MOST:]
    compared = [one for one in shown if one.before is not None and one.after is not None]
    rewards = [each for one in compared for each in (one.before, one.after, *one.interval) if each is not None]
    gains = sum(one.gain is not None for one in shown)
    if not compared or max(len(compared), gains) < 2:
        return None
    return {
        "nights": shown,
        "gains": gains,
        "every": -(-len(shown) // _LABELS),
        "x": Scale(0, len(shown), 66, 708),
        "y": _round_scale(min(rewards), max(rewards)),
        "bar": lambda share: round(-30 * min(max(share, -_HIGHEST), _HIGHEST), 1),
        "earlier": len(nights) - len(shown),
    }


def _round_scale(low: float, high: float) -> Scale:
    """Return a scale whose ends and quarters are round numbers."""
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-9)))
    first, last = math.floor(low / step), math.ceil(high / step)
    if (last - first) % 2:
        first, last = (first - 1, last) if first > 0 else (first, last + 1)
    return Scale(first * step, last * step, 196, 36)
