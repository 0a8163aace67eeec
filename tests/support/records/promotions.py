"""Record decisions, and read what is in force, in one call each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.records.records import NOW
from tfgrpo.rewarders.statistics.credit import Effect
from tfgrpo.stores.experiences.decisions import Decision, Gain, in_force, read_decisions, record_decided
from tfgrpo.tasks.decision import gain_of


def record_decision(path: Path, decision: Decision) -> None:
    """Append a decision, on whatever credit is there."""
    record_decided(path, lambda _: decision, accepts=True)


def decision(verdict: Any, ids: Sequence[str] = (), **fields: Any) -> Decision:
    """Return the decision of a night on the simulated model."""
    given: dict[str, Any] = {"run_id": "night", "decided_at": NOW, "library_id": "", "simulated": True, **fields}
    return Decision(decision=verdict, experience_ids=tuple(ids), **given)


def gain(mean: float, sd: float = 1.0) -> Gain:
    """Return a gain in points."""
    return gain_of(Effect(mean, sd))


def ids_in_force(path: Path, *, simulated: bool | None = None) -> tuple[str, ...]:
    """Return the experiences in force; empty when nothing is."""
    decided = in_force(read_decisions(path), simulated=simulated)
    return () if decided is None else decided.experience_ids
