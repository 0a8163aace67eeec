"""Parse a process model from a JSON object: strict JSON without surrounding text.

Unknown fields of a node are ignored, except where that would lose a part of the model: children of an activity, an order
of anything but a PARTIAL_ORDER. Of a repeated key the last value counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from tfgrpo.rewarders.powl.model import MAX_DEPTH, MAX_NODES, OPERATORS, ROOT_ID, Activity, Model, Operator, Silent
from tfgrpo.rewarders.powl.parsing.lexer import checked_text, error_at, shortened
from tfgrpo.rewarders.powl.parsing.text import without_wrapping
from tfgrpo.stores.errors import PowlError

TYPES: Final = ("ACTIVITY", "SILENT", *OPERATORS)

_NESTING: Final = 2 * MAX_DEPTH + 50
"""Greatest nesting of brackets: two a level, and some for ignored fields."""
_BRACKET_OR_STRING: Final = re.compile(r'[\[{]|[\]}]|"(?:[^"\\]|\\.)*"?', re.DOTALL)


def parse_json(source: str | Mapping[str, Any] | None, *, fenced: bool = False) -> Model:
    """Parse a JSON object such as ``{"type": "XOR", "children": [{"type": "ACTIVITY", "label": "a"}, …]}``.

    ``id`` is optional; a node without one gets its path (``n.0.2``). ``order`` of a PARTIAL_ORDER is a list of pairs of
    indices of children. ``fenced`` also accepts the reply of a language model with the object in a code fence, after
    reasoning in tags. A mapping is an object that is parsed already.
    Raises ``PowlError``: with line and column for invalid JSON, with a JSON pointer for an invalid model.
    """
    if source is None or isinstance(source, str):
        text = checked_text(source)
        return _built(_loaded(without_wrapping(text) if fenced else text))
    return _built(source)


@dataclass(frozen=True, slots=True)
class _Value:
    """A value in the object, with its JSON pointer, and the path that is its default id."""

    value: Any
    pointer: str
    path: str
    depth: int


@dataclass(frozen=True, slots=True)
class _Node:
    """A node with checked fields and unread children."""

    origin: _Value
    kind: str
    id: str
    label: str = ""
    children: tuple[_Value, ...] = ()
    order: frozenset[tuple[int, int]] = frozenset()


def _loaded(text: str) -> Any:
    _check_nesting(text)
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise error_at(text, error.pos, f"this is no JSON: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise PowlError(f"this JSON cannot be read: {error}") from None


def _no_constant(name: str) -> NoReturn:
    raise PowlError(f"{name} is no JSON")


def _check_nesting(text: str) -> None:
    depth = 0
    for found in _BRACKET_OR_STRING.finditer(text):
        if found[0] in "[{":
            depth += 1
            if depth > _NESTING:
                raise error_at(text, found.start(), f"the model has more than {MAX_DEPTH} levels")
        elif found[0] in "]}":
            depth -= 1


def _built(value: Any) -> Model:
    nodes: list[_Node] = []
    waiting = [_Value(value, "", ROOT_ID, 1)]
    while waiting:
        origin = waiting.pop()
        node = _read(origin)
        nodes.append(node)
        if len(nodes) > MAX_NODES:
            raise PowlError(f"the model has more than {MAX_NODES:,} nodes", pointer=origin.pointer)
        waiting.extend(reversed(node.children))
    done: list[Model] = []
    for node in reversed(nodes):
        done.append(_made(node, tuple(done.pop() for _ in node.children)))
    return done[0]


def _read(origin: _Value) -> _Node:
    value, pointer = origin.value, origin.pointer
    if not isinstance(value, Mapping):
        raise PowlError(f"expected an object, found {_named(value)}", pointer=pointer)
    kind = value.get("type")
    if kind not in TYPES:
        shown = "nothing" if kind is None else shortened(kind) if isinstance(kind, str) else _named(kind)
        raise PowlError(f"expected one of {', '.join(TYPES)}, found {shown}", pointer=f"{pointer}/type")
    identity = origin.path if value.get("id") is None else _text(value["id"], f"{pointer}/id")
    if kind in ("ACTIVITY", "SILENT"):
        for lost in ("children", "order"):
            if value.get(lost) not in (None, []):
                raise PowlError(f"{kind} takes no {lost}", pointer=f"{pointer}/{lost}")
        label = _text(value.get("label"), f"{pointer}/label") if kind == "ACTIVITY" else ""
        return _Node(origin, kind, identity, label)
    if origin.depth > MAX_DEPTH:
        raise PowlError(f"the model has more than {MAX_DEPTH} levels", pointer=pointer)
    return _Node(origin, kind, identity, "", _children(origin), _order(value.get("order"), f"{pointer}/order"))


def _children(origin: _Value) -> tuple[_Value, ...]:
    children = origin.value.get("children")
    pointer = f"{origin.pointer}/children"
    if not isinstance(children, list | tuple):
        raise PowlError(f"expected a list of children, found {_named(children)}", pointer=pointer)
    return tuple(
        _Value(child, f"{pointer}/{index}", f"{origin.path}.{index}", origin.depth + 1)
        for index, child in enumerate(children)
    )


def _order(value: Any, pointer: str) -> frozenset[tuple[int, int]]:
    if value is None:
        return frozenset()
    if not isinstance(value, list | tuple):
        raise PowlError(f"expected a list of pairs, found {_named(value)}", pointer=pointer)
    pairs: set[tuple[int, int]] = set()
    for index, pair in enumerate(value):
        if not isinstance(pair, list | tuple) or len(pair) != 2 or any(type(position) is not int for position in pair):
            raise PowlError("expected a pair of positions in children, such as [0, 1]", pointer=f"{pointer}/{index}")
        pairs.add((pair[0], pair[1]))
    return frozenset(pairs)


def _made(node: _Node, children: tuple[Model, ...]) -> Model:
    try:
        if node.kind == "ACTIVITY":
            return Activity(node.label, id=node.id)
        if node.kind == "SILENT":
            return Silent(id=node.id)
        kind = next(kind for kind in OPERATORS if kind == node.kind)
        return Operator(kind, children, node.order, id=node.id)
    except PowlError as error:
        raise PowlError(error.reason, pointer=node.origin.pointer) from None


def _text(value: Any, pointer: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise PowlError(f"expected text that is not blank, found {_named(value)}", pointer=pointer)
    return value


def _named(value: Any) -> str:
    """Describe a JSON value for a message."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return shortened(value)
    if isinstance(value, bool | int | float):
        return json.dumps(value) if abs(value) < 1e15 else "a large number"
    return (
        "a list" if isinstance(value, list | tuple) else "an object" if isinstance(value, Mapping) else "no JSON value"
    )
