"""Compute the library of experiences in force by folding the append-only history, and write ``state.json``.

That file is a view of a task for people and other programs; no decision reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.stores.files.atomic import replace_json

_ID_DIGITS = 16
SCHEMA_VERSION = 1


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


def write_state(
    path: Path,
    task_id: str,
    champion: Library,
    *,
    last_run: str | None,
    simulated: bool = False,
    clock: Clock = utc_now,
) -> None:
    """Replace the view. ``simulated``: the champion was learned with the simulated model.

    Raises ``StoreError`` when the disk refuses; the old view then stays.
    """
    lessons = [
        {"experience_id": entry.experience_id, "polarity": entry.polarity, "text": entry.summary32}
        for entry in champion.entries
    ]
    replace_json(
        path,
        {
            "schema_version": SCHEMA_VERSION,
            "task_id": task_id,
            "champion": {"library_id": champion.library_id, "simulated": simulated, "experiences": lessons},
            "last_run": last_run,
            "updated_at": clock().isoformat(),
        },
    )


def read_state(path: Path) -> dict[str, Any] | None:
    """Return the view, or None without a file. Raises ``CorruptFile`` when it is not a JSON object."""
    try:
        state = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CorruptFile(f"{path}: {error}") from error
    if not isinstance(state, dict):
        raise CorruptFile(f"{path}: not an object")
    return state
