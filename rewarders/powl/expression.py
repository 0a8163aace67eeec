"""Parse one expression ``NAME(…)`` at a position, up to its closing parenthesis.

Children are separated by commas or by white space; an extra comma at either end is accepted, two in a row are not. A
label has one of three forms. A bare word ends at white space, a comma or a parenthesis. ``ACTIVITY(label)`` extends to
its closing parenthesis; the label is trimmed and otherwise kept: commas, quotes, line breaks. ``ACTIVITY["label"]`` is a
JSON string, which can write every label.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from tfgrpo.rewarders.powl.model import (
    MAX_DEPTH,
    MAX_NODES,
    OPERATORS,
    ROOT_ID,
    Activity,
    Model,
    Operator,
    OperatorKind,
    Silent,
)
from tfgrpo.rewarders.powl.source import error_at, shortened, skip_space
from tfgrpo.stores.errors import PowlError

LEAVES: Final = ("ACTIVITY", "SILENT")
_NAMES: Final = {name: name for name in (*OPERATORS, *LEAVES, "ORDER")}
"""Words before a parenthesis, each with its canonical name."""
_ALIASES: Final = {
    **_NAMES,
    "SEQ": "SEQUENCE",
    "→": "SEQUENCE",
    "×": "XOR",
    "AND": "PARALLEL",
    "∧": "PARALLEL",
    "↺": "LOOP",
    "PO": "PARTIAL_ORDER",
    "TAU": "SILENT",
}
"""The same with aliases, in capitals."""
_ARROWS: Final = frozenset("<>=|~+^$`→←↔⇒⇐⇔⟶⟵⟹↦➔➜➝➞")
"""Signs between activities that Unicode does not class as punctuation."""

_WORD: Final = re.compile(r"(?P<name>[^\s,()]+)(?P<call>\s*\()?")
_QUOTED: Final = re.compile(r'(?P<name>ACTIVITY)\s*\[\s*(?=")', re.IGNORECASE)
_PARENTHESIS: Final = re.compile(r"[()]")
_CALL: Final = re.compile(r"(?<!\w)([^\W\d]\w*)\s*\(")
_STEP: Final = re.compile(r"\s*(?P<child>\d{1,6})\s*(?P<link>->|[,)])?")
_NO_PAIRS: Final = re.compile(r"\s*\)")
_DECODER: Final = json.JSONDecoder()


class Parsed(NamedTuple):
    """A model and the position after it."""

    model: Model
    end: int
    loose: tuple[int, ...]
    """Positions of children without a comma before them."""


@dataclass(slots=True)
class _Open:
    """An operator whose closing parenthesis is still to come."""

    kind: OperatorKind
    begin: int
    id: str
    children: list[Model] = field(default_factory=list)
    order: frozenset[tuple[int, int]] | None = None
    after_comma: bool = False


def meaning_of(word: str, *, aliases: bool) -> str | None:
    """Return the canonical name of an operator, a leaf or ORDER; None for any other word."""
    return _ALIASES.get(word.upper()) if aliases else _NAMES.get(word)


def no_operator(word: str) -> str:
    """Return the message for an unknown word before a parenthesis."""
    meant = meaning_of(word, aliases=True)
    hint = f"write {meant}" if meant else f"there are {', '.join(OPERATORS)}, and ACTIVITY(label) and SILENT()"
    return f"{shortened(word)} is no operator; {hint}"


def expression_at(text: str, position: int, *, aliases: bool) -> Parsed:
    """Return the model at ``position``. Raises ``PowlError`` with the position of the first mistake."""
    return _Parser(text, aliases).parse(position)


class _Parser:
    """One pass over the text, with the open operators in a list and not on Python's stack.

    A method that reads something takes its position, and returns the position after it.
    """

    def __init__(self, text: str, aliases: bool) -> None:
        self._text = text
        self._meaning = partial(meaning_of, aliases=aliases)
        self._error = partial(error_at, text)
        self._open: list[_Open] = []
        self._nodes = 1
        self._loose: list[int] = []
        self._done: list[Model] = []

    def parse(self, position: int) -> Parsed:
        position = self._node(position, ROOT_ID)
        while self._open:
            position = self._next(skip_space(self._text, position))
        return Parsed(self._done[0], position, tuple(self._loose))

    def _next(self, position: int) -> int:
        """Read one sign, ORDER or child in the innermost operator."""
        here = self._open[-1]
        match self._text[position : position + 1]:
            case "":
                raise self._error(here.begin, f"this {here.kind}( is never closed")
            case ")":
                self._open.pop()
                order = here.order or frozenset()
                self._add(here.begin, partial(Operator, here.kind, tuple(here.children), order, id=here.id))
                return position + 1
            case "," if here.after_comma:
                raise self._error(position, "two commas with nothing between them")
            case ",":
                here.after_comma = True
                return position + 1
            case "(":
                raise self._error(position, "a parenthesis without the name of an operator before it")
        separated, here.after_comma = here.after_comma or not here.children, False
        word = _WORD.match(self._text, position)
        if word and word["call"] and self._meaning(word["name"]) == "ORDER":
            return self._order(here, position, word.end())
        if here.order is not None:
            raise self._error(position, "ORDER(…) comes last; a child follows it")
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self._error(position, f"the model has more than {MAX_NODES:,} nodes")
        if not separated:
            self._loose.append(position)
        return self._node(position, f"{here.id}.{len(here.children)}")

    def _node(self, position: int, identity: str) -> int:
        """Read a leaf, or an operator up to its parenthesis."""
        quoted = _QUOTED.match(self._text, position)
        if quoted and self._meaning(quoted["name"]):
            return self._activity(position, *self._quoted_label(quoted.end()), identity)
        word = _WORD.match(self._text, position)
        if word is None or not word["call"]:
            return self._bare(position, word["name"] if word else "", identity)
        opens = word.end() - 1
        kind = self._meaning(word["name"])
        if kind == "ACTIVITY":
            return self._activity(position, *self._raw_label(position, opens), identity)
        if kind == "SILENT":
            end = skip_space(self._text, opens + 1)
            if self._text[end : end + 1] != ")":
                raise self._error(end, "SILENT() takes nothing; an activity is ACTIVITY(label)")
            self._add(position, partial(Silent, id=identity))
            return end + 1
        if kind not in OPERATORS:
            raise self._error(position, no_operator(word["name"]))
        if len(self._open) >= MAX_DEPTH:
            raise self._error(position, f"the model has more than {MAX_DEPTH} levels")
        self._open.append(_Open(kind, position, identity))
        return opens + 1

    def _bare(self, position: int, word: str, identity: str) -> int:
        """Read a bare word, which is no name of an operator and not punctuation alone."""
        if not self._open:
            raise self._error(position, "expected an operator with its children, or ACTIVITY(label)")
        if self._meaning(word) is not None:
            raise self._error(position, f"{word} stands alone: expected ( behind it")
        if all(unicodedata.category(character)[0] in "PZC" or character in _ARROWS for character in word):
            raise self._error(position, f"{shortened(word)} is no label: write ACTIVITY(label)")
        return self._activity(position, word, position + len(word), identity)

    def _quoted_label(self, begin: int) -> tuple[str, int]:
        """Return the label of ``ACTIVITY["…"]`` and the position after it."""
        try:
            label, end = _DECODER.raw_decode(self._text, begin)
        except json.JSONDecodeError as error:
            raise self._error(error.pos, f"the label in ACTIVITY[…] is no JSON string: {error.msg}") from None
        end = skip_space(self._text, end)
        if self._text[end : end + 1] != "]":
            raise self._error(end, "expected ] after the label")
        return label, end + 1

    def _raw_label(self, position: int, opens: int) -> tuple[str, int]:
        """Return the label of ``ACTIVITY(…)`` and the position after it."""
        depth = 0
        for found in _PARENTHESIS.finditer(self._text, opens):
            depth += 1 if found[0] == "(" else -1
            if depth == 0:
                label = self._text[opens + 1 : found.start()]
                for call in _CALL.finditer(label):
                    if self._meaning(call[1]) is not None:
                        reason = f"{call[1]}( inside ACTIVITY(…): is a parenthesis missing before it?"
                        raise self._error(opens + 1 + call.start(), reason)
                return label.strip(), found.end()
        raise self._error(position, "this ACTIVITY( is never closed")

    def _order(self, here: _Open, position: int, begin: int) -> int:
        """Read the pairs of ``ORDER(0->1->2, 0->3)``."""
        if here.kind != "PARTIAL_ORDER" or here.order is not None:
            reason = "one ORDER(…) is enough" if here.order is not None else f"{here.kind} takes no ORDER(…)"
            raise self._error(position, reason)
        if _NO_PAIRS.match(self._text, begin):
            raise self._error(begin, "ORDER has no pairs; leave it out when nothing is ordered")
        pairs: set[tuple[int, int]] = set()
        before: int | None = None
        while step := _STEP.match(self._text, begin):
            begin, child, link = step.end(), int(step["child"]), step["link"]
            if before is not None:
                pairs.add((before, child))
            if link is None or (before is None and link != "->"):
                raise self._error(
                    begin - len(link or ""), "expected -> and the number of a child, as in ORDER(0->1, 0->2)"
                )
            if link == ")":
                here.order = frozenset(pairs)
                return begin
            before = child if link == "->" else None
        raise self._error(skip_space(self._text, begin), "expected the number of a child, from 0")

    def _activity(self, position: int, label: str, end: int, identity: str) -> int:
        if not label.strip():
            raise self._error(position, "this activity has no label")
        self._add(position, partial(Activity, label, id=identity))
        return end

    def _add(self, begin: int, make: Callable[[], Model]) -> None:
        """Make a node of the innermost operator, or the root; an error gets its position."""
        try:
            node = make()
        except PowlError as error:
            raise self._error(begin, error.reason) from None
        (self._open[-1].children if self._open else self._done).append(node)
