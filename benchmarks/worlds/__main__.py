"""Measure all policies, or the product on the simulated service, and write the tables into ``docs/benchmarks.md``.

``python -m benchmarks.worlds``, ``python -m benchmarks.worlds service``
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from benchmarks.worlds.engine import Course
from benchmarks.worlds.figures import SEEDS, Table, area, calls_per_point, figure, measure, nights_below
from benchmarks.worlds.service import measure_service, service_lines
from benchmarks.worlds.table import POLICIES
from benchmarks.worlds.world import WORLDS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
_NIGHTS: Final = (1, 3, 5, 10, 11, 15, 20)
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
    served = sys.argv[1:] == ["service"]
    with ProcessPoolExecutor(os.cpu_count()) as executor:
        text = "\n".join(service_lines(measure_service(executor)) if served else lines(measure(executor)))
    took = time.process_time() - began + os.times().children_user + os.times().children_system
    block = re.compile(rf"(<!-- {'service' if served else 'proving ground'} -->\n).*?(<!-- end -->)", re.DOTALL)
    PAGE.write_text(block.sub(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", PAGE.read_text(encoding="utf-8")))
    what = "the product" if served else f"{len(WORLDS)} worlds, {len(POLICIES)} policies, {SEEDS} seeds"
    print(f"{what}: {took:.0f} s of CPU; {PAGE.name} is written")


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


if __name__ == "__main__":
    main()
