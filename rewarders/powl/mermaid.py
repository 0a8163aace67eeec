"""What does a process model look like? A Mermaid flowchart, which code hosts draw as a picture; lays nothing out itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from tfgrpo.rewarders.powl.model import Activity, Model, Operator, fold
from tfgrpo.rewarders.powl.partial_order import predecessors, successors

Direction = Literal["LR", "TB"]

_SPECIAL: Final = re.compile(r"(?!(?<=\w)[-.](?=\w))[^\w ,:!?/]")
_EXCLUSIVE, _PARALLEL = "×", "+"


class _Span(NamedTuple):
    """Where a part of the picture is entered and left."""

    first: str
    last: str


class _Picture:
    """The lines of a flowchart, and names for its nodes."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def node(self, shape: str) -> str:
        name = f"n{self._count}"
        self._count += 1
        self.lines.append(f"  {name}{shape}")
        return name

    def gate(self, sign: str) -> str:
        return self.node(f'{{"{sign}"}}')

    def arrow(self, begin: str, end: str) -> None:
        self.lines.append(f"  {begin} --> {end}")


def to_mermaid(model: Model, *, direction: Direction = "LR") -> str:
    """A flowchart from a start to an end. ``×`` marks a choice and the turns of a loop, ``+`` what runs side by side.

    A silent step is a small empty circle. In a partial order an arrow means: only after the other is finished.
    Labels are quoted, whatever they hold.
    """
    picture = _Picture()
    begin = picture.node('(("start"))')

    def combine(node: Model, parts: Sequence[_Span]) -> _Span:
        if isinstance(node, Operator):
            return _drawn(picture, node, parts)
        here = picture.node(f'["{_escaped(node.label)}"]' if isinstance(node, Activity) else '((" "))')
        return _Span(here, here)

    span = fold(model, combine)
    picture.arrow(begin, span.first)
    picture.arrow(span.last, picture.node('((("end")))'))
    return "\n".join([f"flowchart {direction}", *picture.lines])


def _drawn(picture: _Picture, node: Operator, parts: Sequence[_Span]) -> _Span:
    if node.kind == "LOOP":
        return _loop(picture, parts[0], parts[1])
    if len(parts) == 1:
        return parts[0]
    if node.kind == "SEQUENCE":
        for left, right in pairwise(parts):
            picture.arrow(left.last, right.first)
        return _Span(parts[0].first, parts[-1].last)
    sign = _EXCLUSIVE if node.kind == "XOR" else _PARALLEL
    span = _Span(picture.gate(sign), picture.gate(sign))
    after = successors(len(parts), node.order)
    before = predecessors(after)
    for position, part in enumerate(parts):
        if not before[position]:
            picture.arrow(span.first, part.first)
        if not after[position]:
            picture.arrow(part.last, span.last)
    for earlier, later in sorted(node.order):
        picture.arrow(parts[earlier].last, parts[later].first)
    return span


def _loop(picture: _Picture, do: _Span, redo: _Span) -> _Span:
    span = _Span(picture.gate(_EXCLUSIVE), picture.gate(_EXCLUSIVE))
    picture.arrow(span.first, do.first)
    picture.arrow(do.last, span.last)
    picture.arrow(span.last, redo.first)
    picture.arrow(redo.last, span.first)
    return span


def _escaped(label: str) -> str:
    """Mermaid reads ``#59;`` as the character with that number; everything that might be markup is written so."""
    return _SPECIAL.sub(_entity, label)


def _entity(found: re.Match[str]) -> str:
    character = found[0]
    if character == "\n":
        return "<br/>"
    return f"#{ord(character)};" if character.isprintable() else " "
