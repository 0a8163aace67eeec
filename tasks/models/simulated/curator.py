"""The curating role: merge lessons with the same advice, refuse useless ones, and sometimes make a mistake.

It decides by the texts and by how many groups support them; it does not know which advice is right. Asked for classes
(``rejected_before`` then counts its texts), it says of every proposal which lesson it confirms or contradicts.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, Field

from tfgrpo.stores.experiences.record import Polarity
from tfgrpo.stores.text import count_words
from tfgrpo.tasks.models.simulated.worlds.lexicon import Lexicon, Stance

USELESS_ACCEPTED = 0.15
"""Useless proposals that are added."""
MINORITY_WINS = 0.03
"""Subjects on which the side with less support wins."""
INVALID = 0.03
"""Replies with an operation that cannot be applied."""


class Entry(BaseModel, frozen=True):
    """A lesson of the library or a proposal."""

    id: str
    polarity: Polarity
    text: str
    support: int = 1
    """Groups that taught it."""
    in_favour: float | None = Field(default=None, alias="for")
    """The same, of a lesson with an account."""


class CurationAsk(BaseModel, frozen=True):
    """A curation request."""

    library: list[Entry]
    proposals: list[Entry]
    rejected_before: list[str] | dict[str, int] = Field(default_factory=list)
    capacity: int = Field(default=12, ge=0)
    edit_budget: int = Field(default=12, ge=0)
    max_words: int = 32


@dataclass(slots=True)
class _Side:
    """The entries with the same advice on one subject."""

    library: list[Entry] = field(default_factory=list)
    proposals: list[Entry] = field(default_factory=list)

    @property
    def support(self) -> int:
        return sum(entry.support for entry in (*self.library, *self.proposals))

    @property
    def speaker(self) -> str:
        """Id of the lesson that says it, or of the proposal that brings it in."""
        return max(self.library, key=lambda each: each.in_favour or 0.0).id if self.library else self.best().id

    def best(self) -> Entry:
        """Return the proposal with most support."""
        return max(self.proposals, key=lambda entry: (entry.support, -len(entry.text), entry.id))


_Subject = dict[Stance, _Side]


def _ids(entries: Iterable[Entry]) -> list[str]:
    return [entry.id for entry in entries]


class _Operations:
    """The operations so far, within the capacity and the edit budget."""

    def __init__(self, ask: CurationAsk) -> None:
        self.done: list[dict[str, Any]] = []
        self._budget = ask.edit_budget
        self.room = ask.capacity - len(ask.library)

    def add(
        self,
        op: str,
        entry: Entry | None = None,
        *,
        targets: Sequence[str] = (),
        sources: Sequence[str] = (),
        grows: int | None = None,
    ) -> None:
        """Add an operation with all its keys. One by which the library ``grows`` needs budget and capacity."""
        if grows is not None:
            if self._budget < 1 or grows > max(self.room, 0):
                return
            self._budget -= 1
            self.room -= grows
        polarity, text = ("do", "") if entry is None else (entry.polarity, entry.text)
        self.done.append({"op": op, "targets": [*targets], "from": [*sources], "polarity": polarity, "text": text})


def _by_subject(lexicon: Lexicon, ask: CurationAsk) -> tuple[dict[str, _Subject], list[Entry], list[Entry]]:
    """Return the entries by subject and side, then the library entries and the proposals without a subject."""
    refused = set() if isinstance(ask.rejected_before, dict) else {text.casefold() for text in ask.rejected_before}
    proposals = [p for p in ask.proposals if p.text.casefold() not in refused and count_words(p.text) <= ask.max_words]
    subjects: dict[str, _Subject] = {}
    idle: tuple[list[Entry], list[Entry]] = ([], [])
    for proposed, entries in enumerate((ask.library, proposals)):
        for entry in entries:
            stances = lexicon.stances(entry.polarity, entry.text)
            if not stances:
                idle[proposed].append(entry)
                continue
            name, stance = next(iter(stances.items()))
            side = subjects.setdefault(name, {}).setdefault(stance, _Side())
            (side.proposals if proposed else side.library).append(entry)
    return subjects, *idle


def _winner(subject: _Subject, rng: random.Random) -> _Side | None:
    """Return the side with more support; None when both have the same."""
    sides = sorted(subject.values(), key=lambda side: side.support, reverse=True)
    if len(sides) == 1:
        return sides[0]
    if rng.random() < MINORITY_WINS:
        return sides[1]
    return None if sides[0].support == sides[1].support else sides[0]


def _settle(operations: _Operations, subject: _Subject, idle: list[Entry], rng: random.Random) -> None:
    """Decide on one subject."""
    side = _winner(subject, rng)
    if side is None or not side.proposals:
        return
    best, sources = side.best(), _ids(side.proposals)
    others = [entry for other in subject.values() if other is not side for entry in other.library]
    if side.library:
        operations.add("keep", targets=_ids(side.library[:1]), sources=sources)
    elif others:
        operations.add("modify", best, targets=_ids(others[:1]), sources=sources, grows=0)
    else:
        if operations.room < 1 and idle:
            operations.add("delete", targets=[idle.pop().id], grows=-1)
        operations.add("add", best, sources=sources, grows=1)


def _class(operations: _Operations, subject: _Subject, rng: random.Random) -> None:
    """Say of all proposals on one subject what they confirm, contradict or bring in, rarely the wrong way round."""
    sides = sorted(subject.values(), key=lambda side: (not side.library, -side.support))
    if rng.random() < MINORITY_WINS:
        sides = [_Side(side.library, other.proposals) for side, other in zip(sides, reversed(sides), strict=True)]
    speakers: list[str] = []
    for number, side in enumerate(sides):
        sources = _ids(side.proposals)
        others = [*speakers, *(other.speaker for other in sides[number + 1 :] if other.library)]
        if sources and side.library:
            operations.add("confirm", targets=[side.speaker], sources=sources)
        if sources and others:
            operations.add("contradict", None if side.library else side.best(), targets=others, sources=sources)
        elif sources and not side.library:
            operations.add("add", side.best(), sources=sources, grows=0)
        if side.library or sources:
            speakers.append(side.speaker)


def curate(lexicon: Lexicon, ask: CurationAsk, rng: random.Random) -> dict[str, Any]:
    """Return operations on the library, most supported subjects first."""
    subjects, idle, useless = _by_subject(lexicon, ask)
    operations = _Operations(ask)
    for side in (side for subject in subjects.values() for side in subject.values() if len(side.library) > 1):
        kept = max(side.library, key=lambda entry: (entry.in_favour or 0.0, entry.support, entry.id))
        operations.add("merge", kept, targets=_ids(side.library), grows=1 - len(side.library))
        side.library = [kept]
    classes = isinstance(ask.rejected_before, dict)
    for subject in sorted(subjects.values(), key=lambda subject: -max(side.support for side in subject.values())):
        if classes:
            _class(operations, subject, rng)
        else:
            _settle(operations, subject, idle, rng)
    for entry in useless:
        if rng.random() < USELESS_ACCEPTED:
            operations.add("add", entry, sources=[entry.id], grows=1)
        elif classes:
            operations.add("useless", sources=[entry.id])
    if rng.random() < INVALID:
        operations.add("delete", targets=["L0-that-nobody-has"])
    return {"operations": operations.done}
