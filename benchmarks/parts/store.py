"""Time of ``record_batch`` of 100 records, in an empty store and in one of 100,000.

Both stores are open before the clock runs. Each turn stores one batch in a new store, after a first one that opens it,
and one in the large store; the ratio is that of the medians. What opening the large store costs is a row of its own.

``python -m benchmarks.parts.store``
"""

from __future__ import annotations

import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.table import Row, table
from tfgrpo.stores.experiences.record import ExperienceRecord, PackStamp, Reward, stamp_record
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.atomic import append_lines

STORED, BATCH, REPEATS = 100_000, 100, 25
SAME = 1.25
"""Ratio up to which two medians on a busy machine count as the same; a cost that grew with the store would be 1,000."""
PACK = PackStamp("arithmetic", "a" * 64, "2026-01-01T00:00:00+00:00")
_NOW = datetime(2026, 1, 2, tzinfo=UTC)
_MANIFEST = Path("out/bench/runs/bench/manifest.json")


def record(name: str) -> ExperienceRecord:
    """A stamped record of ordinary size."""
    unsigned = ExperienceRecord(
        experience_id=f"exp-{name}",
        run_id="bench",
        task_id="bench",
        domain="arithmetic",
        pack_id=PACK.pack_id,
        epoch=1,
        batch=0,
        group_id=f"g{name}",
        operation="add",
        summary32=f"Convert every amount to one unit before adding, and keep all digits of quotient {name} until the end.",
        polarity="do",
        reward=Reward(gt_score=1.0, relative_rank=1.0),
        evidence=tuple(f"g{name}/{index}" for index in range(5)),
        stamp_signature="",
        created_at=_NOW,
    )
    return stamp_record(unsigned, PACK)


def batch(name: str, size: int = BATCH) -> list[ExperienceRecord]:
    """Records that no other batch holds."""
    return [record(f"{name}-{number}") for number in range(size)]


def open_store(folder: Path) -> ExperienceStore:
    """A store under a folder of its own."""
    return ExperienceStore(folder / "experiences.jsonl", approved={PACK.pack_id: PACK})


def seconds(store: ExperienceStore, records: list[ExperienceRecord]) -> float:
    """Wall time of storing a batch."""
    start = time.perf_counter()
    store.record_batch(records, _MANIFEST)
    return time.perf_counter() - start


def measure(stored: int = STORED, repeats: int = REPEATS) -> list[Row]:
    """Fill the large store, then take turns."""
    small: list[float] = []
    large: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for start in range(0, stored, 10_000):
            lines = [record(f"old-{start + number}").model_dump_json() for number in range(min(10_000, stored - start))]
            append_lines(folder / "large" / "experiences.jsonl", lines)
        full = open_store(folder / "large")
        opening = seconds(full, batch("opening"))
        for turn in range(repeats):
            empty = open_store(folder / f"small{turn}")
            seconds(empty, batch("first"))
            records = batch(f"turn{turn}")
            # Whoever comes second finds the disk warm, so they swap.
            pairs = [(empty, small), (full, large)]
            for store, samples in pairs if turn % 2 else reversed(pairs):
                samples.append(seconds(store, records))
    ratio = statistics.median(large) / statistics.median(small)
    return [
        Row(f"store: batch of {BATCH}, full / empty", ratio, "x", SAME, f"{stored:,} records against none"),
        Row("store: batch in the empty one", 1e3 * statistics.median(small), "ms"),
        Row(f"store: batch in one of {stored:,}", 1e3 * statistics.median(large), "ms"),
        Row(f"store: opening one of {stored:,}", 1e3 * opening, "ms", note="once per process, with the first batch"),
    ]


def main() -> None:
    """Print the table."""
    print(table(measure()))


if __name__ == "__main__":
    main()
