"""Which label can come somewhere after which, over all traces of a model? The ``order`` reading, without listing traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfgrpo.rewarders.powl.model import Activity, Model, Operator, fold
from tfgrpo.rewarders.powl.partial_order import add_pairs, predecessors, successors


def eventually_follows(model: Model, index: Mapping[str, int]) -> list[int]:
    """The relation over the language, as masks; ``index`` gives each label its position.

    Every label of a part is in some trace of it, and traces of different parts are chosen freely; so whole parts relate.
    In a LOOP everything can come after everything, itself included.
    """
    rows = [0] * len(index)

    def combine(node: Model, parts: Sequence[int]) -> int:
        if isinstance(node, Activity):
            return 1 << index[node.label]
        labels = 0
        for mask in parts:
            labels |= mask
        if isinstance(node, Operator) and node.kind != "XOR":
            _relate(rows, node, parts, labels)
        return labels

    fold(model, combine)
    return rows


def _relate(rows: list[int], node: Operator, parts: Sequence[int], labels: int) -> None:
    if node.kind == "LOOP":
        add_pairs(rows, labels, labels)
    elif node.kind == "SEQUENCE":
        later = 0
        for mask in reversed(parts):
            add_pairs(rows, mask, later)
            later |= mask
    else:
        before = predecessors(successors(len(parts), node.order))
        for place, mask in enumerate(parts):
            others = 0
            for other, labels_there in enumerate(parts):
                if other != place and not before[place] >> other & 1:
                    others |= labels_there
            add_pairs(rows, mask, others)
