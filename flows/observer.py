"""Who is told how a run goes? A protocol of a few moments; the terminal and Prefect's artifacts both listen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol

from pipelines.plan import Plan
from stores.ledger import Totals
from stores.models import ExperienceRecord
from tasks.gate import GateDecision
from tasks.shapes import GroupResult, Phase


@dataclass(frozen=True, slots=True)
class EpochStart:
    """An epoch is about to begin."""

    epoch: int
    epochs: int
    phase: Phase
    groups: int
    temperature: float


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """An epoch has ended; rewards are means over scored rollouts, None when there were none."""

    epoch: int
    phase: Phase
    mean_reward: float | None
    scored: int
    lost: int
    informative: int
    lessons: int
    """Lessons in the library now."""


EPOCH_FIELDS = tuple(field.name for field in fields(EpochEnd))
EPOCH_COLUMNS = ("epoch", "phase", "mean reward", "scored", "lost", "informative groups", "lessons in force")
"""Headings for ``EPOCH_FIELDS``."""


class Observer(Protocol):
    """Told of every moment, in order, from the flow's own thread. Must not raise."""

    def run_started(self, plan: Plan, run_id: str) -> None:
        """The plan is valid and spending begins."""
        ...

    def epoch_started(self, start: EpochStart) -> None:
        """An epoch begins."""
        ...

    def group_done(self, result: GroupResult, totals: Totals) -> None:
        """A group came back."""
        ...

    def lessons_stored(self, records: Sequence[ExperienceRecord], rejected: int) -> None:
        """A batch was curated and stored."""
        ...

    def epoch_ended(self, end: EpochEnd) -> None:
        """An epoch is over."""
        ...

    def gate_decided(self, decision: GateDecision) -> None:
        """The sweep was judged."""
        ...

    def closed(self) -> None:
        """Nothing more will come."""
        ...


class Observers:
    """Tells several observers, in the order given."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def run_started(self, plan: Plan, run_id: str) -> None:
        """See ``Observer``."""
        for observer in self._observers:
            observer.run_started(plan, run_id)

    def epoch_started(self, start: EpochStart) -> None:
        """See ``Observer``."""
        for observer in self._observers:
            observer.epoch_started(start)

    def group_done(self, result: GroupResult, totals: Totals) -> None:
        """See ``Observer``."""
        for observer in self._observers:
            observer.group_done(result, totals)

    def lessons_stored(self, records: Sequence[ExperienceRecord], rejected: int) -> None:
        """See ``Observer``."""
        for observer in self._observers:
            observer.lessons_stored(records, rejected)

    def epoch_ended(self, end: EpochEnd) -> None:
        """See ``Observer``."""
        for observer in self._observers:
            observer.epoch_ended(end)

    def gate_decided(self, decision: GateDecision) -> None:
        """See ``Observer``."""
        for observer in self._observers:
            observer.gate_decided(decision)

    def closed(self) -> None:
        """See ``Observer``."""
        for observer in self._observers:
            observer.closed()
