"""Write process models as text and as JSON, which the parsers read back to an equal model, and as Mermaid flowcharts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

from tfgrpo.rewarders.powl.model import ROOT_ID, Activity, Model, Operator, check_model, fold
from tfgrpo.rewarders.powl.partial_order import predecessors, successors

Direction = Literal["LR", "TB"]
_SPECIAL: Final = re.compile(r"(?!(?<=\w)[-.](?=\w))[^\w ,:!?/]")
_EXCLUSIVE, _PARALLEL = "×", "+"


def to_text(model: Model, *, brief: bool = False) -> str:
    """Return one line such as ``SEQUENCE(ACTIVITY(a), XOR(ACTIVITY(b), SILENT()))``.

    A label that cannot be parsed from ``ACTIVITY(label)`` is written ``ACTIVITY["…"]``, as a JSON string.
    ``brief`` writes labels alone, ``SEQUENCE(check credit, b)``: for readers, not for parsers.
    """
    write: Callable[[str], str] = str if brief else _activity

    def combine(node: Model, parts: Sequence[str]) -> str:
        if isinstance(node, Operator):
            steps = ", ".join(f"{before}->{after}" for before, after in sorted(node.order))
            return f"{node.kind}({', '.join([*parts, f'ORDER({steps})'] if steps else parts)})"
        return write(node.label) if isinstance(node, Activity) else "SILENT()"

    return fold(model, combine)


def to_json(model: Model) -> str:
    """Return one line of JSON, which ``parse_json`` reads. Nodes without an id get their path."""
    identities = _identities(model)

    def combine(node: Model, parts: Sequence[str]) -> str:
        head = f'"id": {_quoted(identities.pop())}'
        if isinstance(node, Activity):
            return f'{{"type": "ACTIVITY", {head}, "label": {_quoted(node.label)}}}'
        if not isinstance(node, Operator):
            return f'{{"type": "SILENT", {head}}}'
        pairs = [list(pair) for pair in sorted(node.order)]
        order = f', "order": {json.dumps(pairs)}' if node.kind == "PARTIAL_ORDER" else ""
        return f'{{"type": "{node.kind}", {head}, "children": [{", ".join(parts)}]{order}}}'

    return fold(model, combine)


def to_value(model: Model) -> dict[str, Any]:
    """Return the JSON object as dictionaries and lists."""
    value: dict[str, Any] = json.loads(to_json(model))
    return value


def _identities(model: Model) -> list[str]:
    """Return ids in the order in which ``fold`` visits the nodes, last one first."""
    check_model(model)
    waiting = [(model, ROOT_ID)]
    identities: list[str] = []
    while waiting:
        node, path = waiting.pop()
        identities.append(node.id or path)
        if isinstance(node, Operator):
            waiting.extend((child, f"{path}.{index}") for index, child in enumerate(node.children))
    return identities


def _activity(label: str) -> str:
    plain = label.isprintable() and label == label.strip() and not set("()") & set(label)
    return f"ACTIVITY({label})" if plain else f"ACTIVITY[{_quoted(label)}]"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.isprintable())


# Everything that might be markup.


class _Span(NamedTuple):
    """First and last node of a part of the chart."""

    first: str
    last: str


class _Chart:
    """Lines of a flowchart, and names for its nodes."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def node(self, shape: str) -> str:
        name = f"n{self._count}"
        self._count += 1
        self.lines.append(f"  {name}{shape}")
        return name

    def gates(self, sign: str) -> _Span:
        return _Span(self.node(f'{{"{sign}"}}'), self.node(f'{{"{sign}"}}'))

    def arrow(self, start: str, end: str) -> None:
        self.lines.append(f"  {start} --> {end}")


def to_mermaid(model: Model, *, direction: Direction = "LR") -> str:
    """Return a flowchart from a start to an end. ``×`` marks a choice and the turns of a loop, ``+`` parallel branches.

    A silent step is a small empty circle. In a partial order an arrow means: only after the other is finished.
    Labels are escaped.
    """
    chart = _Chart()
    start = chart.node('(("start"))')

    def combine(node: Model, parts: Sequence[_Span]) -> _Span:
        if isinstance(node, Operator):
            return _drawn(chart, node, parts)
        here = chart.node(f'["{_escaped(node.label)}"]' if isinstance(node, Activity) else '((" "))')
        return _Span(here, here)

    span = fold(model, combine)
    chart.arrow(start, span.first)
    chart.arrow(span.last, chart.node('((("end")))'))
    return "\n".join([f"flowchart {direction}", *chart.lines])


def _drawn(chart: _Chart, node: Operator, parts: Sequence[_Span]) -> _Span:
    if node.kind == "LOOP":
        return _loop(chart, parts[0], parts[1])
    if len(parts) == 1:
        return parts[0]
    if node.kind == "SEQUENCE":
        for left, right in pairwise(parts):
            chart.arrow(left.last, right.first)
        return _Span(parts[0].first, parts[-1].last)
    span = chart.gates(_EXCLUSIVE if node.kind == "XOR" else _PARALLEL)
    after = successors(len(parts), node.order)
    before = predecessors(after)
    for position, part in enumerate(parts):
        if not before[position]:
            chart.arrow(span.first, part.first)
        if not after[position]:
            chart.arrow(part.last, span.last)
    for earlier, later in sorted(node.order):
        chart.arrow(parts[earlier].last, parts[later].first)
    return span


def _loop(chart: _Chart, do: _Span, redo: _Span) -> _Span:
    span = chart.gates(_EXCLUSIVE)
    chart.arrow(span.first, do.first)
    chart.arrow(do.last, span.last)
    chart.arrow(span.last, redo.first)
    chart.arrow(redo.last, span.first)
    return span


def _escaped(label: str) -> str:
    # Mermaid reads ``#59;`` as the character with that number.
    return _SPECIAL.sub(_entity, label)


def _entity(found: re.Match[str]) -> str:
    character = found[0]
    if character == "\n":
        return "<br/>"
    return f"#{ord(character)};" if character.isprintable() else " "
