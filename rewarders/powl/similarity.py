"""How alike are two models? Compares footprints, as one number from 0 to 1; makes no footprint itself."""

from __future__ import annotations

import math
from typing import Final, Literal, NamedTuple, TypeAlias

from tfgrpo.rewarders.powl.footprints.footprint import as_footprint
from tfgrpo.rewarders.powl.footprints.relations import RELATIONS, Footprint, Mode, count_of
from tfgrpo.rewarders.powl.model import Model
from tfgrpo.rewarders.powl.partial_order import bits

Aggregate: TypeAlias = Literal["pooled", "macro"]


class RelationWeights(NamedTuple):
    """How much a pair of each relation counts."""

    direct_succession: float = 1.0
    concurrency: float = 1.0
    exclusive: float = 1.0


EVEN: Final = RelationWeights()


class Overlap(NamedTuple):
    """Pairs of one relation in two footprints."""

    common: int
    either: int

    @property
    def jaccard(self) -> float:
        """Common pairs over pairs of either; 1 when neither has any."""
        return self.common / self.either if self.either else 1.0


class Overlaps(NamedTuple):
    """Two footprints relation by relation, and their activities."""

    direct_succession: Overlap
    concurrency: Overlap
    exclusive: Overlap
    activities: Overlap


def footprint_similarity(
    a: Model | Footprint,
    b: Model | Footprint,
    aggregate: Aggregate = "pooled",
    *,
    mode: Mode = "block",
    weights: RelationWeights = EVEN,
) -> float:
    """Likeness from 0 to 1; 1 for equal footprints; the same both ways round.

    ``pooled``: the Jaccard index of all pairs together, each with its relation, times the Jaccard index of the
    activities: a model of unrelated activities gets 0, however simple it is. ``macro``: the mean of the three Jaccard
    indices, where a relation that neither has counts as 1; comparable with figures made that way, but it rewards
    models for what they do not say. ``mode`` is for models; footprints come with theirs.
    Raises ``ValueError`` for footprints of different modes, weights that are negative, not finite or all zero, and for
    an aggregate that does not exist.
    """
    _check(weights)
    found = overlaps(as_footprint(a, mode), as_footprint(b, mode))
    if aggregate == "macro":
        shares = [overlap.jaccard for overlap in found[:3]]
        return sum(weight * share for weight, share in zip(weights, shares, strict=True)) / sum(weights)
    if aggregate != "pooled":
        raise ValueError(f"unknown aggregate {aggregate!r}; known: pooled, macro")
    common = sum(weight * overlap.common for weight, overlap in zip(weights, found[:3], strict=True))
    either = sum(weight * overlap.either for weight, overlap in zip(weights, found[:3], strict=True))
    return (common / either if either else 1.0) * found.activities.jaccard


def overlaps(a: Footprint, b: Footprint) -> Overlaps:
    """What two footprints have in common, counted. Raises ``ValueError`` when their modes differ."""
    if a.mode != b.mode:
        raise ValueError(f"footprints of different modes cannot be compared: {a.mode} and {b.mode}")
    places = {label: place for place, label in enumerate(b.activities)}
    shared = None if a.activities == b.activities else [places.get(label) for label in a.activities]
    relations = [_overlap(a.rows[kind], b.rows[kind], shared) for kind in range(len(RELATIONS))]
    common = len(places) if shared is None else sum(place is not None for place in shared)
    either = len(a.activities) + len(b.activities) - common
    return Overlaps(relations[0], relations[1], relations[2], Overlap(common, either))


def _overlap(left: tuple[int, ...], right: tuple[int, ...], places: list[int | None] | None) -> Overlap:
    """``places`` says where a label of the left one stands in the right one; None: where it stands in the left one."""
    total = count_of(left) + count_of(right)
    if places is None:
        common = sum((mask & other).bit_count() for mask, other in zip(left, right, strict=True))
        return Overlap(common, total - common)
    translated: dict[int, int] = {}
    common = 0
    for place, mask in zip(places, left, strict=True):
        if place is None or not mask or not right[place]:
            continue
        if mask not in translated:
            translated[mask] = _translated(mask, places)
        common += (translated[mask] & right[place]).bit_count()
    return Overlap(common, total - common)


def _translated(mask: int, places: list[int | None]) -> int:
    found = 0
    for position in bits(mask):
        place = places[position]
        if place is not None:
            found |= 1 << place
    return found


def _check(weights: RelationWeights) -> None:
    if any(not math.isfinite(weight) or weight < 0 for weight in weights) or not any(weights):
        raise ValueError(f"weights are finite, not negative and not all zero: {tuple(weights)}")
