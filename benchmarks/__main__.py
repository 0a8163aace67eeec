"""Run every benchmark, one after another, and end with one table: ``python -m benchmarks [name …]``.

Exit code 1 when a bar is missed, so that whoever waits for it need not read the table.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from benchmarks.table import Row, known, measured_rows, missed, table


def main() -> int:
    """Run those named, or all, whether their bars hold or not. Returns the exit code."""
    names = sys.argv[1:] or list(known())
    unknown = [name for name in names if name not in known()]
    if unknown:
        raise SystemExit(f"no benchmark {', '.join(unknown)}; there are {', '.join(known())}")
    rows = [row for name in names for row in _measured(name)]
    print(f"\n{table(rows)}")
    lost = list(missed(rows))
    print(f"\n{len(lost)} bar(s) missed" if lost else "\nevery bar held")
    return 1 if lost else 0


def _measured(name: str) -> Iterator[Row]:
    began = time.perf_counter()
    # A process starts with the peak memory of its parent, so that a benchmark must not inherit that of the one before.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as own_process:
        rows = own_process.submit(measured_rows, name).result()
    print(f"{name}, {time.perf_counter() - began:.0f} s\n{table(rows)}\n", file=sys.stderr, flush=True)
    yield from rows


if __name__ == "__main__":
    sys.exit(main())
