"""What a run knows while it learns: the lessons of all nights with their accounts, the candidate, and the champion.

Before learning rules 4 there are no accounts: the library is the champion with what the run has learned, and is the
candidate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Self

from tfgrpo.flows.console.figures import Losses
from tfgrpo.flows.run.effects import effects_of
from tfgrpo.rewarders.statistics.effects import Effect
from tfgrpo.stores.experiences.accounts import (
    MOST_SUPPORT,
    Account,
    AccountEvent,
    accounts_of,
    in_force,
    known,
    leaving,
    opening_event,
    read_events,
    telling,
)
from tfgrpo.stores.experiences.library import Library, fold
from tfgrpo.stores.experiences.measured import MeasuredLine
from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.stores.experiences.store import ExperienceStore


@dataclass(frozen=True, slots=True)
class Evidence:
    """What accounts are computed from. Grows by every batch."""

    records: tuple[ExperienceRecord, ...]
    """Of all nights, in the order in which they were written, superseded ones included."""
    events: tuple[AccountEvent, ...]
    night: int
    slots: int
    """Most lessons of the candidate."""
    capacity: int
    """Most known lessons."""
    most: float = MOST_SUPPORT
    """Most net support of a lesson that one night leaves to the next."""


class History(NamedTuple):
    """What the accounts of a task are folded from."""

    records: tuple[ExperienceRecord, ...]
    """Of all nights, in the order in which they were written; only ones that verify."""
    events: tuple[AccountEvent, ...]
    opening: tuple[AccountEvent, ...]
    """Of lessons in force from before there were accounts."""

    @classmethod
    def read(
        cls,
        store: ExperienceStore,
        accounts: Path,
        champion: Library,
        *,
        night: int,
        simulated: bool,
        now: datetime,
        lines: int | None = None,
    ) -> Self:
        """Read the history of one kind of model: of the first ``lines`` events, None for all. Raises ``CorruptFile``."""
        events = [event for event in read_events(accounts, lines) if event.simulated == simulated]
        ids = {event.experience_id for event in events}
        forced = {entry.experience_id: entry for entry in champion.entries}
        records: dict[str, ExperienceRecord] = {}
        for record in (*filter(store.verify_stamp, store.find([*ids, *forced])), *champion.entries):
            records.setdefault(record.experience_id, forced.get(record.experience_id, record))
        opening = [
            opening_event(entry, night=night, simulated=simulated, now=now)
            for name, entry in forced.items()
            if name not in ids
        ]
        return cls(tuple(records.values()), tuple(events), tuple(opening))


@dataclass(slots=True)
class LearningState:
    """Mutable learning state of one run."""

    library: Library
    """The known lessons."""
    champion: Library
    """What the candidate is compared with: the library in force, without lessons that have left it since."""
    candidate: Library
    """What the next batch runs under, and the gate decides on: rebuilt after every batch, fixed during it."""
    evidence: Evidence | None = None
    """None before learning rules 4."""
    accounts: Mapping[str, Account] = field(default_factory=dict)
    measured: tuple[MeasuredLine, ...] = ()
    """Groups that measured single lessons with this model."""
    effects: Mapping[str, Effect] = field(default_factory=dict)
    """Of the lessons that were measured, by id."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Lessons that have left the champion in this run by id, with the reason."""
    unwritten: tuple[AccountEvent, ...] = ()
    """Events of the current epoch, written at its end."""
    remembered: Mapping[str, int] = field(default_factory=dict)
    """Texts of rejected proposals with how often they were rejected, shown to the curator."""
    rejected: list[tuple[str, str]] = field(default_factory=list)
    """Every proposal that curation refused, with the reason."""
    stored: int = 0
    """Records stored by this run."""
    losses: Losses = field(default_factory=Losses)
    """Reflections and curations of the current epoch."""

    @classmethod
    def first(cls, champion: Library) -> LearningState:
        """Return the state of a run that starts from a champion, without accounts."""
        return cls(champion, champion, champion)

    @classmethod
    def signed(cls, champion: Library, evidence: Evidence) -> LearningState:
        """Return the state of a run that starts from a champion and the evidence of all nights."""
        accounts = accounts_of(evidence.records, evidence.events, evidence.night, evidence.most)
        kept = _worth_keeping(evidence.records, accounts, champion)
        events = tuple(event for event in evidence.events if event.experience_id in kept)
        records = tuple(record for record in evidence.records if record.experience_id in kept)
        state = cls(champion, champion, champion)
        state._rebuild(replace(evidence, records=records, events=events))
        return state

    def learn(self, records: Sequence[ExperienceRecord], events: Sequence[AccountEvent]) -> Mapping[str, str]:
        """Take in what a batch taught, and return the lessons that left the champion, with the reason."""
        before, evidence = self.left, self.evidence
        if evidence is None:
            self.library = self.candidate = fold(self.library, records)
            return {}
        self.unwritten = (*self.unwritten, *events)
        self._rebuild(replace(evidence, records=(*evidence.records, *records), events=(*evidence.events, *events)))
        return {name: reason for name, reason in self.left.items() if name not in before}

    def measure(self, lines: Sequence[MeasuredLine]) -> None:
        """Take in measuring groups."""
        if self.evidence is not None and (self.measured or lines):
            self.measured = (*self.measured, *lines)
            self.effects = effects_of(self.measured, self.evidence.night)

    def _rebuild(self, evidence: Evidence) -> None:
        self.evidence = evidence = replace(evidence, events=telling(evidence.events))
        self.accounts = accounts_of(evidence.records, evidence.events, evidence.night, evidence.most)
        leave = leaving(self.champion.entries, self.accounts)
        self.left = {**self.left, **leave}
        self.champion = Library(tuple(one for one in self.champion.entries if one.experience_id not in leave))
        place = {entry.experience_id: number for number, entry in enumerate(self.champion.entries)}
        folded = fold(Library(()), evidence.records).entries
        # The champion's lessons first, in its order: what both libraries have is one prefix of their prompts.
        entries = sorted(folded, key=lambda each: place.get(each.experience_id, len(place)))
        self.library = Library(known(entries, self.accounts, evidence.capacity, place))
        standing = {entry.experience_id for entry in (*self.champion.entries, *self.candidate.entries)}
        self.candidate = Library(in_force(self.library.entries, self.accounts, evidence.slots, standing))


def _worth_keeping(
    records: Iterable[ExperienceRecord], accounts: Mapping[str, Account], champion: Library
) -> frozenset[str]:
    """Return the ids of lessons that are known or in force, of what they carry on, and of deletions."""
    in_champion = {entry.experience_id for entry in champion.entries}
    kept: set[str] = set()
    for record in records:
        name = record.experience_id
        if name in in_champion or accounts[name].living or record.operation == "delete":
            kept |= {name, *accounts[name].ids}
    return frozenset(kept)
