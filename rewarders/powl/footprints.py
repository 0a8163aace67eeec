"""Compute the footprint of a process model in one of three readings, without listing its traces.

``block`` relates the labels of whole children to those of whole children. A child without labels counts as absent, so
that its neighbours become adjacent; a LOOP of which only one part has labels repeats that part. A PARTIAL_ORDER relates
neighbours as a SEQUENCE does and unordered children as a PARALLEL does. ``direct`` and ``order`` are exact for the
language of the model, with silent steps, repeated labels and any number of turns of a loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import accumulate, pairwise
from operator import or_
from typing import NamedTuple

from tfgrpo.rewarders.powl.model import Activity, Model, Operator, fold, labels_of
from tfgrpo.rewarders.powl.partial_order import add_pairs, among, bits, covering_pairs, predecessors, successors
from tfgrpo.rewarders.powl.relations import MODES, Footprint, Mode, Rows


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
    if mode == "block":
        return Footprint(mode, labels, _block_rows(model, index))
    if mode == "order":
        return Footprint(mode, labels, _compared(_eventually_follows(model, index)))
    follows, whole = _directly_follows(model, index)
    first, last = (frozenset(labels[position] for position in bits(mask)) for mask in (whole.first, whole.last))
    return Footprint(mode, labels, _compared(follows), first, last, whole.shortest)


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


def _comparable(after: Sequence[int]) -> list[int]:
    """Return for each child the mask of all that come after or before it."""
    return [*map(or_, after, predecessors(after))]


# --- block


def _block_rows(model: Model, index: Mapping[str, int]) -> Rows:
    direct, concurrent, exclusive = ([0] * len(index) for _ in range(3))

    def combine(node: Model, parts: Sequence[int]) -> int:
        """Relate the labels of the parts, given as masks; return all of them."""
        if isinstance(node, Activity):
            return 1 << index[node.label]
        if not isinstance(node, Operator):
            return 0
        if node.kind in ("SEQUENCE", "LOOP"):
            blocks = [part for part in parts if part]
            for left, right in pairwise([*blocks, *blocks[:1]] if node.kind == "LOOP" else blocks):
                add_pairs(direct, left, right)
            return _union(parts)
        after: Sequence[int] = ()
        if node.order:
            labelled = sum(1 << child for child, part in enumerate(parts) if part)
            after = among(successors(len(parts), node.order), labelled)
            for before, later in covering_pairs(after):
                add_pairs(direct, parts[before], parts[later])
        for part, others in zip(parts, _others(parts, _comparable(after)), strict=True):
            add_pairs(exclusive if node.kind == "XOR" else concurrent, part, others)
        return _union(parts)

    fold(model, combine)
    return Rows(tuple(direct), tuple(concurrent), tuple(exclusive))


# --- order


def _eventually_follows(model: Model, index: Mapping[str, int]) -> list[int]:
    """Return the relation over the language, as masks.

    Every label of a part is in some trace of it, and traces of different parts are independent: whole parts relate. In
    a LOOP everything can come after everything, itself included.
    """
    rows = [0] * len(index)

    def combine(node: Model, parts: Sequence[int]) -> int:
        if isinstance(node, Activity):
            return 1 << index[node.label]
        labels = _union(parts)
        if not isinstance(node, Operator) or node.kind == "XOR":
            return labels
        if node.kind == "LOOP":
            add_pairs(rows, labels, labels)
        elif node.kind == "SEQUENCE":
            later = 0
            for mask in reversed(parts):
                add_pairs(rows, mask, later)
                later |= mask
        else:
            before = predecessors(successors(len(parts), node.order))
            for mask, others in zip(parts, _others(parts, before), strict=True):
                add_pairs(rows, mask, others)
        return labels

    fold(model, combine)
    return rows


# --- direct


class _Ends(NamedTuple):
    """Properties of a part of the model that decide what it adds to the directly-follows relation."""

    first: int
    last: int
    labels: int
    skippable: bool
    shortest: int
    """Activities of the shortest trace."""


_SILENT = _Ends(0, 0, 0, skippable=True, shortest=0)


def _directly_follows(model: Model, index: Mapping[str, int]) -> tuple[list[int], _Ends]:
    """Return the relation over the language as masks, and the ends of the whole model."""
    rows = [0] * len(index)

    def combine(node: Model, parts: Sequence[_Ends]) -> _Ends:
        if isinstance(node, Activity):
            mask = 1 << index[node.label]
            return _Ends(mask, mask, mask, skippable=False, shortest=1)
        if not isinstance(node, Operator):
            return _SILENT
        if node.kind == "SEQUENCE":
            return _sequence(rows, parts)
        if node.kind == "XOR":
            first, last, labels = (_union(part[field] for part in parts) for field in range(3))
            return _Ends(first, last, labels, any(p.skippable for p in parts), min(p.shortest for p in parts))
        if node.kind == "LOOP":
            return _loop(rows, parts[0], parts[1])
        return _ordered(rows, node, parts)

    return rows, fold(model, combine)


def _sequence(rows: list[int], parts: Sequence[_Ends]) -> _Ends:
    """Relate the end of what came before to any later part, as long as all parts between can be skipped."""
    whole = _SILENT
    for part in parts:
        add_pairs(rows, whole.last, part.first)
        whole = _Ends(
            whole.first | part.first if whole.skippable else whole.first,
            whole.last | part.last if part.skippable else part.last,
            whole.labels | part.labels,
            whole.skippable and part.skippable,
            whole.shortest + part.shortest,
        )
    return whole


def _loop(rows: list[int], do: _Ends, redo: _Ends) -> _Ends:
    """Relate the turns of do (redo do)*: a part that can be skipped makes the other one its own neighbour."""
    add_pairs(rows, do.last, redo.first)
    add_pairs(rows, redo.last, do.first)
    if redo.skippable:
        add_pairs(rows, do.last, do.first)
    if not do.skippable:
        return do._replace(labels=do.labels | redo.labels)
    add_pairs(rows, redo.last, redo.first)
    return _Ends(do.first | redo.first, do.last | redo.last, do.labels | redo.labels, skippable=True, shortest=0)


def _ordered(rows: list[int], node: Operator, parts: Sequence[_Ends]) -> _Ends:
    """Relate the children of a PARALLEL or PARTIAL_ORDER.

    Of two unordered parts any label can follow any other: both can be delayed to just before it, and nothing has to
    come between. Of two ordered ones only an end can meet a start, and only if all that must come between can be
    skipped. A part can start the trace if all before it can be skipped.
    """
    after = successors(len(parts), node.order)
    before = predecessors(after)
    firm = sum(1 << child for child, part in enumerate(parts) if not part.skippable)
    first = last = 0
    unordered = _others([part.labels for part in parts], _comparable(after))
    for child, (part, others) in enumerate(zip(parts, unordered, strict=True)):
        first |= 0 if before[child] & firm else part.first
        last |= 0 if after[child] & firm else part.last
        for later in bits(after[child]):
            if not after[child] & before[later] & firm:
                add_pairs(rows, part.last, parts[later].first)
        add_pairs(rows, part.labels, others)
    labels = _union(part.labels for part in parts)
    return _Ends(first, last, labels, not firm, sum(part.shortest for part in parts))
