"""Which models are the same process? A structural key that forgets what makes no difference, and a key of labels alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from tfgrpo.rewarders.powl.model import Activity, Model, Operator, Silent, fold, labels_of
from tfgrpo.rewarders.powl.partial_order import covering_pairs, predecessors, successors

ARROW: Final = " → "
_NOTHING: Final = ("SILENT",)


class _Form(NamedTuple):
    """A part of the model in the form that its key is made of."""

    kind: str
    key: str
    parts: tuple[_Form, ...] = ()


def structural_key(model: Model) -> str:
    """A hexadecimal digest, equal for models that differ only in what makes no difference to the process.

    These are: ids; the order of children of XOR, PARALLEL and PARTIAL_ORDER; an operator around a single child; a
    SEQUENCE in a SEQUENCE, an XOR in an XOR, a PARALLEL in a PARALLEL; silent steps that leave no trace in a SEQUENCE
    or a PARALLEL; a PARTIAL_ORDER that is a chain or orders nothing. Other models with equal languages may have
    different keys.
    """
    return fold(model, _form).key


def label_fingerprint(model: Model) -> str:
    """All labels, repeated ones too, in the order of their UTF-16 code units, joined by an arrow.

    It says nothing of operators: ``SEQUENCE(a, b)`` and ``XOR(b, a)`` have the same one.
    """
    return ARROW.join(sorted(labels_of(model), key=lambda label: label.encode("utf-16-be")))


def _form(node: Model, parts: Sequence[_Form]) -> _Form:
    if isinstance(node, Activity):
        return _Form("ACTIVITY", _digest("ACTIVITY", node.label))
    if isinstance(node, Silent):
        return _silent()
    if node.kind == "LOOP":
        return _Form("LOOP", _digest("LOOP", *(part.key for part in parts)))
    if node.kind == "PARTIAL_ORDER":
        return _ordered(node, parts)
    return _flat(node.kind, parts)


def _flat(kind: str, parts: Sequence[_Form]) -> _Form:
    """SEQUENCE, XOR or PARALLEL, with parts of the same kind taken in."""
    taken = [inner for part in parts for inner in (part.parts if part.kind == kind else (part,))]
    if kind != "XOR":
        taken = [part for part in taken if part.kind != "SILENT"]
    if kind != "SEQUENCE":
        taken.sort(key=lambda part: part.key)
    if not taken:
        return _silent()
    return taken[0] if len(taken) == 1 else _Form(kind, _digest(kind, *(part.key for part in taken)), tuple(taken))


def _ordered(node: Operator, parts: Sequence[_Form]) -> _Form:
    """A PARTIAL_ORDER: silent parts leave, what they separated stays ordered."""
    seen = [position for position, part in enumerate(parts) if part.kind != "SILENT"]
    mask = sum(1 << position for position in seen)
    after = [later & mask if mask >> place & 1 else 0 for place, later in enumerate(successors(len(parts), node.order))]
    if not any(after):
        return _flat("PARALLEL", parts)
    by_place = sorted(seen, key=lambda position: after[position].bit_count(), reverse=True)
    if [after[position].bit_count() for position in by_place] == list(range(len(seen)))[::-1]:
        return _flat("SEQUENCE", [parts[position] for position in by_place])
    return _Form("PARTIAL_ORDER", _digest("PARTIAL_ORDER", *_colours(parts, seen, after)))


def _colours(parts: Sequence[_Form], seen: Sequence[int], after: Sequence[int]) -> list[str]:
    """A colour for each part from its own key and its neighbours', refined for as long as that tells more parts apart.

    This is colour refinement (Weisfeiler and Leman 1968): it does not depend on the order of the children, and it tells
    apart all orders whose parts have different labels.
    """
    before = predecessors(after)
    later: dict[int, list[int]] = {place: [] for place in seen}
    earlier: dict[int, list[int]] = {place: [] for place in seen}
    for one, other in covering_pairs(after):
        later[one].append(other)
        earlier[other].append(one)
    colours = {
        place: _digest(parts[place].key, str(after[place].bit_count()), str(before[place].bit_count()))
        for place in seen
    }
    told_apart = 0
    while told_apart < len(set(colours.values())):
        told_apart = len(set(colours.values()))
        colours = {
            place: _digest(
                colours[place],
                *sorted(colours[other] for other in later[place]),
                "before",
                *sorted(colours[other] for other in earlier[place]),
            )
            for place in seen
        }
    return sorted(colours.values())


def _silent() -> _Form:
    return _Form("SILENT", _digest(*_NOTHING))


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
