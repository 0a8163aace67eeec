"""Compare process models by their footprints, as one number from 0 to 1: with a reference, in a group, or with itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Final, Literal, NamedTuple, TypeAlias

from tfgrpo.rewarders.powl.footprints import Footprint, Mode, as_footprint, count_of
from tfgrpo.rewarders.powl.model import Model
from tfgrpo.rewarders.powl.partial_order import bits, predecessors

Aggregate: TypeAlias = Literal["pooled", "macro"]


class RelationWeights(NamedTuple):
    """Weight of a pair of each relation."""

    direct_succession: float = 1.0
    concurrency: float = 1.0
    exclusive: float = 1.0


EVEN: Final = RelationWeights()


class Overlap(NamedTuple):
    """Common pairs of a relation in two footprints, or common activities, and those of either."""

    common: int
    either: int

    @property
    def jaccard(self) -> float:
        """Common ones over those of either; 1 when neither has any."""
        return self.common / self.either if self.either else 1.0


def footprint_similarity(
    a: Model | Footprint,
    b: Model | Footprint,
    aggregate: Aggregate = "pooled",
    *,
    mode: Mode = "block",
    weights: RelationWeights = EVEN,
) -> float:
    """Return the similarity from 0 to 1; 1 for equal footprints; symmetric.

    ``pooled``: the Jaccard index of all pairs together, each with its relation, times the Jaccard index of the
    activities: a model of unrelated activities gets 0, however simple it is. ``macro``: the mean of the three Jaccard
    indices, where a relation that neither has counts as 1; comparable with published figures of that form, but it
    rewards models for relations they omit. ``mode`` is for models; footprints have theirs.
    Raises ``ValueError`` for footprints of different modes, for weights that are negative, not finite or all zero, and
    for an unknown aggregate.
    """
    if any(not math.isfinite(weight) or weight < 0 for weight in weights) or not any(weights):
        raise ValueError(f"weights are finite, not negative and not all zero: {tuple(weights)}")
    relations, activities = _overlaps(as_footprint(a, mode), as_footprint(b, mode))
    weighted = [*zip(weights, relations, strict=True)]
    if aggregate == "macro":
        return sum(weight * overlap.jaccard for weight, overlap in weighted) / sum(weights)
    if aggregate != "pooled":
        raise ValueError(f"unknown aggregate {aggregate!r}; known: pooled, macro")
    common = sum(weight * overlap.common for weight, overlap in weighted)
    either = sum(weight * overlap.either for weight, overlap in weighted)
    return (common / either if either else 1.0) * activities.jaccard


def self_consistency(given: Model | Footprint) -> float:
    """Return 1 minus the share of contradicted pairs among the pairs of labels that are related at all, from 0 to 1.

    A pair is contradicted when it is in more than one of: succession in either direction, concurrency, exclusion. That
    happens in ``block`` footprints, which a model is read as, and only where a label is repeated. A model without
    related labels gets 1: the value measures coherence, not quality.
    """
    rows = as_footprint(given, "block").rows
    succession = [
        one | other for one, other in zip(rows.direct_succession, predecessors(rows.direct_succession), strict=True)
    ]
    related = contradicted = 0
    for index, (first, second, third) in enumerate(zip(succession, rows.concurrency, rows.exclusive, strict=True)):
        upper = -1 << index  # each pair once, a label with itself too
        related += ((first | second | third) & upper).bit_count()
        contradicted += ((first & second | first & third | second & third) & upper).bit_count()
    return 1.0 - contradicted / related if related else 1.0


def group_consensus(
    group: Sequence[Model | Footprint], aggregate: Aggregate = "pooled", *, mode: Mode = "block"
) -> tuple[float, ...]:
    """Return for each candidate the mean similarity to the others, from 0 to 1; the medoid has the greatest.

    Raises ``ValueError`` for fewer than two candidates.
    """
    if len(group) < 2:
        raise ValueError(f"consensus needs at least two candidates, not {len(group)}")
    footprints = [as_footprint(each, mode) for each in group]
    totals = [0.0] * len(footprints)
    for one, other in combinations(range(len(footprints)), 2):
        similarity = footprint_similarity(footprints[one], footprints[other], aggregate)
        totals[one] += similarity
        totals[other] += similarity
    return tuple(total / (len(footprints) - 1) for total in totals)


def _overlaps(a: Footprint, b: Footprint) -> tuple[list[Overlap], Overlap]:
    """Return the overlap of each relation, and of the activities. Raises ``ValueError`` when the modes differ."""
    if a.mode != b.mode:
        raise ValueError(f"footprints of different modes cannot be compared: {a.mode} and {b.mode}")
    index = {label: position for position, label in enumerate(b.activities)}
    shared = None if a.activities == b.activities else [index.get(label) for label in a.activities]
    common = len(index) if shared is None else sum(position is not None for position in shared)
    activities = Overlap(common, len(a.activities) + len(b.activities) - common)
    return [_overlap(left, right, shared) for left, right in zip(a.rows, b.rows, strict=True)], activities


def _overlap(left: tuple[int, ...], right: tuple[int, ...], positions: list[int | None] | None) -> Overlap:
    """Count common pairs. ``positions``: of each label of the left one in the right one; None: both have equal labels."""
    total = count_of(left) + count_of(right)
    if positions is None:
        common = sum((mask & other).bit_count() for mask, other in zip(left, right, strict=True))
        return Overlap(common, total - common)
    translated: dict[int, int] = {}
    common = 0
    for position, mask in zip(positions, left, strict=True):
        if position is None or not mask or not right[position]:
            continue
        if mask not in translated:
            targets = (positions[bit] for bit in bits(mask))
            translated[mask] = sum(1 << target for target in targets if target is not None)
        common += (translated[mask] & right[position]).bit_count()
    return Overlap(common, total - common)
