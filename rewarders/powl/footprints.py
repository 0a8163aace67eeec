"""Footprints: three relations between labels, and how a model's are computed without listing its traces.

``block`` relates the labels of whole children to those of whole children. A child without labels counts as absent, so
that its neighbours become adjacent; a LOOP of which only one part has labels repeats that part. A PARTIAL_ORDER relates
neighbours as a SEQUENCE does and unordered children as a PARALLEL does. ``direct`` and ``order`` are exact for the
language of the model, with silent steps, repeated labels and any number of turns of a loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import accumulate, chain, compress, product
from operator import or_
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from tfgrpo.rewarders.powl.model import Activity, Model, Operator, fold, labels_of
from tfgrpo.rewarders.powl.partial_order import add_pairs, bits, predecessors, successors
from tfgrpo.stores.errors import PowlError

Mode: TypeAlias = Literal["block", "direct", "order"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
Pairs: TypeAlias = frozenset[tuple[str, str]]


class Rows(NamedTuple):
    """Three relations over the same labels: bit j of mask i is set when label i is related to label j."""

    direct_succession: tuple[int, ...]
    concurrency: tuple[int, ...]
    exclusive: tuple[int, ...]


RELATIONS: Final = Rows._fields
_TRUTH: Final = bytes.maketrans(b"01", b"\x00\x01")


@dataclass(frozen=True, repr=False)
class Footprint:
    """Relations between the labels of a model, in one of three readings; see ``footprint``.

    Footprints are equal when all their fields are; one read from JSON has no start, end and length. Sets of pairs are
    made on first use.
    """

    mode: Mode
    activities: tuple[str, ...]
    """Every label once, sorted."""
    rows: Rows
    start_activities: frozenset[str] | None = None
    """First labels of traces; mode ``direct`` only."""
    end_activities: frozenset[str] | None = None
    """Last labels of traces; mode ``direct`` only."""
    min_trace_length: int | None = None
    """Activities of the shortest trace; mode ``direct`` only."""

    @cached_property
    def direct_succession(self) -> Pairs:
        """Pairs (a, b): a is followed by b and not the reverse; mode ``block`` may have both directions."""
        return self._pairs(self.rows.direct_succession)

    @cached_property
    def concurrency(self) -> Pairs:
        """Pairs in either order; both directions are listed."""
        return self._pairs(self.rows.concurrency)

    @cached_property
    def exclusive(self) -> Pairs:
        """Pairs of which neither follows the other; both directions are listed."""
        return self._pairs(self.rows.exclusive)

    @property
    def sequence(self) -> Pairs:
        """``direct_succession`` under its name in process mining."""
        return self.direct_succession

    @property
    def parallel(self) -> Pairs:
        """``concurrency`` under its name in process mining."""
        return self.concurrency

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} {count_of(rows)}" for name, rows in zip(RELATIONS, self.rows, strict=True))
        return f"Footprint({self.mode}: {len(self.activities)} activities; {counts})"

    def _pairs(self, rows: Sequence[int]) -> Pairs:
        # Labels of one block mostly share a mask, which is expanded once.
        by_mask: dict[int, list[str]] = {}
        for label, mask in zip(self.activities, rows, strict=True):
            by_mask.setdefault(mask, []).append(label)
        related = (product(labels, self._labels(mask)) for mask, labels in by_mask.items())
        return frozenset(chain.from_iterable(related))

    def _labels(self, mask: int) -> Iterator[str]:
        # By way of the binary digits, which is ten times as fast as testing bits one by one.
        return compress(self.activities, f"{mask:b}"[::-1].encode().translate(_TRUTH))


def footprint_of_pairs(
    mode: Mode,
    *,
    direct_succession: Iterable[tuple[str, str]] = (),
    concurrency: Iterable[tuple[str, str]] = (),
    exclusive: Iterable[tuple[str, str]] = (),
    activities: Iterable[str] = (),
) -> Footprint:
    """Return a footprint of pairs of labels; ``activities`` need only name labels that are in no pair."""
    relations = tuple(frozenset(pairs) for pairs in (direct_succession, concurrency, exclusive))
    labels = tuple(sorted({*activities, *(label for pairs in relations for pair in pairs for label in pair)}))
    index = {label: position for position, label in enumerate(labels)}
    masks = [[0] * len(labels) for _ in relations]
    for pairs, rows in zip(relations, masks, strict=True):
        for left, right in pairs:
            rows[index[left]] |= 1 << index[right]
    return Footprint(mode, labels, Rows(*map(tuple, masks)))


def footprint_to_value(footprint: Footprint) -> dict[str, Any]:
    """Return a JSON object with sorted pairs, which ``footprint_from_value`` reads."""
    value: dict[str, Any] = {"mode": footprint.mode, "activities": list(footprint.activities)}
    for name in RELATIONS:
        value[name] = [list(pair) for pair in sorted(getattr(footprint, name))]
    for name in ("start_activities", "end_activities"):
        known = getattr(footprint, name)
        value[name] = None if known is None else sorted(known)
    value["min_trace_length"] = footprint.min_trace_length
    return value


def footprint_from_value(value: Mapping[str, Any]) -> Footprint:
    """Return the footprint of an object with ``direct_succession``, ``concurrency``, ``exclusive`` as lists of pairs.

    ``mode`` defaults to ``block``. Start and end activities and the trace length are not read. Raises ``PowlError``
    with a JSON pointer.
    """
    received: object = value
    if not isinstance(received, Mapping):
        raise PowlError(f"expected an object with a footprint, received {type(value).__name__}", pointer="")
    mode = value.get("mode", "block")
    if mode not in MODES:
        raise PowlError(f"expected one of {', '.join(MODES)}", pointer="/mode")
    relations = {name: _read_pairs(value.get(name, []), f"/{name}") for name in RELATIONS}
    labels = value.get("activities", [])
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise PowlError("expected a list of labels", pointer="/activities")
    return footprint_of_pairs(mode, activities=labels, **relations)


def count_of(rows: Sequence[int]) -> int:
    """Return the number of pairs in a relation."""
    return sum(mask.bit_count() for mask in rows)


def _read_pairs(value: Any, pointer: str) -> list[tuple[str, str]]:
    if not isinstance(value, list):
        raise PowlError("expected a list of pairs of labels", pointer=pointer)
    for index, pair in enumerate(value):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(label, str) for label in pair):
            raise PowlError("expected a pair of labels", pointer=f"{pointer}/{index}")
    return [(pair[0], pair[1]) for pair in value]


def footprint(model: Model, mode: Mode = "block") -> Footprint:
    """Return three relations between the labels of a model. Silent steps are in none of them.

    ``block`` relates whole blocks: all labels of a child of a SEQUENCE to all labels of the next one, all labels of
    different branches to each other. It does not depend on traces; a pair can be in several relations.
    ``direct`` is the footprint of the directly-follows relation a > b over the model's language (van der Aalst, Weijters
    and Maruster 2004): a -> b when a > b and not b > a, concurrent when both, exclusive when neither.
    ``order`` is the same over "b comes somewhere after a in some trace", the behavioural profile (Weidlich, Mendling and
    Weske 2011). In the last two exactly one relation applies to any two labels: one follows the other, the reverse,
    concurrent, or exclusive; a label that never occurs twice in a trace is exclusive with itself.
    Raises ``ValueError`` for an unknown mode.
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


