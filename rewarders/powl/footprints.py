"""Footprints of process models: three relations between labels, computed without listing traces, and their similarity."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from itertools import chain, combinations
from operator import and_, or_
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from tfgrpo.rewarders.powl.model import Activity, Model, Operator, add_pairs, bits, fold, labels_of, predecessors, successors
from tfgrpo.rewarders.powl.text import model_in, parse_json
from tfgrpo.stores.errors import PowlError
from tfgrpo.stores.json_values import json_of
from tfgrpo.stores.numeric import plain_sum

FootprintMode: TypeAlias = Literal["block", "direct", "order"]
MODES: Final[tuple[FootprintMode, ...]] = get_args(FootprintMode)
Aggregate: TypeAlias = Literal["pooled", "macro"]
Pairs: TypeAlias = frozenset[tuple[str, str]]


class Rows(NamedTuple):
    """Three relations over the same labels: bit j of mask i is set when label i is related to label j."""

    direct_succession: tuple[int, ...]
    concurrency: tuple[int, ...]
    exclusive: tuple[int, ...]


RELATIONS: Final = Rows._fields


@dataclass(frozen=True, repr=False)
class Footprint:
    """Relations between the labels of a model, in one of three readings; one read from JSON has no start, end and length."""

    mode: FootprintMode
    activities: tuple[str, ...]
    """Every label once, sorted."""
    rows: Rows
    start_activities: frozenset[str] | None = None
    """First labels of traces, as the next two of mode ``direct`` only."""
    end_activities: frozenset[str] | None = None
    min_trace_length: int | None = None

    @cached_property
    def _pairs(self) -> tuple[Pairs, ...]:
        labels = self.activities
        return tuple(
            frozenset((labels[at], labels[to]) for at, mask in enumerate(each) for to in bits(mask)) for each in self.rows
        )

    @property
    def direct_succession(self) -> Pairs:
        """Pairs (a, b): a is followed by b and not the reverse; mode ``block`` may have both directions."""
        return self._pairs[0]

    @property
    def concurrency(self) -> Pairs:
        """Pairs in either order; both directions are listed."""
        return self._pairs[1]

    @property
    def exclusive(self) -> Pairs:
        """Pairs of which neither follows the other; both directions are listed."""
        return self._pairs[2]

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} {_count_of(rows)}" for name, rows in zip(RELATIONS, self.rows, strict=True))
        return f"Footprint({self.mode}: {len(self.activities)} activities; {counts})"


def footprint_from_value(value: Mapping[str, Any]) -> Footprint:
    """Return the footprint of an object with ``direct_succession``, ``concurrency``, ``exclusive`` as lists of pairs.

    ``mode`` defaults to ``block``; ``activities`` need only list labels that are in no pair. Raises ``PowlError`` with a
    JSON pointer.
    """
    received: object = value
    if not isinstance(received, Mapping):
        raise PowlError(f"expected an object with a footprint, received {type(value).__name__}", pointer="")
    mode, listed = value.get("mode", "block"), value.get("activities", [])
    if mode not in MODES:
        raise PowlError(f"expected one of {', '.join(MODES)}", pointer="/mode")
    if not isinstance(listed, list) or not all(isinstance(label, str) for label in listed):
        raise PowlError("expected a list of labels", pointer="/activities")
    relations: list[list[tuple[str, str]]] = []
    for name in RELATIONS:
        pairs = value.get(name, [])
        if not isinstance(pairs, list):
            raise PowlError("expected a list of pairs of labels", pointer=f"/{name}")
        for index, pair in enumerate(pairs):
            if not isinstance(pair, list | tuple) or [*map(type, pair)] != [str, str]:
                raise PowlError("expected a pair of labels", pointer=f"/{name}/{index}")
        relations.append([(left, right) for left, right in pairs])
    labels = tuple(sorted({*listed, *chain.from_iterable(chain.from_iterable(relations))}))
    index_of = {label: position for position, label in enumerate(labels)}
    masks = [[0] * len(labels) for _ in relations]
    for pairs, rows in zip(relations, masks, strict=True):
        for left, right in pairs:
            rows[index_of[left]] |= 1 << index_of[right]
    return Footprint(mode, labels, Rows(*map(tuple, masks)))


def _count_of(rows: Iterable[int]) -> int:
    return sum(mask.bit_count() for mask in rows)


def footprint(model: Model, mode: FootprintMode = "block") -> Footprint:
    """Return three relations between the labels of a model. Silent steps are in none of them.

    ``block`` relates all labels of a child of a SEQUENCE to all of the next one, and all of different branches to each
    other; a child without labels counts as absent. A PARTIAL_ORDER relates neighbours as a SEQUENCE does and unordered
    children as a PARALLEL does. A pair can be in several relations.
    ``direct`` is the footprint of the directly-follows relation a > b over the model's language (van der Aalst, Weijters
    and Maruster 2004): a -> b when a > b and not b > a, concurrent when both, exclusive when neither. ``order`` is the same
    over "b comes somewhere after a in some trace", the behavioural profile (Weidlich, Mendling and Weske 2011). Both are
    exact for the language. Raises ``ValueError`` for an unknown mode.
    """
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
    labels = tuple(sorted(set(labels_of(model))))
    index = {label: position for position, label in enumerate(labels)}
    relations = _Relations(mode, index)
    whole = fold(model, relations.add)
    if mode == "block":
        rows = (relations.follows, relations.together, relations.never)
        return Footprint(mode, labels, Rows(*map(tuple, rows)))
    if mode == "order":
        return Footprint(mode, labels, _compared(relations.follows))
    first, last = (frozenset(labels[position] for position in bits(mask)) for mask in (whole.first, whole.last))
    return Footprint(mode, labels, _compared(relations.follows), first, last, whole.shortest)


def footprint_of(model: Model | Footprint, mode: FootprintMode) -> Footprint:
    """Return the argument if it is a footprint, else the footprint of the model in this mode."""
    return model if isinstance(model, Footprint) else footprint(model, mode)


def _compared(follows: list[int]) -> Rows:
    both = [*zip(follows, predecessors(follows), strict=True)]
    never = tuple(~(one | other) & (1 << len(follows)) - 1 for one, other in both)
    return Rows(tuple(one & ~other for one, other in both), tuple(one & other for one, other in both), never)


def _union(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)


class _Part(NamedTuple):
    # Masks of labels.

    labels: int
    first: int
    last: int
    skippable: bool
    shortest: int


class _Relations:
    # All modes are one algorithm. Of two parts, one after the other, the end of the first is followed by the start of the
    # second, unless something has to come between. ``direct`` takes both from the traces; else a whole part is both. Under
    # ``order`` nothing has to come between, as traces of different parts are independent; under ``block`` any labels do.

    def __init__(self, mode: FootprintMode, index: Mapping[str, int]) -> None:
        self._mode = mode
        self._index = index
        self.follows = [0] * len(index)
        self.together = [0] * len(index) if mode == "block" else self.follows
        self.never = [0] * len(index)

    def add(self, node: Model, parts: Sequence[_Part]) -> _Part:
        if isinstance(node, Activity):
            mask = 1 << self._index[node.label]
            return self._part(mask, mask, mask, False, 1)
        if not isinstance(node, Operator):
            return self._part(0, 0, 0, True, 0)
        if node.kind == "SEQUENCE":
            return self._sequence(parts)
        if node.kind == "LOOP":
            return self._loop(parts[0], parts[1])
        if node.kind != "XOR":
            return self._ordered(node, parts)
        if self._mode == "block":
            _relate_others(self.never, parts)
        labels, first, last = (_union(part[field] for part in parts) for field in range(3))
        return self._part(labels, first, last, any(p.skippable for p in parts), min(p.shortest for p in parts))

    def _part(self, labels: int, first: int, last: int, skippable: bool, shortest: int) -> _Part:
        if self._mode == "direct":
            return _Part(labels, first, last, skippable, shortest)
        return _Part(labels, labels, labels, self._mode == "order" or not labels, shortest)

    def _sequence(self, parts: Sequence[_Part]) -> _Part:
        # The end of each part and any later part, as long as all parts between can be skipped.
        labels = first = last = shortest = 0
        skippable = True
        # Backwards: each label is visited once, and not again for every part after it.
        for part in reversed(parts):
            add_pairs(self.follows, part.last, first)
            last |= part.last if skippable else 0
            first = first | part.first if part.skippable else part.first
            labels |= part.labels
            skippable = skippable and part.skippable
            shortest += part.shortest
        return self._part(labels, first, last, skippable, shortest)

    def _loop(self, do: _Part, redo: _Part) -> _Part:
        # The turns of do (redo do)*: a part that can be skipped makes the other one its own neighbour.
        first, last = do.first, do.last
        add_pairs(self.follows, do.last, redo.first)
        add_pairs(self.follows, redo.last, do.first)
        if redo.skippable:
            add_pairs(self.follows, do.last, do.first)
        if do.skippable:
            add_pairs(self.follows, redo.last, redo.first)
            first, last = first | redo.first, last | redo.last
        return self._part(do.labels | redo.labels, first, last, do.skippable, do.shortest)

    def _ordered(self, node: Operator, parts: Sequence[_Part]) -> _Part:
        # Of two unordered parts any label can follow any other: both can be delayed to just before it. Of two ordered ones
        # only an end can meet a start, if all that must come between can be skipped.
        after = successors(len(parts), node.order)
        before = predecessors(after)
        firm = sum(1 << child for child, part in enumerate(parts) if not part.skippable)
        first = last = 0
        for child, part in enumerate(parts):
            first |= 0 if before[child] & firm else part.first
            last |= 0 if after[child] & firm else part.last
            if after[child]:
                met = (later for later in bits(after[child]) if not after[child] & before[later] & firm)
                add_pairs(self.follows, part.last, _union(parts[later].first for later in met))
            if node.order:
                unordered = ~(after[child] | before[child] | 1 << child) & ~(-1 << len(parts))
                add_pairs(self.together, part.labels, _union(parts[other].labels for other in bits(unordered)))
        if not node.order:
            _relate_others(self.together, parts)
        labels, shortest = _union(part.labels for part in parts), sum(part.shortest for part in parts)
        return self._part(labels, first, last, not firm, shortest)


def _relate_others(rows: list[int], parts: Sequence[_Part]) -> None:
    every = repeated = 0  # a label may be in several parts
    for part in parts:
        repeated |= every & part.labels
        every |= part.labels
    for part in parts:
        add_pairs(rows, part.labels, every & ~part.labels | repeated)


class RelationWeights(NamedTuple):
    """Weight of a pair of each relation."""

    direct_succession: float = 1.0
    concurrency: float = 1.0
    exclusive: float = 1.0


def reference_in(written: object, *, aliases: bool = False) -> Model | Footprint:
    """Return the model or footprint of a reference, as text or as a JSON object. Raise ``PowlError`` for anything else."""
    value = json_of(written) if isinstance(written, str) else written
    if isinstance(value, Mapping) and "direct_succession" in value:
        return footprint_from_value(value)
    if isinstance(written, str):
        return model_in(written, aliases=aliases)
    if not isinstance(written, Mapping):
        raise PowlError(f"{type(written).__name__} is no process model")
    return parse_json(written)


def footprint_similarity(
    a: Model | Footprint,
    b: Model | Footprint,
    aggregate: Aggregate = "pooled",
    *,
    mode: FootprintMode = "block",
    weights: RelationWeights = RelationWeights(),  # noqa: B008 - frozen
) -> float:
    """Return the similarity from 0 to 1; 1 for equal footprints; symmetric.

    ``pooled``: the Jaccard index of all pairs together, each with its relation, times the Jaccard index of the
    activities. ``macro``: the mean of the three Jaccard indices, where a relation that neither has counts as 1: it rewards
    models for relations they omit. ``mode`` is for models; footprints have theirs. Raises ``ValueError`` for footprints of
    different modes, an unknown aggregate, and weights that are negative, not finite or all zero.
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
    common = [_count_of(map(and_, *both)) for both in zip(_rows_of(one, labels), _rows_of(other, labels), strict=True)]
    either = [_count_of(x) + _count_of(y) - shared for x, y, shared in zip(one.rows, other.rows, common, strict=True)]
    if aggregate == "macro":
        return _weighted(weights, map(_share, common, either)) / plain_sum(weights)
    return _share(_weighted(weights, common), _weighted(weights, either)) * activities


