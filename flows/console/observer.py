"""Who is told how a run goes? A protocol of a few moments; the terminal and Prefect's artifacts both listen."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.stores.ledger.state import Totals
from tfgrpo.stores.outcomes import Phase
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.gate import GateDecision
from tfgrpo.tasks.shapes import GroupResult

_log = logging.getLogger("tfgrpo.observer")


@dataclass(frozen=True, slots=True)
class EpochStart:
    """An epoch is about to begin."""

    epoch: int
    epochs: int
    phase: Phase
    groups: int
    temperature: float

    @property
    def title(self) -> str:
        """The epoch as people call it."""
        return f"epoch {self.epoch}/{self.epochs} {self.phase}"


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """An epoch has ended. The reward is the mean over scored rollouts, of the candidate in the sweep; None without any."""

    epoch: int
    phase: Phase
    mean_reward: float | None
    scored: int
    lost: int
    informative: int
    lessons: int
    """Lessons in the library now."""
    lost_mostly: str = ""
    """Why rollouts were lost: the most frequent reason, with how many it took; empty when none was lost."""
    learning_asked: int = 0
    """Reflections and curations that were asked for."""
    learning_lost: int = 0
    """Those of them that brought no usable answer."""
    learning_lost_mostly: str = ""
    """The most frequent reason, with its number; empty when none was lost."""

    @property
    def learning_loss(self) -> str:
        """Lost reflections and curations in words; empty when none was lost."""
        if not self.learning_lost:
            return ""
        share = f"{self.learning_lost} of {pluralize(self.learning_asked, 'learning step')}"
        return f"{share} brought no usable answer; most often {self.learning_lost_mostly}"


EPOCH_FIELDS = ("epoch", "phase", "mean_reward", "scored", "lost", "informative", "lessons")
EPOCH_COLUMNS = ("epoch", "phase", "mean reward", "scored", "lost", "informative", "lessons")
"""Headings for ``EPOCH_FIELDS``."""


def epoch_rows(details: Mapping[str, Any]) -> Iterator[list[str]]:
    """A row per epoch; the sweep's has both arms, because a mean over the two would be nobody's."""
    gate = details.get("gate") or {}
    arms = [arm for arm in (gate.get("champion"), gate.get("candidate")) if arm]
    for epoch in details.get("epochs", []):
        row = {name: _cell(epoch[name]) for name in EPOCH_FIELDS}
        if epoch.get("learning_lost"):
            row["informative"] += f" ({epoch['learning_lost']} of {epoch['learning_asked']} lost)"
        if epoch["phase"] == "eval" and len(arms) == 2:
            row["mean_reward"] = " → ".join(f"{arm['estimate']:.3f}" for arm in arms)
        yield list(row.values())


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


class Observer(Protocol):
    """Told of every moment, in order, from the flow's own thread. Must not raise."""

    def run_started(self, plan: Plan, run_id: str, warnings: Sequence[str]) -> None:
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
    """Tells several observers, in the order given. One that raises is logged and not told of anything more."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = list(observers)

    def run_started(self, plan: Plan, run_id: str, warnings: Sequence[str]) -> None:
        """See ``Observer``."""
        self._tell(lambda observer: observer.run_started(plan, run_id, warnings))

    def epoch_started(self, start: EpochStart) -> None:
        """See ``Observer``."""
        self._tell(lambda observer: observer.epoch_started(start))

    def group_done(self, result: GroupResult, totals: Totals) -> None:
        """See ``Observer``."""
        self._tell(lambda observer: observer.group_done(result, totals))

    def lessons_stored(self, records: Sequence[ExperienceRecord], rejected: int) -> None:
        """See ``Observer``."""
        self._tell(lambda observer: observer.lessons_stored(records, rejected))

    def epoch_ended(self, end: EpochEnd) -> None:
        """See ``Observer``."""
        self._tell(lambda observer: observer.epoch_ended(end))

    def gate_decided(self, decision: GateDecision) -> None:
        """See ``Observer``."""
        self._tell(lambda observer: observer.gate_decided(decision))

    def closed(self) -> None:
        """See ``Observer``."""
        self._tell(lambda observer: observer.closed())

    def _tell(self, moment: Callable[[Observer], None]) -> None:
        for observer in tuple(self._observers):
            try:
                moment(observer)
            except Exception as error:  # noqa: BLE001 - a view that breaks must not end a run that is being paid for
                self._observers.remove(observer)
                _log.warning("%s shows nothing more of this run: %r", type(observer).__name__, error)
