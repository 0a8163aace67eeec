"""Compute the library of experiences in force by folding the append-only history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.experiences.record import ExperienceRecord

_ID_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Library:
    """Experiences in force, in a stable order: a modified one keeps its position, a new one is last."""

    entries: tuple[ExperienceRecord, ...]

    @classmethod
    def of_ids(cls, records: Iterable[ExperienceRecord], ids: Sequence[str]) -> Self:
        """Return the library with these experiences, in the order of ``ids``, without the ids of no record.

        Of records with one id the first counts, as in the store.
        """
        wanted = set(ids)
        known: dict[str, ExperienceRecord] = {}
        for record in records:
            if record.experience_id in wanted:
                known.setdefault(record.experience_id, record)
        unique = dict.fromkeys(ids)
        return cls(tuple(known[name] for name in unique if name in known and known[name].operation != "delete"))

    @property
    def library_id(self) -> str:
        """Sixteen hex digits over ids, polarities and texts in their order; equal libraries have equal ids."""
        content = [[entry.experience_id, entry.polarity, entry.summary32] for entry in self.entries]
        return sha256_hex(canonical_json(content))[:_ID_DIGITS]


def fold(base: Library, records: Iterable[ExperienceRecord]) -> Library:
    """Return the library after these records, oldest first.

    A record replaces the first of its targets and removes the others; without targets in the library it is appended.
    A record that is in force already has no effect.
    """
    entries = {entry.experience_id: entry for entry in base.entries}
    for record in records:
        if record.experience_id not in entries:
            entries = _applied(entries, record)
    return Library(tuple(entries.values()))


def _applied(entries: dict[str, ExperienceRecord], record: ExperienceRecord) -> dict[str, ExperienceRecord]:
    leaving = [name for name in entries if name in record.supersedes]
    fresh = {} if record.operation == "delete" else {record.experience_id: record}
    if not leaving:
        return entries | fresh
    after: dict[str, ExperienceRecord] = {}
    for name, entry in entries.items():
        if name == leaving[0]:
            after |= fresh
        elif name not in leaving:
            after[name] = entry
    return after
