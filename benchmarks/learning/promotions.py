"""Promotions of dry runs: none where nothing can be learned, one for every seed where something can.

The runs of the unlearnable world are small; the same number of items mostly promotes in the arithmetic world. Each
run is a task of its own, and its simulated model has the seed of the run. ``python -m benchmarks.learning.promotions``
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from typing import Final

import tfgrpo
from benchmarks.table import Row, table

UNLEARNABLE, LEARNABLE = 200, 10
"""Runs of the unlearnable world, and of each learnable one."""
SMALL: Final = 30
PIPELINES: Final = ("tfgrpo-learning", "ledger-tools", "powl")
"""Shipped pipelines of the worlds in which something can be learned."""


def measure(unlearnable: int = UNLEARNABLE, learnable: int = LEARNABLE) -> list[Row]:
    """Run all and count."""
    with ProcessPoolExecutor(os.cpu_count()) as executor:
        return list(_rows(executor, unlearnable, learnable))


def _rows(executor: Executor, unlearnable: int, learnable: int) -> Iterator[Row]:
    small = {"tfgrpo.sample_size": SMALL}
    jobs = [(PIPELINES[0], seed, {**small, "simulated.world": "unlearnable"}) for seed in range(unlearnable)]
    promoted, seconds = zip(*executor.map(_run, jobs), strict=True)
    note = f"of {unlearnable} runs of {SMALL} items an epoch, {sum(seconds):.0f} s CPU"
    yield Row("promotions: unlearnable", sum(promoted), "runs", 0.0, note)
    sized = [(PIPELINES[0], seed, small) for seed in range(learnable)]
    yield replace(_missing("arithmetic in the same size", executor, sized), bar=None)
    for name in PIPELINES:
        yield _missing(f"{name}.yaml", executor, [(name, seed, {}) for seed in range(learnable)])


_Job = tuple[str, int, Mapping[str, str | int]]
"""A shipped pipeline, the seed, and other settings."""


def _missing(name: str, executor: Executor, jobs: Sequence[_Job]) -> Row:
    promoted, seconds = zip(*executor.map(_run, jobs), strict=True)
    note = f"of {len(jobs)}, {sum(seconds):.0f} s CPU"
    return Row(f"promotions: {name}, seeds without one", len(jobs) - sum(promoted), "runs", 0.0, note)


def _run(job: _Job) -> tuple[bool, float]:
    """Return whether one run promoted, and its seconds of CPU."""
    pipeline, seed, settings = job
    settings = {**settings, "simulated.seed": seed}
    began = time.process_time()
    with tempfile.TemporaryDirectory() as out:
        run = tfgrpo.learn(pipeline=pipeline, dry_run=True, seed=seed, settings=settings, out=out)
    return run.decision == "promote", time.process_time() - began


def main() -> None:
    """Print the table."""
    print(table(measure()))


if __name__ == "__main__":
    main()
