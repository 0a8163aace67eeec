"""Which label can directly follow which, over all traces of a model? The ``direct`` reading, without listing traces.

Exact for the model's language, with silent steps, repeated labels and any number of turns of a loop: what a part adds
follows from the labels it can begin and end with, and from whether it can leave no trace at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tfgrpo.rewarders.powl.model import Activity, Model, Operator, fold
from tfgrpo.rewarders.powl.partial_order import add_pairs, bits, predecessors, successors


class DirectlyFollows(NamedTuple):
    """The relation and the ends of the traces, as bit masks over the labels."""

    rows: list[int]
    first: int
    last: int
    shortest: int
    """Activities of the shortest trace."""


class _Part(NamedTuple):
    """What the rest of the model needs to know of a part of it."""

    first: int
    last: int
    labels: int
    skippable: bool
    shortest: int


_SILENT = _Part(0, 0, 0, skippable=True, shortest=0)


def directly_follows(model: Model, index: Mapping[str, int]) -> DirectlyFollows:
    """The relation over the language; ``index`` gives each label its position."""
    rows = [0] * len(index)

    def combine(node: Model, parts: Sequence[_Part]) -> _Part:
        if isinstance(node, Activity):
            mask = 1 << index[node.label]
            return _Part(mask, mask, mask, skippable=False, shortest=1)
        if not isinstance(node, Operator):
            return _SILENT
        if node.kind == "SEQUENCE":
            return _sequence(rows, parts)
        if node.kind == "XOR":
            return _choice(parts)
        if node.kind == "LOOP":
            return _loop(rows, parts[0], parts[1])
        return _ordered(rows, node, parts)

    whole = fold(model, combine)
    return DirectlyFollows(rows, whole.first, whole.last, whole.shortest)


def _sequence(rows: list[int], parts: Sequence[_Part]) -> _Part:
    """What came before can end before any later part as long as all parts between can be skipped."""
    whole = _SILENT
    for part in parts:
        add_pairs(rows, whole.last, part.first)
        whole = _Part(
            whole.first | part.first if whole.skippable else whole.first,
            whole.last | part.last if part.skippable else part.last,
            whole.labels | part.labels,
            whole.skippable and part.skippable,
            whole.shortest + part.shortest,
        )
    return whole


def _choice(parts: Sequence[_Part]) -> _Part:
    first = last = labels = 0
    for part in parts:
        first, last, labels = first | part.first, last | part.last, labels | part.labels
    return _Part(first, last, labels, any(p.skippable for p in parts), min(p.shortest for p in parts))


def _loop(rows: list[int], do: _Part, redo: _Part) -> _Part:
    """Turns of do (redo do)*: a part that can be skipped makes the other one its own neighbour."""
    add_pairs(rows, do.last, redo.first)
    add_pairs(rows, redo.last, do.first)
    if redo.skippable:
        add_pairs(rows, do.last, do.first)
    if not do.skippable:
        return do._replace(labels=do.labels | redo.labels)
    add_pairs(rows, redo.last, redo.first)
    return _Part(do.first | redo.first, do.last | redo.last, do.labels | redo.labels, skippable=True, shortest=0)


def _ordered(rows: list[int], node: Operator, parts: Sequence[_Part]) -> _Part:
    """PARALLEL and PARTIAL_ORDER.

    Of two unordered parts any label can follow any other: both can be brought to just before it, and nothing has to
    come between. Of two ordered ones only an end can meet a beginning, and only if all that must come between can be
    skipped. A part begins the trace if all before it can be skipped.
    """
    after = successors(len(parts), node.order)
    before = predecessors(after)
    firm = sum(1 << place for place, part in enumerate(parts) if not part.skippable)
    first = last = labels = 0
    for place, part in enumerate(parts):
        labels |= part.labels
        first |= 0 if before[place] & firm else part.first
        last |= 0 if after[place] & firm else part.last
        for later in bits(after[place]):
            if not after[place] & before[later] & firm:
                add_pairs(rows, part.last, parts[later].first)
        add_pairs(rows, part.labels, _unordered(parts, place, after[place] | before[place]))
    return _Part(first, last, labels, not firm, sum(part.shortest for part in parts))


def _unordered(parts: Sequence[_Part], place: int, ordered: int) -> int:
    """Labels of all other parts that are not ordered with this one."""
    labels = 0
    for other, part in enumerate(parts):
        if other != place and not ordered >> other & 1:
            labels |= part.labels
    return labels
