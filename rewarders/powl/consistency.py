"""How good is a model when there is no reference? Whether it contradicts itself, and whether a group of them agrees."""

from __future__ import annotations

from collections.abc import Sequence

from tfgrpo.rewarders.powl.footprints.footprint import as_footprint
from tfgrpo.rewarders.powl.footprints.relations import Footprint, Mode
from tfgrpo.rewarders.powl.model import Model
from tfgrpo.rewarders.powl.partial_order import predecessors
from tfgrpo.rewarders.powl.similarity import Aggregate, footprint_similarity


def self_consistency(given: Model | Footprint) -> float:
    """1 minus the share of contradicted pairs among the pairs of labels that are related at all, from 0 to 1.

    A pair is contradicted when it is in more than one of: succession in either direction, concurrency, exclusion. That
    happens in ``block`` footprints, which a model is read as, and only where a label is repeated. A model that relates
    nothing contradicts nothing and gets 1: this says that a model is coherent, not that it is a good one.
    """
    rows = as_footprint(given, "block").rows
    succession = [
        one | other for one, other in zip(rows.direct_succession, predecessors(rows.direct_succession), strict=True)
    ]
    related = contradicted = 0
    for place, (first, second, third) in enumerate(zip(succession, rows.concurrency, rows.exclusive, strict=True)):
        upper = -1 << place  # each pair once, a label with itself too
        related += ((first | second | third) & upper).bit_count()
        contradicted += ((first & second | first & third | second & third) & upper).bit_count()
    return 1.0 - contradicted / related if related else 1.0


def group_consensus(
    group: Sequence[Model | Footprint], aggregate: Aggregate = "pooled", *, mode: Mode = "block"
) -> tuple[float, ...]:
    """For each candidate the mean likeness to the others, from 0 to 1; the greatest is the medoid's.

    Raises ``ValueError`` for fewer than two candidates, since nobody agrees with nobody.
    """
    if len(group) < 2:
        raise ValueError(f"consensus needs at least two candidates, not {len(group)}")
    footprints = [as_footprint(each, mode) for each in group]
    totals = [0.0] * len(footprints)
    for place, one in enumerate(footprints):
        for other in range(place + 1, len(footprints)):
            likeness = footprint_similarity(one, footprints[other], aggregate)
            totals[place] += likeness
            totals[other] += likeness
    return tuple(total / (len(footprints) - 1) for total in totals)
