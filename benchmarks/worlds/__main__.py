"""Measure all policies, credit, or the product on the simulated service, and write the tables into ``docs/benchmarks.md``.

``python -m benchmarks.worlds``, ``python -m benchmarks.worlds credit``, ``python -m benchmarks.worlds service``
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import Final

from benchmarks.worlds.engine import Course
from benchmarks.worlds.figures import Table, area, calls_per_point, figure, measure, nights_below, paired
from benchmarks.worlds.service import measure_service, service_lines
from benchmarks.worlds.table import COMPARED, CREDIT, LOOP
from benchmarks.worlds.world import VARIANTS, WORLDS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
_NIGHTS: Final = (1, 3, 5, 10, 11, 15, 20)
_CREDIT_NIGHTS: Final = (1, 5, 10, 15, 20)
CREDIT_SEEDS: Final = 16
_HEADINGS: Final = (
    "policy",
    *(f"night {night}" for night in _NIGHTS),
    "area",
    "nights below zero",
    "wrong lessons, night 10",
    "changes for the worse",
    "learner calls a night",
    "calls per point",
)


def main() -> None:
    """Measure and write the page."""
    began = time.process_time()
    name = (sys.argv[1:] or ["proving ground"])[0]
    with ProcessPoolExecutor(os.cpu_count()) as executor:
        text = "\n".join(_TABLES[name](executor))
    took = time.process_time() - began + os.times().children_user + os.times().children_system
    block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    PAGE.write_text(block.sub(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", PAGE.read_text(encoding="utf-8")))
    print(f"{name}: {took:.0f} s of CPU; {PAGE.name} is written")


def lines(table: Table) -> Iterator[str]:
    """Yield the lines of the tables, one table a world. The best figures of a column are bold."""
    for world, policies in table.items():
        yield f"**{world}**: {WORLDS[world].description}\n"
        yield f"| {' | '.join(_HEADINGS)} |"
        yield f"|{' --- |' * len(_HEADINGS)}"
        best = [max(_gain(courses, night) for courses in policies.values()) for night in _NIGHTS]
        for policy, courses in policies.items():
            yield f"| {policy} | {' | '.join(_cells(courses, best))} |"
        yield ""


def credit_lines(table: Table) -> Iterator[str]:
    """Yield the table of areas, one row a world, with credit minus the loop as it ships seed by seed, and credit's nights."""
    others = [policy for policy in COMPARED if policy != CREDIT]
    nights = " / ".join(map(str, _CREDIT_NIGHTS))
    yield f"| world | credit | {' | '.join(others)} | credit minus the loop | credit, nights {nights} |"
    yield f"|{' --- |' * (len(others) + 4)}"
    for world, policies in table.items():
        ours = policies[CREDIT]
        areas = [str(figure(map(area, policies[policy]))) for policy in (CREDIT, *others)]
        gains = " / ".join(f"{_gain(ours, night):.1f}" for night in _CREDIT_NIGHTS)
        yield f"| {world} | {' | '.join(areas)} | {paired(ours, policies[LOOP], area)} | {gains} |"


def _cells(courses: Sequence[Course], best: Sequence[float]) -> Iterator[str]:
    for night, highest in zip(_NIGHTS, best, strict=True):
        shown = f"{_gain(courses, night):+.1f}"
        yield f"**{shown}**" if _gain(courses, night) == highest else shown
    yield str(figure(map(area, courses)))
    yield f"{figure(map(nights_below, courses)).mean:.1f}"
    yield f"{figure(one.wrong[9] for one in courses).mean:.1f}"
    yield f"{figure(one.changes_for_the_worse for one in courses).mean:.1f}"
    yield f"{figure(one.learner_calls / len(one.gain) for one in courses).mean:.0f}"
    calls = calls_per_point(courses)
    yield "–" if calls is None else f"{calls:.0f}"


def _gain(courses: Sequence[Course], night: int) -> float:
    return figure(one.gain[night - 1] for one in courses).mean


_TABLES: Final[Mapping[str, Callable[[Executor], Iterator[str]]]] = {
    "proving ground": lambda executor: lines(measure(executor)),
    "credit": lambda executor: credit_lines(measure(executor, CREDIT_SEEDS, [*WORLDS, *VARIANTS], list(COMPARED))),
    "service": lambda executor: service_lines(measure_service(executor)),
}


if __name__ == "__main__":
    main()
