"""Gains of learning policies in worlds of known truth, in a few seeds: ``python -m benchmarks worlds``.

The product itself learns on the simulated service, in fewer seeds still. The whole tables, with intervals, are made by
``python -m benchmarks.worlds credit`` and ``python -m benchmarks.worlds service``.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor

from benchmarks.table import Row
from benchmarks.worlds.figures import Table, area
from benchmarks.worlds.figures import measure as measure_policies
from benchmarks.worlds.service import DRIFT, Served, measure_service
from benchmarks.worlds.table import CREDIT
from benchmarks.worlds.world import WORLDS

SEEDS, SERVED_SEEDS = 10, 3


def measure(seeds: int = SEEDS, worlds: Sequence[str] = tuple(WORLDS), served: int = SERVED_SEEDS) -> list[Row]:
    """Run every policy and state what credit loses against the best other one; then run the product."""
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as executor:
        rows = list(_rows(measure_policies(executor, seeds, worlds)))
        return rows + (list(_product(measure_service(executor, served))) if served else [])


def _product(table: Mapping[str, Sequence[Served]]) -> Iterator[Row]:
    night = {"drift": DRIFT - 1}  # the last one whose lessons had the time to be right
    wrong = {name: statistics.mean(one.wrong[night.get(name, -1)] for one in of) for name, of in table.items()}
    gains = ", ".join(f"{name} {statistics.mean(one.gain[-1] for one in of):+.1f}" for name, of in table.items())
    yield Row("worlds: the product, lessons that do not help, in the worst world", max(wrong.values()), "lessons", note=gains)
    lost = 0.0 - statistics.mean(statistics.mean(one.gain) for one in table["unlearnable"])
    yield Row("worlds: the product, below no lessons where nothing is learned", lost, "points", 1.0)


def _rows(courses: Table) -> Iterator[Row]:
    for world, policies in courses.items():
        areas = {policy: statistics.mean(map(area, of_policy)) for policy, of_policy in policies.items()}
        other = max((policy for policy in areas if policy != CREDIT), key=areas.__getitem__)
        lost = areas[other] - areas[CREDIT]
        yield Row(f"worlds: {world}, lost to the best", lost, "points", note=f"{other}: {WORLDS[world].description}")
    lost = 0.0 - statistics.mean(map(area, courses["unlearnable"][CREDIT]))
    yield Row("worlds: below no lessons where nothing is learned", lost, "points", 0.1, "mean of all nights and seeds")