def self_consistency(model: Model | Footprint) -> float:
    """Return 1 minus the share of contradicted pairs among the pairs of labels that are related at all, from 0 to 1.

    A pair is contradicted when it is in more than one of: succession in either direction, concurrency, exclusion. A model
    without related labels gets 1: the value measures coherence, not quality.
    """
    follows, together, never = footprint_of(model, "block").rows
    related = contradicted = 0
    for index, (before, after, second, third) in enumerate(zip(follows, predecessors(follows), together, never, strict=True)):
        first, upper = before | after, -1 << index  # each pair once, a label with itself too
        related += ((first | second | third) & upper).bit_count()
        contradicted += ((first & second | first & third | second & third) & upper).bit_count()
    return 1.0 - contradicted / related if related else 1.0


def group_consensus(
    group: Sequence[Model | Footprint], aggregate: Aggregate = "pooled", *, mode: FootprintMode = "block"
) -> tuple[float, ...]:
    """Return each candidate's mean similarity to the others, from 0 to 1. Raises ``ValueError`` for fewer than two."""
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
    return common / either if either else 1.0


def _weighted(weights: RelationWeights, counts: Iterable[float]) -> float:
    return plain_sum(weight * count for weight, count in zip(weights, counts, strict=True))


def _rows_of(whole: Footprint, labels: Collection[str]) -> Rows:
    if len(labels) == len(whole.activities):
        return whole.rows
    kept = [position for position, label in enumerate(whole.activities) if label in labels]
    digits = [~position for position in reversed(kept)]  # the last one is that of the first label

    @cache
    def narrowed(mask: int) -> int:
        return int("".join(map(f"{mask:0{len(whole.activities)}b}".__getitem__, digits)), 2)

    return Rows(*(tuple(narrowed(rows[position]) if rows[position] else 0 for position in kept) for rows in whole.rows))
