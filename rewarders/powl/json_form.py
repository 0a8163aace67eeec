"""Process models as JSON objects such as ``{"type": "XOR", "children": [{"type": "ACTIVITY", "label": "a"}, …]}``.

It is strict JSON. Unknown fields of a node are ignored, except where that would lose a part of the model: children of an
activity, an order of anything but a PARTIAL_ORDER. Of a repeated key the last value counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NoReturn

from tfgrpo.rewarders.powl.model import (
    MAX_DEPTH,
    MAX_NODES,
    OPERATORS,
    ROOT_ID,
    Activity,
    Model,
    Operator,
    Silent,
    fold,
    sites,
)
from tfgrpo.rewarders.powl.text import checked_text, error_at, json_line, parse_text, shortened, without_wrapping
from tfgrpo.stores.errors import PowlError


def to_value(model: Model) -> dict[str, Any]:
    """Return the JSON object, as dictionaries and lists, which ``parse_json`` reads. Nodes without an id get their path."""
    ids = reversed([site.id for site in sites(model)])

    def combine(node: Model, children: Sequence[dict[str, Any]]) -> dict[str, Any]:
        if isinstance(node, Activity):
            return {"type": "ACTIVITY", "id": next(ids), "label": node.label}
        if isinstance(node, Silent):
            return {"type": "SILENT", "id": next(ids)}
        order = {"order": [list(pair) for pair in sorted(node.order)]} if node.kind == "PARTIAL_ORDER" else {}
        return {"type": node.kind, "id": next(ids), "children": [*children], **order}

    return fold(model, combine)


def to_json(model: Model) -> str:
    """Return one line with the JSON object of ``to_value``."""
    return json_line(to_value(model))


def parse_json(source: str | Mapping[str, Any] | None, *, fenced: bool = False) -> Model:
    """Parse a JSON object. A mapping is an object that is parsed already.

    ``id`` is optional; a node without one gets its path (``n.0.2``). ``order`` of a PARTIAL_ORDER is a list of pairs of
    indices of children. ``fenced`` also accepts the reply of a language model with the object in a code fence, after
    reasoning in tags.
    Raises ``PowlError``: with line and column for invalid JSON, with a JSON pointer for an invalid model.
    """
    value: Any = source
    if source is None or isinstance(source, str):
        text = checked_text(source)
        value = _loaded(without_wrapping(text) if fenced else text)
    return _child(value, "", ROOT_ID, count(1))


def model_in(answer: str, *, aliases: bool = False) -> Model:
    """Return the model in an answer with reasoning tags, code fences and, around text, prose. Raises ``PowlError``."""
    if without_wrapping(answer).lstrip().startswith("{"):
        return parse_json(answer, fenced=True)
    return parse_text(answer, aliases=aliases)


def _loaded(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise error_at(text, error.pos, f"this is no JSON: {error.msg}") from None
    except RecursionError:
        raise PowlError(f"the model has more than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise PowlError(f"this JSON cannot be read: {error}") from None


def _no_constant(name: str) -> NoReturn:
    raise PowlError(f"{name} is no JSON")


def _child(value: Any, place: str, path: str, numbers: Iterator[int]) -> Model:
    """Return a node; pointers of errors begin with its place. A level of the model is two frames."""
    try:
        return _model(value, path, numbers)
    except PowlError as error:
        raise PowlError(error.reason, pointer=place + (error.pointer or "")) from None


def _model(value: Any, path: str, numbers: Iterator[int]) -> Model:
    """Check a node and make it. ``path`` is its default id; ``numbers`` counts the nodes."""
    if not isinstance(value, Mapping):
        raise PowlError(f"expected an object, found {_named(value)}")
    kind = value.get("type")
    if kind not in ("ACTIVITY", "SILENT", *OPERATORS):
        accepted = ", ".join(("ACTIVITY", "SILENT", *OPERATORS))
        raise PowlError(f"expected one of {accepted}, found {_named(kind)}", pointer="/type")
    if next(numbers) > MAX_NODES:
        raise PowlError(f"the model has more than {MAX_NODES:,} nodes")
    identity = path if value.get("id") is None else _text(value, "id")
    if kind in OPERATORS:
        if path.count(".") >= MAX_DEPTH:
            raise PowlError(f"the model has more than {MAX_DEPTH} levels")
        listed, order, children = value.get("children"), _order(value.get("order")), []
        if not isinstance(listed, list | tuple):
            raise PowlError(f"expected a list of children, found {_named(listed)}", pointer="/children")
        for index, child in enumerate(listed):
            children.append(_child(child, f"/children/{index}", f"{path}.{index}", numbers))
        return Operator(kind, tuple(children), order, id=identity)
    for lost in ("children", "order"):
        if value.get(lost) not in (None, []):
            raise PowlError(f"{kind} takes no {lost}", pointer=f"/{lost}")
    return Silent(id=identity) if kind == "SILENT" else Activity(_text(value, "label"), id=identity)


def _order(value: Any) -> frozenset[tuple[int, int]]:
    if not isinstance(value, list | tuple | None):
        raise PowlError(f"expected a list of pairs, found {_named(value)}", pointer="/order")
    for index, pair in enumerate(value or ()):
        # Not ``isinstance``: true is an int in Python.
        if not isinstance(pair, list | tuple) or [*map(type, pair)] != [int, int]:
            raise PowlError("expected a pair of positions in children, such as [0, 1]", pointer=f"/order/{index}")
    return frozenset(map(tuple, value or ()))


def _text(node: Mapping[str, Any], name: str) -> str:
    value = node.get(name)
    if not isinstance(value, str) or not value.strip():
        raise PowlError(f"expected text that is not blank, found {_named(value)}", pointer=f"/{name}")
    return value


def _named(value: Any) -> str:
    """Describe a JSON value for a message."""
    if isinstance(value, str):
        return shortened(value)
    if isinstance(value, int | float):
        return json.dumps(value) if abs(value) < 1e15 else "a large number"
    kinds = {"a list": list | tuple, "an object": Mapping, "nothing": type(None)}
    return next((name for name, kind in kinds.items() if isinstance(value, kind)), "no JSON value")
