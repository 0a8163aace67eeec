"""What comes into force where nothing can be learned, and what does not where something can.

Months of the proving ground, of which ``python -m benchmarks.worlds safety`` makes whole tables, and first nights of dry runs.
The runs of the unlearnable world are small; the same number of items mostly brings lessons into force in the arithmetic world.
Each run is a task of its own, and its simulated model has the seed of the run. ``python -m benchmarks safety``
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final

import tfgrpo
from benchmarks.table import Row
from benchmarks.worlds.figures import area, figure
from benchmarks.worlds.safety import nothing_to_gain

MONTHS, UNLEARNABLE, LEARNABLE = 30, 200, 10
"""Months of each kind, runs of the unlearnable world, and runs of each learnable one."""
SMALL: Final = 30
PIPELINES: Final = ("tfgrpo-learning", "benchmarks/ledger/pipeline.yaml", "benchmarks/powl/pipeline.yaml")
"""Pipelines of the worlds in which something can be learned."""
_MOST_LOST: Final = {"idle, twelve cost 4.0 points": 0.2, "rules of 6 of 56 learned items and of no other": 0.5}
"""Points a night."""
_MOST_FALSE: Final = 5.0
"""Percent of first nights with lessons in force where nothing can be learned: what 19 to 1 on all rows and 7 to 3 on held-out
ones let through, and three standard errors of two hundred runs."""


def measure(months: int = MONTHS, unlearnable: int = UNLEARNABLE, learnable: int = LEARNABLE) -> list[Row]:
    """Run all and count."""
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as executor:
        return [*_months(executor, months), *_first_nights(executor, unlearnable, learnable)]


def _months(executor: Executor, months: int) -> Iterator[Row]:
    for name, most in _MOST_LOST.items():
        courses = list(executor.map(partial(nothing_to_gain, name), range(months)))
        ever = sum(any(course.served) for course in courses)
        note = f"in force in {ever} of {months} months"
        yield Row(f"safety: {name}, lost a night", 0.0 - figure(map(area, courses)).mean, "points", most, note)


def _first_nights(executor: Executor, unlearnable: int, learnable: int) -> Iterator[Row]:
    small = {"tfgrpo.sample_size": SMALL}
    jobs = [(PIPELINES[0], seed, {**small, "simulated.world": "unlearnable"}) for seed in range(unlearnable)]
    in_force, seconds = zip(*executor.map(_run, jobs), strict=True)
    note = f"{sum(in_force)} of {unlearnable} runs of {SMALL} items an epoch, {sum(seconds):.0f} s CPU"
    yield Row("safety: in force where nothing can be learned", 100 * sum(in_force) / unlearnable, "%", _MOST_FALSE, note)
    sized = [(PIPELINES[0], seed, small) for seed in range(learnable)]
    yield replace(_missing("arithmetic in the same size", executor, sized), bar=None)
    for name in PIPELINES:
        yield _missing(name, executor, [(name, seed, {}) for seed in range(learnable)])


_Job = tuple[str, int, Mapping[str, str | int]]
"""A pipeline, the seed, and other settings."""


def _missing(name: str, executor: Executor, jobs: Sequence[_Job]) -> Row:
    in_force, seconds = zip(*executor.map(_run, jobs), strict=True)
    note = f"of {len(jobs)}, {sum(seconds):.0f} s CPU"
    return Row(f"safety: {name}, first nights with nothing in force", len(jobs) - sum(in_force), "runs", 0.0, note)


def _run(job: _Job) -> tuple[bool, float]:
    """Return whether lessons are in force after one run, and its seconds of CPU."""
    pipeline, seed, settings = job
    settings = {**settings, "simulated.seed": seed}
    began = time.process_time()
    with tempfile.TemporaryDirectory() as out:
        run = tfgrpo.learn(pipeline=pipeline, dry_run=True, seed=seed, settings=settings, out=out)
    return run.decision == "in force", time.process_time() - began
