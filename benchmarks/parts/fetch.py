"""Fetch the best ten lessons of a store of 1,000,000 records: time in a new process and after that, and peak memory.

Three processes: one that builds the index from nothing, one for which the index is there, and one that reads all records.

``python -m benchmarks.parts.fetch``
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.parts.store import PACK, record
from benchmarks.processes import ROOT
from benchmarks.table import Row, table
from tfgrpo.stores.experiences.record import sign_record
from tfgrpo.stores.files.atomic import append_lines

STORED, BATCH, WARM = 1_000_000, 10_000, 20
_CHILD = """
import json, re, statistics, sys, time
from pathlib import Path
from benchmarks.parts.store import open_store

def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start

store = open_store(Path(sys.argv[1]))
if sys.argv[2] == "all":
    cold, warm = seconds(lambda: sum(1 for _ in store.records())), 0.0
else:
    best = lambda: store.fetch_top("arithmetic", 10)
    cold, warm = seconds(best), statistics.median(seconds(best) for _ in range(int(sys.argv[2])))
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1e3
print(json.dumps({"cold": cold, "warm": warm, "peak": peak}))
"""


def lines(count: int) -> Iterator[str]:
    """Lines of stamped records, some better supported than others, every third superseded by the one after it."""
    template: dict[str, Any] = record("0").model_dump(mode="json")
    before = ""
    for number in range(count):
        name = f"exp-{number * 2_654_435_761 % (1 << 32):08x}-{number}"
        later = number % 3 == 2
        fields = {
            **template,
            "experience_id": name,
            "group_id": f"g{number}",
            "operation": "modify" if later else "add",
            "supersedes": [before] if later else [],
            "evidence": [f"g{number}-{group}/0" for group in range(number % 7)],
            "summary32": template["summary32"].replace(" 0 ", f" {number} "),
        }
        before = name
        yield json.dumps({**fields, "stamp_signature": sign_record(fields, PACK)}, separators=(",", ":"))


def fill(folder: Path, count: int) -> None:
    """Write a store of so many records."""
    batch: list[str] = []
    for line in lines(count):
        batch.append(line)
        if len(batch) == BATCH:
            append_lines(folder / "experiences.jsonl", batch)
            batch = []
    append_lines(folder / "experiences.jsonl", batch)


def child(folder: Path, what: str) -> dict[str, float]:
    """Figures of a process of its own that fetches so often, or reads ``all`` records."""
    command = [sys.executable, "-c", _CHILD, str(folder), what]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    figures: dict[str, float] = json.loads(said)
    return figures


def measure(stored: int = STORED) -> list[Row]:
    """Fill the store, then ask."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder, stored)
        built, later, through = child(folder, "1"), child(folder, str(WARM)), child(folder, "all")
    of = f"of {stored:,}"
    return [
        Row(f"fetch: ten {of}, new process", later["cold"], "s", 1.0),
        Row(f"fetch: ten {of}, again", 1e3 * later["warm"], "ms", 10.0),
        Row(f"fetch: peak of that process {of}", later["peak"], "MB", 250.0),
        Row(f"fetch: building the index {of}", built["cold"], "s", note="once, and after its pack was edited"),
        Row("fetch: peak of building it", built["peak"], "MB", 250.0),
        Row(f"fetch: reading all {of}, one by one", through["cold"], "s", note="`list --all`, `verify`"),
        Row("fetch: peak of reading all", through["peak"], "MB", 250.0),
    ]


def main() -> None:
    """Print the table."""
    print(table(measure()))


if __name__ == "__main__":
    main()
