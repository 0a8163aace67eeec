"""Keys of process models: a structural digest equal for equivalent spellings, and a fingerprint of the labels."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tfgrpo.rewarders.powl.model import Activity, Model, Operator, Silent, fold, labels_of
from tfgrpo.rewarders.powl.partial_order import covering_pairs, predecessors, successors

ARROW: Final = " → "


class _Form(NamedTuple):
    """Normal form of a part of the model, with its key."""

    kind: str
    key: str
    parts: tuple[_Form, ...] = ()


def structural_key(model: Model) -> str:
    """Return a hexadecimal digest, equal for models that differ only in spelling.

    Ignored are: ids; the order of children of XOR, PARALLEL and PARTIAL_ORDER; an operator around a single child; a
    SEQUENCE in a SEQUENCE, an XOR in an XOR, a PARALLEL in a PARALLEL; silent steps in a SEQUENCE or a PARALLEL; whether
    a chain or an empty order is written as PARTIAL_ORDER. Other models with equal languages may have different keys.
    """
    return fold(model, _form).key


def label_fingerprint(model: Model) -> str:
    """Return all labels, with repetitions, in the order of their UTF-16 code units, joined by an arrow.

    Operators are ignored: ``SEQUENCE(a, b)`` and ``XOR(b, a)`` have the same fingerprint.
    """
    # As Java compares strings, so that keys of earlier systems stay the same.
    return ARROW.join(sorted(labels_of(model), key=lambda label: label.encode("utf-16-be")))


def _form(node: Model, parts: Sequence[_Form]) -> _Form:
    if isinstance(node, Silent):
        return _SILENT
    if isinstance(node, Activity):
        return _Form("ACTIVITY", _digest("ACTIVITY", node.label))
    if node.kind == "LOOP":
        return _Form("LOOP", _digest("LOOP", *(part.key for part in parts)))
    return _ordered(node, parts) if node.kind == "PARTIAL_ORDER" else _flat(node.kind, parts)


def _flat(kind: str, parts: Iterable[_Form]) -> _Form:
    """Flatten a SEQUENCE, XOR or PARALLEL into one that has no parts of its kind."""
    flat = [inner for part in parts for inner in (part.parts if part.kind == kind else (part,))]
    if kind != "XOR":
        flat = [part for part in flat if part.kind != "SILENT"]
    if kind != "SEQUENCE":
        flat.sort(key=lambda part: part.key)
    if len(flat) < 2:
        return flat[0] if flat else _SILENT
    return _Form(kind, _digest(kind, *(part.key for part in flat)), tuple(flat))


def _ordered(node: Operator, parts: Sequence[_Form]) -> _Form:
    """Normalise a PARTIAL_ORDER: silent parts are removed, and the parts they separated stay ordered."""
    visible = [child for child, part in enumerate(parts) if part.kind != "SILENT"]
    mask = sum(1 << child for child in visible)
    after = [later & mask if mask >> child & 1 else 0 for child, later in enumerate(successors(len(parts), node.order))]
    if not any(after):
        return _flat("PARALLEL", parts)
    chain = sorted(visible, key=lambda child: -after[child].bit_count())
    if [after[child].bit_count() for child in chain] == [*reversed(range(len(visible)))]:
        return _flat("SEQUENCE", (parts[child] for child in chain))
    return _Form("PARTIAL_ORDER", _digest("PARTIAL_ORDER", *_colours(parts, visible, after)))


def _colours(parts: Sequence[_Form], visible: Sequence[int], after: Sequence[int]) -> list[str]:
    """Colour each part by its own key and its neighbours', as long as that distinguishes more parts.

    This is colour refinement (Weisfeiler and Leman 1968): independent of the order of the children, and able to
    distinguish all orders whose parts have different labels.
    """
    neighbours: dict[int, tuple[list[int], list[int]]] = {child: ([], []) for child in visible}
    for one, other in covering_pairs(after):
        neighbours[one][0].append(other)
        neighbours[other][1].append(one)
    counts = [
        (str(later.bit_count()), str(earlier.bit_count()))
        for later, earlier in zip(after, predecessors(after), strict=True)
    ]
    colours = {child: _digest(parts[child].key, *counts[child]) for child in visible}
    distinct = 0
    while distinct < len(set(colours.values())):
        distinct = len(set(colours.values()))
        seen = {
            child: [sorted(map(colours.__getitem__, side)) for side in sides] for child, sides in neighbours.items()
        }
        colours = {
            child: _digest(colours[child], *later, "before", *earlier) for child, (later, earlier) in seen.items()
        }
    return sorted(colours.values())


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


_SILENT: Final = _Form("SILENT", _digest("SILENT"))
