"""Time of ``record_batch`` of 100 records, in an empty store and in one of 10,000, and of ``fetch_top`` from the latter.

Both stores are open before the clock runs. Each turn stores one batch in a new store, after a first one that opens it,
and one in the large store; the ratio is that of the medians. What opening the large store costs is a row of its own.
The first fetch is by a new object, which reads the file and checks every stamp.

``python -m benchmarks store``
"""

from __future__ import annotations

import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.table import Row
from tfgrpo.stores.experiences.store import ExperienceRecord, ExperienceStore, PackStamp, Reward, stamp_record
from tfgrpo.stores.files.lines import LineFile

STORED, BATCH, REPEATS = 10_000, 100, 25
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


def fetch_seconds(folder: Path, repeats: int) -> tuple[float, float]:
    """Median wall time of the first fetch of ten by a new object, and of one after it."""
    first: list[float] = []
    again: list[float] = []
    for _ in range(max(1, repeats // 5)):
        store = open_store(folder)
        for samples in (first, *[again] * 5):
            start = time.perf_counter()
            store.fetch_top("arithmetic", 10)
            samples.append(time.perf_counter() - start)
    return statistics.median(first), statistics.median(again)


def measure(stored: int = STORED, repeats: int = REPEATS) -> list[Row]:
    """Fill the large store, then take turns."""
    small: list[float] = []
    large: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for start in range(0, stored, 10_000):
            old = (record(f"old-{start + number}") for number in range(min(10_000, stored - start)))
            LineFile(folder / "large" / "experiences.jsonl").append(each.model_dump(mode="json") for each in old)
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
        first, again = fetch_seconds(folder / "large", repeats)
    ratio = statistics.median(large) / statistics.median(small)
    return [
        Row(f"store: batch of {BATCH}, full / empty", ratio, "x", SAME, f"{stored:,} records against none"),
        Row("store: batch in the empty one", 1e3 * statistics.median(small), "ms"),
        Row(f"store: batch in one of {stored:,}", 1e3 * statistics.median(large), "ms"),
        Row(f"store: opening one of {stored:,}", 1e3 * opening, "ms", note="once per process, with the first batch"),
        Row(f"store: first fetch of ten of {stored:,}", first, "s", 4.0, "reads the file, checks every stamp"),
        Row("store: fetch of ten, again", 1e3 * again, "ms", 1.0),
    ]
