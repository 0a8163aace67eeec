"""Which labels do the blocks of a model relate? The ``block`` reading: whole children against whole children.

A child without any label counts as absent, so that what it separates become neighbours; a LOOP of which only one part
has labels repeats that part. A PARTIAL_ORDER relates neighbours as a SEQUENCE does and unordered children as a PARALLEL
does, so that chains and unordered sets give what SEQUENCE and PARALLEL give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from operator import or_
from typing import NamedTuple

from tfgrpo.rewarders.powl.footprints.relations import Rows
from tfgrpo.rewarders.powl.model import Activity, Model, Operator, fold
from tfgrpo.rewarders.powl.partial_order import covering_pairs, predecessors, successors


class _Block(NamedTuple):
    """Labels of a part of the model: as a mask, and as positions, where a label may be there twice."""

    mask: int
    positions: tuple[int, ...]


_EMPTY = _Block(0, ())


def block_rows(model: Model, index: Mapping[str, int]) -> Rows:
    """The three relations; ``index`` gives each label its position."""
    direct, concurrent, exclusive = ([0] * len(index) for _ in range(3))

    def combine(node: Model, parts: Sequence[_Block]) -> _Block:
        if isinstance(node, Operator):
            seen = [part for part in parts if part.mask]
            if node.kind == "SEQUENCE":
                _chain(direct, seen)
            elif node.kind == "XOR":
                _both_ways(exclusive, seen)
            elif node.kind == "PARALLEL":
                _both_ways(concurrent, seen)
            elif node.kind == "LOOP":
                _chain(direct, [*seen, *seen[:1]])
            else:
                _ordered(direct, concurrent, node, parts)
            return _joined(seen)
        if isinstance(node, Activity):
            position = index[node.label]
            return _Block(1 << position, (position,))
        return _EMPTY

    fold(model, combine)
    return Rows(tuple(direct), tuple(concurrent), tuple(exclusive))


def _chain(rows: list[int], parts: Sequence[_Block]) -> None:
    for left, right in pairwise(parts):
        for position in left.positions:
            rows[position] |= right.mask


def _both_ways(rows: list[int], parts: Sequence[_Block]) -> None:
    """Each part against all others. Masks of all before and all after it: a label may be in several parts."""
    masks = [part.mask for part in parts]
    before = [0, *accumulate(masks, or_)]
    after = [*reversed([*accumulate(reversed(masks), or_)]), 0]
    for place, part in enumerate(parts):
        others = before[place] | after[place + 1]
        for position in part.positions:
            rows[position] |= others


def _ordered(direct: list[int], concurrent: list[int], node: Operator, parts: Sequence[_Block]) -> None:
    seen = sum(1 << place for place, part in enumerate(parts) if part.mask)
    after = [later & seen if seen >> place & 1 else 0 for place, later in enumerate(successors(len(parts), node.order))]
    for left, right in covering_pairs(after):
        _chain(direct, (parts[left], parts[right]))
    before = predecessors(after)
    for place, part in enumerate(parts):
        ordered = after[place] | before[place] | 1 << place
        others = 0
        for other, there in enumerate(parts):
            if not ordered >> other & 1:
                others |= there.mask
        for position in part.positions:
            concurrent[position] |= others


def _joined(parts: Sequence[_Block]) -> _Block:
    if len(parts) == 1:
        return parts[0]
    mask = 0
    positions: list[int] = []
    for part in parts:
        mask |= part.mask
        positions.extend(part.positions)
    return _Block(mask, tuple(positions))
