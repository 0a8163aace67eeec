"""Compare process models by their footprints, as one number from 0 to 1: with a reference, in a group, or with itself."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import combinations
from operator import and_
from typing import Literal, NamedTuple, TypeAlias

from tfgrpo.rewarders.powl.footprints import Footprint, Mode, Rows, count_of, footprint_from_value, footprint_of
from tfgrpo.rewarders.powl.json_form import model_in, parse_json
from tfgrpo.rewarders.powl.model import Model
from tfgrpo.rewarders.powl.partial_order import predecessors
from tfgrpo.stores.errors import PowlError

Aggregate: TypeAlias = Literal["pooled", "macro"]


class RelationWeights(NamedTuple):
    """Weight of a pair of each relation."""

    direct_succession: float = 1.0
    concurrency: float = 1.0
    exclusive: float = 1.0


def reference_in(given: object, *, aliases: bool = False) -> Model | Footprint:
    """Return the model or footprint of a reference, as text or as a JSON object. Raise ``PowlError`` for anything else."""
    value = given
    if isinstance(given, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(given)
    if isinstance(value, Mapping) and "direct_succession" in value:
        return footprint_from_value(value)
    if isinstance(given, str):
        return model_in(given, aliases=aliases)
    if not isinstance(given, Mapping):
        raise PowlError(f"{type(given).__name__} is no process model")
    return parse_json(given)


def footprint_similarity(
    a: Model | Footprint,
    b: Model | Footprint,
    aggregate: Aggregate = "pooled",
    *,
    mode: Mode = "block",
    weights: RelationWeights = RelationWeights(),  # noqa: B008 - frozen
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
    if aggregate not in ("pooled", "macro"):
        raise ValueError(f"unknown aggregate {aggregate!r}; known: pooled, macro")
    one, other = footprint_of(a, mode), footprint_of(b, mode)
    if one.mode != other.mode:
        raise ValueError(f"footprints of different modes cannot be compared: {one.mode} and {other.mode}")
    labels = set(one.activities) & set(other.activities)
    activities = _share(len(labels), len({*one.activities, *other.activities}))
    common = [count_of(map(and_, *both)) for both in zip(_rows_of(one, labels), _rows_of(other, labels), strict=True)]
    either = [count_of(x) + count_of(y) - shared for x, y, shared in zip(one.rows, other.rows, common, strict=True)]
    if aggregate == "macro":
        return _weighted(weights, map(_share, common, either)) / sum(weights)
    return _share(_weighted(weights, common), _weighted(weights, either)) * activities


def self_consistency(given: Model | Footprint) -> float:
    """Return 1 minus the share of contradicted pairs among the pairs of labels that are related at all, from 0 to 1.

    A pair is contradicted when it is in more than one of: succession in either direction, concurrency, exclusion. That
    happens in ``block`` footprints, which a model is read as, and only where a label is repeated. A model without
    related labels gets 1: the value measures coherence, not quality.
    """
    follows, together, never = footprint_of(given, "block").rows
    related = contradicted = 0
    for index, (before, after, second, third) in enumerate(
        zip(follows, predecessors(follows), together, never, strict=True)
    ):
        first, upper = before | after, -1 << index  # each pair once, a label with itself too
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
    footprints = [footprint_of(each, mode) for each in group]
    totals = [0.0] * len(footprints)
    for one, other in combinations(range(len(footprints)), 2):
        similarity = footprint_similarity(footprints[one], footprints[other], aggregate)
        totals[one] += similarity
        totals[other] += similarity
    return tuple(total / (len(footprints) - 1) for total in totals)


def _share(common: float, either: float) -> float:
    """Return the Jaccard index: common ones over those of either; 1 when neither has any."""
    return common / either if either else 1.0


def _weighted(weights: RelationWeights, counts: Iterable[float]) -> float:
    return sum(weight * count for weight, count in zip(weights, counts, strict=True))


def _rows_of(whole: Footprint, labels: Collection[str]) -> Rows:
    """Return the relations among some of the labels only, as masks over these."""
    if len(labels) == len(whole.activities):
        return whole.rows
    kept = [position for position, label in enumerate(whole.activities) if label in labels]
    places = [
        ~position for position in reversed(kept)
    ]  # of their binary digits, of which the last is that of the first label

    @cache
    def narrowed(mask: int) -> int:
        return int("".join(map(f"{mask:0{len(whole.activities)}b}".__getitem__, places)), 2)

    return Rows(*(tuple(narrowed(rows[position]) if rows[position] else 0 for position in kept) for rows in whole.rows))
