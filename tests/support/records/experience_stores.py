"""Open an experience store in a folder, with a fixed clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.support.records.records import APPROVED, NOW, PACK
from tfgrpo.stores.experiences.record import ExperienceRecord, PackStamp
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.lines import LineFile

MANIFEST = Path("out/task-1/runs/run-1/manifest.json")


def open_store(folder: Path, **options: Any) -> ExperienceStore:
    arguments: dict[str, Any] = {"approved": APPROVED, "clock": lambda: NOW, **options}
    return ExperienceStore(folder / "experiences.jsonl", **arguments)


def ids(records: Iterable[ExperienceRecord]) -> list[str]:
    return [record.experience_id for record in records]


STALE = dataclasses.replace(PACK, stamp="b" * 64)
UNKNOWN = PackStamp("unknown-pack", "c" * 64, "2026-01-01T00:00:00+00:00")


def append_by_hand(store: ExperienceStore, *records: ExperienceRecord) -> None:
    """Append lines that the store itself would refuse."""
    LineFile(store.path).append(record.model_dump(mode="json") for record in records)
