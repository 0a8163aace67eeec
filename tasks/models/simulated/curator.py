"""The curating role: say what each proposal means for the known lessons, merge equal ones, and sometimes make a mistake.

It goes by the texts and by how many groups speak for them; it does not know which advice is right.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, Field

from tfgrpo.stores.experiences.record import Polarity
from tfgrpo.stores.text import count_words
from tfgrpo.tasks.models.simulated.worlds.lexicon import Lexicon, Stance

USELESS_ACCEPTED = 0.15
"""Useless proposals that are taken for new lessons."""
WRONG_WAY_ROUND = 0.03
"""Subjects on which both sides are confused."""
INVALID = 0.03
"""Replies with an entry that cannot be carried out."""


class Entry(BaseModel, frozen=True):
    """A known lesson or a proposal."""

    id: str
    polarity: Polarity
    text: str
    support: float = 1.0
    """Groups behind a proposal."""
    in_favour: float = Field(default=0.0, alias="for")
    """Groups that spoke for a known lesson."""


class CurationAsk(BaseModel, frozen=True):
    """A curation request."""

    known: list[Entry]
    proposals: list[Entry]
    max_words: int = 32


@dataclass(slots=True)
class _Side:
    """The entries with the same advice on one subject."""

    known: list[Entry] = field(default_factory=list)
    proposals: list[Entry] = field(default_factory=list)

    @property
    def support(self) -> float:
        return sum(entry.support for entry in self.proposals)

    @property
    def strongest(self) -> Entry:
        """Return the lesson that says it, or the proposal that brings it in."""
        if self.known:
            return max(self.known, key=lambda entry: (entry.in_favour, entry.id))
        return max(self.proposals, key=lambda entry: (entry.support, -len(entry.text), entry.id))


def _entry(
    name: str, text: Entry | None = None, proposals: Sequence[Entry] = (), targets: Sequence[str] = ()
) -> dict[str, Any]:
    """Return one entry of the answer, with all its keys."""
    worded = {"polarity": "", "text": ""} if text is None else {"polarity": text.polarity, "text": text.text}
    return {"class": name, "proposals": [entry.id for entry in proposals], "targets": [*targets], **worded}


def curate(lexicon: Lexicon, ask: CurationAsk, rng: random.Random) -> dict[str, Any]:
    """Return what becomes of every proposal, most supported subjects first."""
    subjects, useless = _by_subject(lexicon, ask)
    answers: list[dict[str, Any]] = []
    for side in (side for subject in subjects for side in subject):
        for kind in ("do", "avoid"):  # lessons of two polarities are never one
            equal = [entry for entry in side.known if entry.polarity == kind]
            if len(equal) > 1:
                kept = max(equal, key=lambda entry: (entry.in_favour, entry.id))
                answers.append(_entry("merge", kept, targets=[entry.id for entry in equal]))
    for subject in sorted(subjects, key=lambda subject: -max(side.support for side in subject)):
        answers += _classes(subject, rng)
    for entry in useless:
        taken = rng.random() < USELESS_ACCEPTED
        answers.append(_entry("new", entry, [entry]) if taken else _entry("useless", proposals=[entry]))
    if rng.random() < INVALID:
        answers.append(_entry("confirms", targets=["L0-that-nobody-has"]))
    return {"answers": answers}


def _by_subject(lexicon: Lexicon, ask: CurationAsk) -> tuple[list[list[_Side]], list[Entry]]:
    """Return the sides of each subject, and the proposals without a subject or with too many words."""
    subjects: dict[str, dict[Stance, _Side]] = {}
    useless: list[Entry] = []
    for proposed, entries in enumerate((ask.known, ask.proposals)):
        for entry in entries:
            stances = lexicon.stances(entry.polarity, entry.text)
            if stances and count_words(entry.text) <= ask.max_words:
                name, stance = next(iter(stances.items()))
                side = subjects.setdefault(name, {}).setdefault(stance, _Side())
                (side.proposals if proposed else side.known).append(entry)
            elif proposed:
                useless.append(entry)
    return [list(subject.values()) for subject in subjects.values()], useless


def _classes(sides: list[_Side], rng: random.Random) -> list[dict[str, Any]]:
    """Return what all proposals on one subject confirm, contradict or bring in, rarely the wrong way round."""
    sides.sort(key=lambda side: (not side.known, -side.support))
    if rng.random() < WRONG_WAY_ROUND:
        sides = [_Side(side.known, other.proposals) for side, other in zip(sides, reversed(sides), strict=True)]
    answers: list[dict[str, Any]] = []
    spoken: list[str] = []
    for number, side in enumerate(sides):
        if not side.known and not side.proposals:
            continue
        others = [*spoken, *(other.strongest.id for other in sides[number + 1 :] if other.known)]
        if side.proposals and side.known:
            answers.append(_entry("confirms", None, side.proposals, [side.strongest.id]))
        if side.proposals and others:
            answers.append(_entry("contradicts", None, side.proposals, others))
        elif side.proposals and not side.known:
            answers.append(_entry("new", side.strongest, side.proposals))
        spoken.append(side.strongest.id)
    return answers
