"""What becomes of the library? The curating role merges what says the same, refuses what helps nobody, errs at times.

It judges by what texts say and how many groups said it; it knows no more about the truth than that.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tfgrpo.stores.experiences.record import Polarity
from tfgrpo.stores.text import count_words
from tfgrpo.tasks.models.simulated.roles.lexicon import Lexicon, Stance

USELESS_ACCEPTED = 0.15
"""Proposals that help nobody and get in all the same."""
SIDES_WITH_THE_FEW = 0.03
"""Subjects on which the side with less support is believed."""
INVALID = 0.03
"""Replies with an operation that cannot be carried out."""

Op = Literal["add", "modify", "merge", "delete", "keep"]


class Entry(BaseModel):
    """A lesson in the library, or one proposed."""

    model_config = ConfigDict(frozen=True)

    id: str
    polarity: Polarity
    text: str
    support: int = 1


class CurationAsk(BaseModel):
    """What the curating role is asked."""

    model_config = ConfigDict(frozen=True)

    library: list[Entry]
    proposals: list[Entry]
    rejected_before: list[str] = Field(default_factory=list)
    capacity: int = Field(default=12, ge=0)
    edit_budget: int = Field(default=12, ge=0)
    max_words: int = 32


@dataclass(slots=True)
class _Side:
    """Those who say the same about one subject."""

    library: list[Entry] = field(default_factory=list)
    proposals: list[Entry] = field(default_factory=list)

    @property
    def support(self) -> int:
        return sum(entry.support for entry in (*self.library, *self.proposals))

    def best(self) -> Entry:
        """The proposal most groups stand behind."""
        return max(self.proposals, key=lambda entry: (entry.support, -len(entry.text), entry.id))


_Subject = dict[Stance, _Side]


def operation(
    op: Op, entry: Entry | None = None, *, targets: Sequence[str] = (), sources: Sequence[str] = ()
) -> dict[str, Any]:
    """One operation with all its keys."""
    return {
        "op": op,
        "targets": list(targets),
        "from": list(sources),
        "polarity": "do" if entry is None else entry.polarity,
        "text": "" if entry is None else entry.text,
    }


def _ids(entries: Iterable[Entry]) -> list[str]:
    return [entry.id for entry in entries]


class _Desk:
    """The operations written so far, within what capacity and edit budget leave."""

    def __init__(self, ask: CurationAsk) -> None:
        self.operations: list[dict[str, Any]] = []
        self._budget = ask.edit_budget
        self._room = ask.capacity - len(ask.library)

    def edit(self, operation: dict[str, Any], *, grows: int) -> bool:
        """Write an operation if it fits, and say whether it did."""
        if self._budget < 1 or grows > max(self._room, 0):
            return False
        self._budget -= 1
        self._room -= grows
        self.operations.append(operation)
        return True

    @property
    def full(self) -> bool:
        """Whether the library takes no more lessons."""
        return self._room < 1

    def note(self, operation: dict[str, Any]) -> None:
        """Write an operation that edits nothing."""
        self.operations.append(operation)


def _sorted_out(lexicon: Lexicon, ask: CurationAsk) -> tuple[dict[str, _Subject], list[Entry], list[Entry]]:
    """Entries by subject and side; then the library entries and the proposals that are about nothing."""
    refused = {text.casefold() for text in ask.rejected_before}
    proposals = [p for p in ask.proposals if p.text.casefold() not in refused and count_words(p.text) <= ask.max_words]
    subjects: dict[str, _Subject] = {}
    idle: tuple[list[Entry], list[Entry]] = ([], [])
    for place, entries in enumerate((ask.library, proposals)):
        for entry in entries:
            stances = lexicon.stances(entry.polarity, entry.text)
            if not stances:
                idle[place].append(entry)
                continue
            name, stance = next(iter(stances.items()))
            side = subjects.setdefault(name, {}).setdefault(stance, _Side())
            (side.proposals if place else side.library).append(entry)
    return subjects, *idle


def _believed(subject: _Subject, rng: random.Random) -> _Side | None:
    """The side with more support; None when both have the same."""
    sides = sorted(subject.values(), key=lambda side: side.support, reverse=True)
    if len(sides) == 1:
        return sides[0]
    if rng.random() < SIDES_WITH_THE_FEW:
        return sides[1]
    return None if sides[0].support == sides[1].support else sides[0]


def _settle(desk: _Desk, subject: _Subject, idle: list[Entry], rng: random.Random) -> None:
    """Decide about one subject."""
    side = _believed(subject, rng)
    if side is None or not side.proposals:
        return
    best, sources = side.best(), _ids(side.proposals)
    others = [entry for other in subject.values() if other is not side for entry in other.library]
    if side.library:
        desk.note(operation("keep", targets=_ids(side.library[:1]), sources=sources))
    elif others:
        desk.edit(operation("modify", best, targets=_ids(others[:1]), sources=sources), grows=0)
    else:
        added = operation("add", best, sources=sources)
        if desk.full and idle:
            desk.edit(operation("delete", targets=[idle.pop().id]), grows=-1)
        desk.edit(added, grows=1)


def curate(lexicon: Lexicon, ask: CurationAsk, rng: random.Random) -> dict[str, Any]:
    """Operations on the library, most supported subjects first."""
    subjects, idle, useless = _sorted_out(lexicon, ask)
    desk = _Desk(ask)
    for side in (side for subject in subjects.values() for side in subject.values() if len(side.library) > 1):
        kept = max(side.library, key=lambda entry: (entry.support, entry.id))
        desk.edit(operation("merge", kept, targets=_ids(side.library)), grows=1 - len(side.library))
        side.library = [kept]
    for subject in sorted(subjects.values(), key=lambda subject: -max(side.support for side in subject.values())):
        _settle(desk, subject, idle, rng)
    for entry in useless:
        if rng.random() < USELESS_ACCEPTED:
            desk.edit(operation("add", entry, sources=[entry.id]), grows=1)
    if rng.random() < INVALID:
        desk.note(operation("delete", targets=["L0-that-nobody-has"]))
    return {"operations": desk.operations}
