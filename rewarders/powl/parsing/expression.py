"""Parse one expression ``NAME(…)`` at a position, up to its closing parenthesis.

Children are separated by commas or by white space; an extra comma at either end is accepted, two in a row are not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

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
from tfgrpo.rewarders.powl.parsing.lexer import (
    ORDER,
    Vocabulary,
    Word,
    bare_label,
    error_at,
    no_operator,
    quoted_label_at,
    raw_label_at,
    skip_space,
    steps_at,
    word_at,
)
from tfgrpo.stores.errors import PowlError


class Parsed(NamedTuple):
    """A model and the position after it."""

    model: Model
    end: int
    loose: tuple[int, ...] = ()
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

    def next_id(self) -> str:
        return f"{self.id}.{len(self.children)}"


def expression_at(text: str, position: int, vocabulary: Vocabulary) -> Parsed:
    """Return the model at ``position``. Raises ``PowlError`` with the position of the first mistake."""
    return _Parser(text, vocabulary).parse(position)


class _Parser:
    """One pass over the text, with the open operators in a list and not on Python's stack."""

    def __init__(self, text: str, vocabulary: Vocabulary) -> None:
        self._text = text
        self._vocabulary = vocabulary
        self._open: list[_Open] = []
        self._nodes = 1
        self._loose: list[int] = []

    def parse(self, position: int) -> Parsed:
        word = word_at(self._text, position)
        leaf = self._leaf(word, ROOT_ID)
        if leaf is not None:
            return leaf
        if word.opens is None:
            raise error_at(self._text, position, "expected an operator with its children, or ACTIVITY(label)")
        done: Parsed | int = self._call(word, word.opens, ROOT_ID)
        while not isinstance(done, Parsed):
            done = self._next(done)
        return done

    def _next(self, position: int) -> Parsed | int:
        """Parse one token inside the innermost operator."""
        here = self._open[-1]
        position = skip_space(self._text, position)
        character = self._text[position : position + 1]
        if not character:
            raise error_at(self._text, here.begin, f"this {here.kind}( is never closed")
        if character == ")":
            return self._close(here, position)
        if character == ",":
            if here.after_comma:
                raise error_at(self._text, position, "two commas with nothing between them")
            here.after_comma = True
            return position + 1
        if character == "(":
            raise error_at(self._text, position, "a parenthesis without the name of an operator before it")
        separated, here.after_comma = here.after_comma or not here.children, False
        return self._child(here, position, separated)

    def _child(self, here: _Open, position: int, separated: bool) -> int:
        word = word_at(self._text, position)
        if word.opens is not None and self._vocabulary.meaning(word.text) == ORDER:
            return self._order(here, word, word.opens)
        if here.order is not None:
            raise error_at(self._text, position, "ORDER(…) comes last; a child follows it")
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise error_at(self._text, position, f"the model has more than {MAX_NODES:,} nodes")
        if not separated:
            self._loose.append(position)
        leaf = self._leaf(word, here.next_id())
        if leaf is not None:
            here.children.append(leaf.model)
            return leaf.end
        if word.opens is not None:
            return self._call(word, word.opens, here.next_id())
        label = bare_label(self._text, word, self._vocabulary)
        here.children.append(self._made(word.begin, lambda: Activity(label, id=here.next_id())))
        return word.end

    def _leaf(self, word: Word, identity: str) -> Parsed | None:
        label = quoted_label_at(self._text, word.begin, self._vocabulary)
        meaning = self._vocabulary.meaning(word.text) if word.opens is not None else None
        if word.opens is not None and meaning == "SILENT":
            end = skip_space(self._text, word.opens + 1)
            if self._text[end : end + 1] != ")":
                raise error_at(self._text, end, "SILENT() takes nothing; an activity is ACTIVITY(label)")
            return Parsed(Silent(id=identity), end + 1)
        if word.opens is not None and meaning == "ACTIVITY":
            label = raw_label_at(self._text, word.begin, word.opens, self._vocabulary)
        if label is None:
            return None
        text, end = label
        return Parsed(self._made(word.begin, lambda: Activity(text, id=identity)), end)

    def _call(self, word: Word, opens: int, identity: str) -> int:
        kind = self._vocabulary.meaning(word.text)
        if kind not in OPERATORS:
            raise error_at(self._text, word.begin, no_operator(word.text))
        if len(self._open) >= MAX_DEPTH:
            raise error_at(self._text, word.begin, f"the model has more than {MAX_DEPTH} levels")
        self._open.append(_Open(kind, word.begin, identity))
        return opens + 1

    def _order(self, here: _Open, word: Word, opens: int) -> int:
        if here.kind != "PARTIAL_ORDER" or here.order is not None:
            reason = "one ORDER(…) is enough" if here.order is not None else f"{here.kind} takes no ORDER(…)"
            raise error_at(self._text, word.begin, reason)
        here.order, end = steps_at(self._text, opens)
        return end

    def _close(self, here: _Open, position: int) -> Parsed | int:
        node = self._made(
            here.begin, lambda: Operator(here.kind, tuple(here.children), here.order or frozenset(), id=here.id)
        )
        self._open.pop()
        if not self._open:
            return Parsed(node, position + 1, tuple(self._loose))
        self._open[-1].children.append(node)
        return position + 1

    def _made(self, begin: int, make: Callable[[], Model]) -> Model:
        """Make a node; an error gets its position."""
        try:
            return make()
        except PowlError as error:
            raise error_at(self._text, begin, error.reason) from None
