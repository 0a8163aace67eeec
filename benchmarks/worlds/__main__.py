"""Measure policies, what credit loses, or the product on the simulated service, and write the tables into the page.

``python -m benchmarks.worlds credit``, ``python -m benchmarks.worlds safety``, ``python -m benchmarks.worlds service``.
Takes all cores that the process may use.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Final

from benchmarks.worlds.engine import Course
from benchmarks.worlds.figures import Table, area, calls_per_point, figure, measure, nights_below, paired
from benchmarks.worlds.safety import measure_safety
from benchmarks.worlds.service import measure_service, service_lines
from benchmarks.worlds.table import CREDIT, POLICIES, SHIPPED, SHIPPED_AREAS, SHIPPED_COSTS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
_NIGHTS: Final = (1, 5, 10, 15, 20)
_PRICED: Final = ("plain", "noisy", "small", "opposed", "little insight")
"""Worlds in which the price of a point is stated."""


def main() -> None:
    """Measure and write the page."""
    began = time.process_time()
    name = (sys.argv[1:] or ["credit"])[0]
    if name not in _BLOCKS:
        raise SystemExit(f"no tables {name}; there are {', '.join(_BLOCKS)}")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as executor:
        blocks = _BLOCKS[name](executor)
    took = time.process_time() - began + os.times().children_user + os.times().children_system
    for block, rows in blocks.items():
        start, text = f"<!-- {block} -->\n", "\n".join(rows)
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(start)
        _, end, after = rest.partition("<!-- end -->")
        page = f"{before}{start}\n{text}\n\n{end}{after}"
        PAGE.write_text(page, encoding="utf-8")
    print(f"{name}: {took:.0f} s of CPU; {PAGE.name} is written")


def credit_lines(table: Table) -> Iterator[str]:
    """Yield the table of areas, one row a world, and credit's gain at the end of single nights."""
    others = [policy for policy in POLICIES if policy != CREDIT]
    nights = " / ".join(map(str, _NIGHTS))
    yield f"| world | {CREDIT} | {SHIPPED} | {' | '.join(others)} | credit minus the best other | credit, nights {nights} |"
    yield f"|{' --- |' * (len(others) + 5)}"
    for world, policies in table.items():
        ours = policies[CREDIT]
        areas = {policy: figure(map(area, policies[policy])) for policy in policies}
        best = max(others, key=lambda policy: areas[policy].mean)
        gains = " / ".join(f"{_gain(ours, night):.1f}" for night in _NIGHTS)
        cells = [areas[CREDIT], SHIPPED_AREAS.get(world, "–"), *(areas[policy] for policy in others)]
        yield f"| {world} | {' | '.join(map(str, cells))} | {paired(ours, policies[best], area)} | {gains} |"


def cost_lines(table: Table) -> Iterator[str]:
    """Yield what each policy costs, over all worlds of the table that have a figure of the form before credit."""
    yield (
        f"| policy | learner calls a night | calls per point: {' | '.join(_PRICED)} "
        "| nights below no lessons | changes for the worse | wrong lessons, night 10 |"
    )
    yield f"|{' --- |' * (len(_PRICED) + 5)}"
    rows = {policy: _costs(table, policy) for policy in POLICIES}
    for policy, costs in {CREDIT: rows.pop(CREDIT), SHIPPED: SHIPPED_COSTS, **rows}.items():
        yield f"| {policy} | {' | '.join(cell if isinstance(cell, str) else f'{cell:.3g}' for cell in costs)} |"


def _costs(table: Table, policy: str) -> tuple[float | str, ...]:
    courses = list(chain.from_iterable(table[world][policy] for world in table if world in SHIPPED_AREAS))
    prices = [calls_per_point(table[world][policy]) if world in table else None for world in _PRICED]
    return (
        figure(one.learner_calls / len(one.gain) for one in courses).mean,
        *("–" if price is None else f"{price:.0f}" for price in prices),
        *(figure(map(of, courses)).mean for of in (nights_below, _worse, _wrong)),
    )


def _worse(course: Course) -> int:
    return course.changes_for_the_worse


def _wrong(course: Course) -> int:
    return course.wrong[9]


def _gain(courses: Sequence[Course], night: int) -> float:
    return figure(one.gain[night - 1] for one in courses).mean


def _policies(executor: Executor) -> dict[str, list[str]]:
    table = measure(executor)
    return {"credit": list(credit_lines(table)), "costs": list(cost_lines(table))}


_BLOCKS: Final[Mapping[str, Callable[[Executor], Mapping[str, Sequence[str]]]]] = {
    "credit": _policies,
    "safety": measure_safety,
    "service": lambda executor: {"service": list(service_lines(measure_service(executor)))},
}


if __name__ == "__main__":
    main()
