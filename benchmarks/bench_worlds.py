"""Gains of learning policies in worlds of known truth, in a few seeds: ``python -m benchmarks.bench_worlds``.

The whole table, with every policy, night and interval, is made by ``python -m benchmarks.worlds``.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from benchmarks.table import Row, table
from benchmarks.worlds.figures import Table, area
from benchmarks.worlds.figures import measure as measure_policies
from benchmarks.worlds.policies import LOOP
from benchmarks.worlds.world import WORLDS

SEEDS = 10


def measure(seeds: int = SEEDS, worlds: Sequence[str] = tuple(WORLDS)) -> list[Row]:
    """Run every policy and state what the loop that ships loses against the best other one."""
    with ProcessPoolExecutor(os.cpu_count()) as executor:
        return list(_rows(measure_policies(executor, seeds, worlds)))


def _rows(courses: Table) -> Iterator[Row]:
    for world, policies in courses.items():
        areas = {policy: statistics.mean(map(area, of_policy)) for policy, of_policy in policies.items()}
        other = max((policy for policy in areas if policy != LOOP), key=areas.__getitem__)
        lost = areas[other] - areas[LOOP]
        yield Row(f"worlds: {world}, lost to the best", lost, "points", note=f"{other}: {WORLDS[world].description}")
    worst = min(min(course.gain) for course in courses["unlearnable"][LOOP])
    yield Row("worlds: below no lessons where nothing is learned", -worst, "points", 0.0, "worst night of all seeds")


def main() -> None:
    """Print the table."""
    print(table(measure()))


if __name__ == "__main__":
    main()
