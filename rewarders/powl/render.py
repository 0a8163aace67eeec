"""Write process models as text and as JSON, which the parsers read back to an equal model, and as Mermaid flowcharts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import count, pairwise
from typing import Any, Final, NamedTuple

from tfgrpo.rewarders.powl.model import Activity, Model, Operator, fold, sites

_SPECIAL: Final = re.compile(r"(?!(?<=\w)[-.](?=\w))[^\w ,:!?/]")
"""Everything that might be markup."""


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


def to_value(model: Model) -> dict[str, Any]:
    """Return the JSON object, as dictionaries and lists, which ``parse_json`` reads. Nodes without an id get their path."""
    done: list[dict[str, Any]] = []
    for site in reversed([*sites(model)]):
        node = site.node
        value: dict[str, Any] = {"type": node.kind if isinstance(node, Operator) else "SILENT", "id": site.id}
        if isinstance(node, Activity):
            value |= {"type": "ACTIVITY", "label": node.label}
        elif isinstance(node, Operator):
            value["children"] = [done.pop() for _ in node.children]
            if node.kind == "PARTIAL_ORDER":
                value["order"] = [list(pair) for pair in sorted(node.order)]
        done.append(value)
    return done[0]


def to_json(model: Model) -> str:
    """Return one line with the JSON object of ``to_value``."""
    return _dumped(to_value(model))


def _activity(label: str) -> str:
    plain = label.isprintable() and label == label.strip() and not set("()") & set(label)
    return f"ACTIVITY({label})" if plain else f"ACTIVITY[{_dumped(label)}]"


def _dumped(value: Any) -> str:
    """Return JSON in one line: signs that a reader might take for its end are escaped, and all others with them."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)


class _Span(NamedTuple):
    """First and last node of a part of the chart."""

    first: str
    last: str


class _Chart:
    """Lines of a flowchart, and names for its nodes."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names = map("n{}".format, count())

    def node(self, shape: str) -> str:
        name = next(self._names)
        self.lines.append(f"  {name}{shape}")
        return name

    def arrow(self, start: str, end: str) -> None:
        self.lines.append(f"  {start} --> {end}")

    def add(self, node: Model, parts: Sequence[_Span]) -> _Span:
        """Draw a node whose children are drawn."""
        if not isinstance(node, Operator):
            here = self.node(f'["{_SPECIAL.sub(_entity, node.label)}"]' if isinstance(node, Activity) else '((" "))')
            return _Span(here, here)
        if len(parts) == 1:
            return parts[0]
        if node.kind == "SEQUENCE":
            for left, right in pairwise(parts):
                self.arrow(left.last, right.first)
            return _Span(parts[0].first, parts[-1].last)
        gate = '{"+"}' if node.kind in ("PARALLEL", "PARTIAL_ORDER") else '{"×"}'
        span = _Span(self.node(gate), self.node(gate))
        if node.kind == "LOOP":
            self._between(span, parts[0])
            self._between(_Span(span.last, span.first), parts[1])
            return span
        waiting, awaited = {later for _, later in node.order}, {earlier for earlier, _ in node.order}
        for child, part in enumerate(parts):
            self._between(span, part, first=child not in waiting, last=child not in awaited)
        for earlier, later in sorted(node.order):
            self.arrow(parts[earlier].last, parts[later].first)
        return span

    def _between(self, span: _Span, part: _Span, *, first: bool = True, last: bool = True) -> None:
        if first:
            self.arrow(span.first, part.first)
        if last:
            self.arrow(part.last, span.last)


def to_mermaid(model: Model) -> str:
    """Return a flowchart from a start to an end. ``×`` marks a choice and the turns of a loop, ``+`` parallel branches.

    A silent step is a small empty circle. In a partial order an arrow means: only after the other is finished.
    Labels are escaped.
    """
    chart = _Chart()
    start = chart.node('(("start"))')
    span = fold(model, chart.add)
    chart.arrow(start, span.first)
    chart.arrow(span.last, chart.node('((("end")))'))
    return "\n".join(["flowchart LR", *chart.lines])


def _entity(found: re.Match[str]) -> str:
    """Return what Mermaid reads as the character: ``#59;`` is the one with that number."""
    character = found[0]
    if character == "\n":
        return "<br/>"
    return f"#{ord(character)};" if character.isprintable() else " "