def as_footprint(given: Model | Footprint, mode: Mode) -> Footprint:
    """Return the argument if it is a footprint, else the footprint of the model in this mode."""
    return given if isinstance(given, Footprint) else footprint(given, mode)


def _compared(follows: list[int]) -> Rows:
    """Split a relation by its inverse: one way, both ways, neither."""
    inverse = predecessors(follows)
    everything = (1 << len(follows)) - 1
    return Rows(
        tuple(one & ~other for one, other in zip(follows, inverse, strict=True)),
        tuple(one & other for one, other in zip(follows, inverse, strict=True)),
        tuple(everything & ~(one | other) for one, other in zip(follows, inverse, strict=True)),
    )


def _union(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)


class _Part(NamedTuple):
    """What a part of the model adds to the relations around it; labels are masks."""

    labels: int
    first: int
    last: int
    skippable: bool
    shortest: int
    """Activities of the shortest trace."""


class _Relations:
    """Relates the labels of the parts of a model, from the leaves up. All modes are one algorithm.

    Of two parts, one after the other, the end of the first is followed by the start of the second, unless something has
    to come between. ``direct`` takes both from the traces. Otherwise a whole part is both its end and its start: under
    ``order`` nothing has to come between, as traces of different parts are independent, and under ``block`` any part with
    labels. ``block`` keeps concurrent and exclusive parts by themselves; the others compare both directions.
    """

    def __init__(self, mode: Mode, index: Mapping[str, int]) -> None:
        self._mode = mode
        self._index = index
        self.follows = [0] * len(index)
        self.together = [0] * len(index) if mode == "block" else self.follows
        self.never = [0] * len(index)

    def add(self, node: Model, parts: Sequence[_Part]) -> _Part:
        """Relate the children of a node."""
        if isinstance(node, Activity):
            mask = 1 << self._index[node.label]
            return self._part(mask, mask, mask, False, 1)
        if not isinstance(node, Operator):
            return self._part(0, 0, 0, True, 0)
        if node.kind == "SEQUENCE":
            return self._sequence(parts)
        if node.kind == "LOOP":
            return self._loop(parts[0], parts[1])
        if node.kind == "XOR":
            return self._choice(parts)
        return self._ordered(node, parts)

    def _part(self, labels: int, first: int, last: int, skippable: bool, shortest: int) -> _Part:
        if self._mode == "direct":
            return _Part(labels, first, last, skippable, shortest)
        return _Part(labels, labels, labels, self._mode == "order" or not labels, shortest)

    def _sequence(self, parts: Sequence[_Part]) -> _Part:
        """Relate the end of each part to any later part, as long as all parts between can be skipped."""
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
        """Relate the turns of do (redo do)*: a part that can be skipped makes the other one its own neighbour."""
        first, last = do.first, do.last
        add_pairs(self.follows, do.last, redo.first)
        add_pairs(self.follows, redo.last, do.first)
        if redo.skippable:
            add_pairs(self.follows, do.last, do.first)
        if do.skippable:
            add_pairs(self.follows, redo.last, redo.first)
            first, last = first | redo.first, last | redo.last
        return self._part(do.labels | redo.labels, first, last, do.skippable, do.shortest)

    def _choice(self, parts: Sequence[_Part]) -> _Part:
        if self._mode == "block":
            for part, others in zip(parts, _others([part.labels for part in parts]), strict=True):
                add_pairs(self.never, part.labels, others)
        labels, first, last = (_union(part[field] for part in parts) for field in range(3))
        return self._part(labels, first, last, any(p.skippable for p in parts), min(p.shortest for p in parts))

    def _ordered(self, node: Operator, parts: Sequence[_Part]) -> _Part:
        """Relate the children of a PARALLEL or PARTIAL_ORDER.

        Of two unordered parts any label can follow any other: both can be delayed to just before it, and nothing has to
        come between. Of two ordered ones only an end can meet a start, and only if all that must come between can be
        skipped. A part can start the trace if all before it can be skipped.
        """
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
        labels = [part.labels for part in parts]
        for part, others in zip(parts, _others(labels, [*map(or_, after, before)]), strict=True):
            add_pairs(self.together, part.labels, others)
        return self._part(_union(labels), first, last, not firm, sum(part.shortest for part in parts))


def _others(masks: Sequence[int], related: Sequence[int] = ()) -> Iterator[int]:
    """Yield for each child the union of the masks of all others; ``related`` are the children to leave out, as masks."""
    if any(related):
        for child, known in enumerate(related):
            yield _union(mask for other, mask in enumerate(masks) if not (known | 1 << child) >> other & 1)
    else:
        # A label may be in several children, so the masks before and after are kept apart.
        before = accumulate(masks[:-1], or_, initial=0)
        after = accumulate(masks[:0:-1], or_, initial=0)
        yield from map(or_, before, reversed([*after]))
