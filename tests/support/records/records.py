"""Build experience records that verify under a stamped prompt pack, and a store of them."""

import dataclasses
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tfgrpo.stores.experiences.store import ExperienceRecord, ExperienceStore, PackStamp, Reward, stamp_record
from tfgrpo.stores.files.lines import LineFile

PACK = PackStamp(pack_id="general", stamp="a" * 64, stamped_at="2026-01-01T00:00:00+00:00")
APPROVED = {"general": PACK}
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def make_record(
    name: str = "exp-1", *, pack: PackStamp = PACK, score: float = 1.0, rank: float = 1.0, **changes: Any
) -> ExperienceRecord:
    """Return a record that verifies under ``pack``; ``changes`` are fields, set before it is stamped."""
    fields: dict[str, Any] = {
        "experience_id": name,
        "run_id": "run-1",
        "task_id": "task-1",
        "domain": "general",
        "pack_id": pack.pack_id,
        "epoch": 1,
        "batch": 0,
        "group_id": "g1",
        "operation": "add",
        "summary32": f"Check the units of {name}.",
        "polarity": "do",
        "reward": Reward(gt_score=score, relative_rank=rank),
        "evidence": ("g1/0",),
        "stamp_signature": "",
        "created_at": NOW,
    }
    return stamp_record(ExperienceRecord(**{**fields, **changes}), pack)


def make_batch(count: int, *, prefix: str = "exp", **changes: Any) -> list[ExperienceRecord]:
    """Return records with ids ``<prefix>-0`` and so on."""
    return [make_record(f"{prefix}-{number}", **changes) for number in range(count)]


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
