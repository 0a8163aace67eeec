"""Parse a process model from a JSON object: strict JSON without surrounding text.

Unknown fields of a node are ignored, except where that would lose a part of the model: children of an activity, an order
of anything but a PARTIAL_ORDER. Of a repeated key the last value counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from tfgrpo.rewarders.powl.model import MAX_DEPTH, MAX_NODES, OPERATORS, ROOT_ID, Activity, Model, Operator, Silent
from tfgrpo.rewarders.powl.source import checked_text, error_at, shortened
from tfgrpo.rewarders.powl.text import without_wrapping
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


class _Value(NamedTuple):
    """A value in the object, with its JSON pointer, and the path that is its default id."""

    value: Any
    pointer: str = ""
    path: str = ROOT_ID
    depth: int = 1


_Make: TypeAlias = Callable[[tuple[Model, ...]], Model]
"""Makes a node with checked fields from its children."""


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
        depth += (found[0] in "[{") - (found[0] in "]}")
        if depth > _NESTING:
            raise error_at(text, found.start(), f"the model has more than {MAX_DEPTH} levels")


def _built(value: Any) -> Model:
    """Check all nodes from the root down, then make them from the leaves up."""
    nodes: list[tuple[str, _Make, int]] = []
    waiting = [_Value(value)]
    while waiting:
        origin = waiting.pop()
        make, children = _read(origin)
        nodes.append((origin.pointer, make, len(children)))
        if len(nodes) > MAX_NODES:
            raise PowlError(f"the model has more than {MAX_NODES:,} nodes", pointer=origin.pointer)
        waiting.extend(reversed(children))
    done: list[Model] = []
    for pointer, make, count in reversed(nodes):
        try:
            done.append(make(tuple(done.pop() for _ in range(count))))
        except PowlError as error:
            raise PowlError(error.reason, pointer=pointer) from None
    return done[0]


def _read(origin: _Value) -> tuple[_Make, list[_Value]]:
    """Check the fields of a node; return what makes it, and the values of its children."""
    value, pointer = origin.value, origin.pointer
    if not isinstance(value, Mapping):
        raise PowlError(f"expected an object, found {_named(value)}", pointer=pointer)
    kind = value.get("type")
    if kind not in TYPES:
        raise PowlError(f"expected one of {', '.join(TYPES)}, found {_named(kind)}", pointer=f"{pointer}/type")
    identity = origin.path if value.get("id") is None else _text(value["id"], f"{pointer}/id")
    if kind in OPERATORS:
        if origin.depth > MAX_DEPTH:
            raise PowlError(f"the model has more than {MAX_DEPTH} levels", pointer=pointer)
        children, below = value.get("children"), f"{pointer}/children"
        if not isinstance(children, list | tuple):
            raise PowlError(f"expected a list of children, found {_named(children)}", pointer=below)
        order = _order(value.get("order"), f"{pointer}/order")
        return partial(Operator, kind, order=order, id=identity), [
            _Value(child, f"{below}/{index}", f"{origin.path}.{index}", origin.depth + 1)
            for index, child in enumerate(children)
        ]
    for lost in ("children", "order"):
        if value.get(lost) not in (None, []):
            raise PowlError(f"{kind} takes no {lost}", pointer=f"{pointer}/{lost}")
    if kind == "SILENT":
        return lambda _: Silent(id=identity), []
    label = _text(value.get("label"), f"{pointer}/label")
    return lambda _: Activity(label, id=identity), []


def _order(value: Any, pointer: str) -> frozenset[tuple[int, int]]:
    if not isinstance(value, list | tuple | None):
        raise PowlError(f"expected a list of pairs, found {_named(value)}", pointer=pointer)
    for index, pair in enumerate(value or ()):
        # Not ``isinstance``: true is an int in Python.
        if not isinstance(pair, list | tuple) or len(pair) != 2 or any(type(position) is not int for position in pair):
            raise PowlError("expected a pair of positions in children, such as [0, 1]", pointer=f"{pointer}/{index}")
    return frozenset((before, after) for before, after in value or ())


def _text(value: Any, pointer: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise PowlError(f"expected text that is not blank, found {_named(value)}", pointer=pointer)
    return value


def _named(value: Any) -> str:
    """Describe a JSON value for a message."""
    match value:
        case None:
            return "nothing"
        case str():
            return shortened(value)
        case bool() | int() | float():
            return json.dumps(value) if abs(value) < 1e15 else "a large number"
        case list() | tuple():
            return "a list"
    return "an object" if isinstance(value, Mapping) else "no JSON value"
