"""What retrieved lessons did: a comparison of halves with more and with fewer of them, in the measuring groups of a run.

Each half has a random part of the lessons that an item's prompt carries. So how many retrieved ones it has is chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tfgrpo.stores.files.atomic import read_rows
from tfgrpo.stores.files.layout import RunPaths

MEASURED_ARMS = ("drawn", "complement")
"""Arms of the two halves of a measuring group."""
_Z95 = 1.959964


class Half(NamedTuple):
    """The scored attempts of one half of a measuring group."""

    lessons: frozenset[str]
    rewards: tuple[float, ...]


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


def read_retrieval(run: RunPaths) -> Retrieval | None:
    """Return what the measuring groups say; None unless their lessons were chosen by item."""
    groups = [halves for halves in _halves(run).values() if len(halves) == len(MEASURED_ARMS)]
    lessons = [frozenset[str]().union(*(half.lessons for half in halves)) for halves in groups]
    settled = frozenset.intersection(*lessons) if lessons else frozenset[str]()
    retrieved = frozenset[str]().union(*lessons) - settled
    if not retrieved:
        return None
    by_count: dict[int, list[float]] = {}
    pairs: list[tuple[int, float]] = []
    for halves in groups:
        counts = [len(half.lessons & retrieved) for half in halves]
        for count, half in zip(counts, halves, strict=True):
            by_count.setdefault(count, []).extend(half.rewards)
        if all(half.rewards for half in halves):
            means = [math.fsum(half.rewards) / len(half.rewards) for half in halves]
            pairs.append((counts[0] - counts[1], means[0] - means[1]))
    rows = tuple((count, len(of), math.fsum(of) / len(of)) for count, of in sorted(by_count.items()) if of)
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


def _halves(run: RunPaths) -> Mapping[str, list[Half]]:
    """Return the halves of each measuring group."""
    lessons = {row["digest"]: frozenset(row["experience_ids"]) for row in read_rows(run.prompts)}
    rewards: dict[tuple[str, str, str], list[float]] = {}
    for row in read_rows(run.rollouts):
        if row["phase"] == "measure" and row["arm"] in MEASURED_ARMS:
            found = rewards.setdefault((row["group_id"], row["arm"], row["prompt_digest"]), [])
            if row["outcome"]["name"] == "scored":
                found.append(row["outcome"]["reward"])
    groups: dict[str, list[Half]] = {}
    for (group, _, digest), found in rewards.items():
        groups.setdefault(group, []).append(Half(lessons.get(digest, frozenset()), tuple(found)))
    return groups
