"""Which attempt is better than which? Ranks with ties, and the order from best to worst.

Compares finite rewards of one group; how much better one is than another does not matter here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tfgrpo.rewarders.advantages.spread import finite_rewards


def relative_ranks(rewards: Sequence[float]) -> tuple[float, ...]:
    """Rank of each reward in its group: 1 for the best, 0 for the worst, in even steps between.

    Equal rewards share the mean of the ranks they occupy, so a flat group has 0.5 everywhere, and so has a group of
    one. Raises ``ValueError`` for an empty group and for NaN or infinity.
    """
    values = finite_rewards(rewards)
    last = len(values) - 1
    if last == 0:
        return (0.5,)
    ordered = sorted(values)
    first_place: dict[float, int] = {}
    last_place: dict[float, int] = {}
    for place, value in enumerate(ordered):
        first_place.setdefault(value, place)
        last_place[value] = place
    return tuple((first_place[value] + last_place[value]) / (2 * last) for value in values)


def best_first(rewards: Sequence[float], tokens: Sequence[int | None] | None = None) -> tuple[int, ...]:
    """Positions from best to worst: greater reward, then fewer tokens (unknown ones last), then the earlier position.

    Raises ``ValueError`` for NaN or infinity, for an empty group, and when ``tokens`` has another length.
    """
    values = finite_rewards(rewards)
    spent = [0] * len(values) if tokens is None else [math.inf if count is None else count for count in tokens]
    if len(spent) != len(values):
        raise ValueError(f"{len(values)} rewards but {len(spent)} token counts")
    return tuple(sorted(range(len(values)), key=lambda index: (-values[index], spent[index], index)))
