"""A library of experiences, and the view of a task, ``state.json``.

The view is for people and other programs; of it, decisions read only which of them was the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.stores.files.atomic import is_signed_file, read_json, replace_signed

_ID_DIGITS = 16
LIBRARY_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Library:
    """Experiences in force, in the order of the prompt."""

    entries: tuple[ExperienceRecord, ...]

    @classmethod
    def of_ids(cls, records: Iterable[ExperienceRecord], ids: Sequence[str]) -> Self:
        """Return the library with these experiences, in the order of ``ids``, without the ids of no record.

        Of records with one id the first counts, as in the store.
        """
        known: dict[str, ExperienceRecord] = {}
        for record in records:
            known.setdefault(record.experience_id, record)
        return cls(tuple(known[name] for name in dict.fromkeys(ids) if name in known))

    @property
    def library_id(self) -> str:
        """Sixteen hex digits over ids, polarities and texts in their order; equal libraries have equal ids."""
        content = [[entry.experience_id, entry.polarity, entry.summary32] for entry in self.entries]
        return sha256_hex(canonical_json(content))[:_ID_DIGITS]


def write_state(
    path: Path,
    task_id: str,
    library: Library,
    *,
    last_run: str | None,
    newest: tuple[int, str] | None = None,
    simulated: bool = False,
    clock: Clock = utc_now,
) -> None:
    """Replace the view. ``library`` is what is in force; ``simulated``: it was learned with the simulated model.

    ``newest``: number and SHA-256 of the newest line of ``promotions.jsonl``.
    Raises ``StoreError`` when the disk refuses; the old view then stays.
    """
    lessons = [
        {"experience_id": entry.experience_id, "polarity": entry.polarity, "text": entry.summary32}
        for entry in library.entries
    ]
    replace_signed(
        path,
        {
            "schema_version": LIBRARY_SCHEMA,
            "task_id": task_id,
            "in_force": {"library_id": library.library_id, "simulated": simulated, "experiences": lessons},
            "decision": None if newest is None else {"number": newest[0], "sha256": newest[1]},
            "last_run": last_run,
            "updated_at": clock().isoformat(),
        },
    )


def read_state(path: Path) -> dict[str, Any] | None:
    """Return the view, or None without a whole one: it can be written again."""
    with suppress(CorruptFile, ValueError, LookupError, TypeError):  # half a surrogate pair is a ValueError
        content = read_json(path, "the view of a task")
        if content is not None and is_signed_file(path, content):
            newest = content["decision"] or {"number": 0, "sha256": ""}
            _ = content["task_id"], content["updated_at"], newest["number"], newest["sha256"]
            return content
    return None
