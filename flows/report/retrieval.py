"""What retrieved lessons did: a comparison of halves with more and with fewer of them, in the measuring groups of a run.

Each half has a random part of the lessons that an item's prompt carries. So how many retrieved ones it has is chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from tfgrpo.stores.experiences.measured import read_measured
from tfgrpo.stores.files.layout import TaskPaths

_Z95 = 1.959964


class Retrieval(NamedTuple):
    """Retrieved lessons of a run."""

    groups: int
    settled: int
    """Lessons that every prompt carries."""
    retrieved: int
    """Different ones that some prompts carry."""
    by_count: tuple[tuple[int, int, float], ...]
    """Retrieved lessons in the prompt, attempts with so many, and their mean reward."""
    each: float | None
    """Reward that one more of them brings; None if both halves had as many in every group."""
    margin: float | None
    """Half the width of its 95 % interval; None if only one group had different numbers."""


def read_retrieval(task: TaskPaths, run_id: str) -> Retrieval | None:
    """Return what the measuring groups of a run say; None unless their lessons were chosen by item."""
    groups = [line for line in read_measured(task.measured) if line.run_id == run_id]
    lessons = [frozenset((*line.drawn, *line.complement)) for line in groups]
    settled = frozenset.intersection(*lessons) if lessons else frozenset[str]()
    retrieved = frozenset[str]().union(*lessons) - settled
    if not retrieved:
        return None
    by_count: dict[int, list[float]] = {}
    pairs: list[tuple[int, float]] = []
    for line in groups:
        more, fewer = (len(retrieved.intersection(half)) for half in (line.drawn, line.complement))
        by_count.setdefault(more, []).extend(line.with_drawn)
        by_count.setdefault(fewer, []).extend(line.with_complement)
        if line.with_drawn and line.with_complement:
            pairs.append((more - fewer, fmean(line.with_drawn) - fmean(line.with_complement)))
    rows = tuple((count, len(of), fmean(of)) for count, of in sorted(by_count.items()) if of)
    return Retrieval(len(groups), len(settled), len(retrieved), rows, *slope(pairs))


def slope(pairs: Sequence[tuple[int, float]]) -> tuple[float | None, float | None]:
    """Return the least-squares slope through zero of pairs (more lessons, more reward), and half its 95 % interval.

    The variance is robust to groups of unequal noise, with residuals enlarged by their leverage so that few groups do not
    look precise (HC3, MacKinnon & White 1985); halves without a difference in number say nothing.
    """
    weight = math.fsum(more * more for more, _ in pairs)
    if not weight:
        return None, None
    each = math.fsum(more * gain for more, gain in pairs) / weight
    if sum(more != 0 for more, _ in pairs) < 2:
        return each, None
    spread = math.fsum((more * (gain - each * more) / (1 - more * more / weight)) ** 2 for more, gain in pairs)
    return each, _Z95 * math.sqrt(spread) / weight
