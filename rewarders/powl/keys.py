"""Keys of process models: a structural digest equal for equivalent spellings, and a fingerprint of the labels."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
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
    if isinstance(node, Activity):
        return _Form("ACTIVITY", _digest("ACTIVITY", node.label))
    if isinstance(node, Silent):
        return _SILENT
    if node.kind == "LOOP":
        return _Form("LOOP", _digest("LOOP", *(part.key for part in parts)))
    if node.kind == "PARTIAL_ORDER":
        return _ordered(node, parts)
    return _flat(node.kind, parts)


def _flat(kind: str, parts: Sequence[_Form]) -> _Form:
    """Flatten a SEQUENCE, XOR or PARALLEL into one that has no parts of its kind."""
    flat = [inner for part in parts for inner in (part.parts if part.kind == kind else (part,))]
    if kind != "XOR":
        flat = [part for part in flat if part.kind != "SILENT"]
    if kind != "SEQUENCE":
        flat.sort(key=lambda part: part.key)
    if not flat:
        return _SILENT
    return flat[0] if len(flat) == 1 else _Form(kind, _digest(kind, *(part.key for part in flat)), tuple(flat))


def _ordered(node: Operator, parts: Sequence[_Form]) -> _Form:
    """Normalise a PARTIAL_ORDER: silent parts are removed, and the parts they separated stay ordered."""
    visible = [child for child, part in enumerate(parts) if part.kind != "SILENT"]
    mask = sum(1 << child for child in visible)
    after = [later & mask if mask >> child & 1 else 0 for child, later in enumerate(successors(len(parts), node.order))]
    if not any(after):
        return _flat("PARALLEL", parts)
    chain = sorted(visible, key=lambda child: after[child].bit_count(), reverse=True)
    if [after[child].bit_count() for child in chain] == list(range(len(visible)))[::-1]:
        return _flat("SEQUENCE", [parts[child] for child in chain])
    return _Form("PARTIAL_ORDER", _digest("PARTIAL_ORDER", *_colours(parts, visible, after)))


def _colours(parts: Sequence[_Form], visible: Sequence[int], after: Sequence[int]) -> list[str]:
    """Colour each part by its own key and its neighbours', as long as that distinguishes more parts.

    This is colour refinement (Weisfeiler and Leman 1968): independent of the order of the children, and able to
    distinguish all orders whose parts have different labels.
    """
    before = predecessors(after)
    later: dict[int, list[int]] = {child: [] for child in visible}
    earlier: dict[int, list[int]] = {child: [] for child in visible}
    for one, other in covering_pairs(after):
        later[one].append(other)
        earlier[other].append(one)
    colours = {
        child: _digest(parts[child].key, str(after[child].bit_count()), str(before[child].bit_count()))
        for child in visible
    }
    distinct = 0
    while distinct < len(set(colours.values())):
        distinct = len(set(colours.values()))
        colours = {
            child: _digest(
                colours[child],
                *sorted(colours[other] for other in later[child]),
                "before",
                *sorted(colours[other] for other in earlier[child]),
            )
            for child in visible
        }
    return sorted(colours.values())


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


_SILENT: Final = _Form("SILENT", _digest("SILENT"))
