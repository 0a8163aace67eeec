"""Parse a process model from the text answer of a language model.

Either the whole text is one expression, or an expression is searched in prose: reasoning tags and code fences are
blanked out, and the last of several expressions counts. An expression that is broken, or that ends before its last
parenthesis, is an error and never skipped in favour of another. Prose alone is no model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tfgrpo.rewarders.powl.model import OPERATORS, Model
from tfgrpo.rewarders.powl.parsing.expression import Parsed, expression_at
from tfgrpo.rewarders.powl.parsing.lexer import (
    LEAVES,
    STRICT,
    TOLERANT,
    Vocabulary,
    checked_text,
    error_at,
    no_operator,
    skip_space,
)
from tfgrpo.rewarders.text.fences import fenced_blocks
from tfgrpo.stores.errors import PowlError

_REASONING: Final = re.compile(
    r"<(think|thinking|thought|reasoning|reflection|scratchpad)\b[^<>]*>.*?(?:</\1\s*>|\Z)", re.DOTALL | re.IGNORECASE
)
_REASONING_END: Final = re.compile(r"</(?:think|thinking|thought|reasoning|reflection|scratchpad)\s*>", re.IGNORECASE)
_OPENING: Final = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*(?:[\w+-]+[ \t]*)?")
_CLOSING: Final = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*")
_FENCE: Final = re.compile(f"^{_OPENING.pattern}$", re.MULTILINE)
_HEAD: Final = re.compile(r'(?<!\w)(?P<name>[^\W\d]\w*|[→×∧↺])(?P<gap>\s*)(?:\(|\[\s*(?="))')
_PARAGRAPH: Final = re.compile(r"\n[ \t\r]*\n")
_CLOSERS: Final = re.compile(r"[\s).;`]*")
_SURPLUS: Final = re.compile(r"[\s,]*(?P<extra>\))[\s,)]*")
_INDENT: Final = 80
_SMILEY: Final = re.compile(r"[:;=]-?\Z")
_LIST_NUMBER: Final = re.compile(r"\n\s*\w{1,2}\Z")
_LIST_TEXT: Final = re.compile(r"\)[ \t]+\S")
_CLOSES_NOTHING: Final = "this ) closes nothing: did the model end too early?"
_NOTHING_FOUND: Final = (
    f"no process model found; expected ACTIVITY(label) or one of {', '.join(OPERATORS)} with children"
)


class _Found(NamedTuple):
    """An expression in prose: its model, or its error."""

    begin: int
    end: int
    result: Model | PowlError
    loose: tuple[int, ...] = ()
    is_leaf: bool = False


class _Chosen(NamedTuple):
    """A model, and the positions of children without a comma before them."""

    model: Model
    loose: tuple[int, ...]


def parse_text(text: str | None, *, aliases: bool = False, warn: Callable[[PowlError], object] | None = None) -> Model:
    """Parse a text such as ``SEQUENCE(ACTIVITY(a), XOR(b, c))``. Every node gets an id.

    ``aliases`` also accepts SEQ, AND, PO, TAU, →, ×, ∧, ↺ and any case. A bare word is an activity, and ends at white
    space; ``PARTIAL_ORDER(a, b, c, ORDER(0->2, 1->2))`` counts children from 0. Surplus closing parentheses at the very
    end are accepted. ``warn`` is called for each child without a comma before it: perhaps a label of two words.
    Raises ``PowlError`` with line, column and a caret for everything else, prose included.
    """
    whole = checked_text(text)
    vocabulary = TOLERANT if aliases else STRICT
    model, loose = _full(whole, vocabulary) or _around_prose(whole, vocabulary)
    if warn is not None:
        for position in loose:
            warn(error_at(whole, position, "no comma before this: is it part of the label before it?"))
    return model


def without_wrapping(text: str) -> str:
    """Replace reasoning tags and lines of code fences by white space of the same length.

    A fenced block that starts with ``{`` is the answer, the last one of several; then all text around it is blanked.
    """
    blocks = [each for each in fenced_blocks(text, _OPENING, _CLOSING) if text[slice(*each)].lstrip().startswith("{")]
    if blocks:
        begin, end = blocks[-1]
        return _spaces_for(text[:begin]) + text[begin:end] + _spaces_for(text[end:])
    return _blanked(text)


def _full(text: str, vocabulary: Vocabulary) -> _Chosen | None:
    begin = skip_space(text, 1 if text.startswith("\ufeff") else 0)
    try:
        parsed = expression_at(text, begin, vocabulary)
    except PowlError:
        return None
    return _Chosen(parsed.model, parsed.loose) if skip_space(text, parsed.end) == len(text) else None


def _around_prose(original: str, vocabulary: Vocabulary) -> _Chosen:
    _refuse_json(original)
    text = _blanked(original)
    found = list(_expressions(text, vocabulary))
    operators = [each for each in found if not each.is_leaf]
    leaves = [each for each in found if each.is_leaf]
    if not operators and len(leaves) > 1:
        raise error_at(text, leaves[1].begin, "several activities and no operator around them")
    if not found:
        raise error_at(original, skip_space(text, 0), _NOTHING_FOUND)
    last = (operators or leaves)[-1]
    if isinstance(last.result, PowlError):
        raise last.result
    _refuse_loose_ends(text, last, [each for each in operators if each is not last])
    return _Chosen(last.result, last.loose)


def _expressions(text: str, vocabulary: Vocabulary) -> Iterator[_Found]:
    """Yield what looks like an expression, from left to right, none inside another."""
    closing = _matches(text)
    first = next((index for index, character in enumerate(text) if character.isalnum()), len(text))
    last = next((index for index in reversed(range(len(text))) if text[index].isalnum()), -1)
    position = 0
    while head := _HEAD.search(text, position):
        meaning = vocabulary.meaning(head["name"])
        position = head.end()
        if meaning in OPERATORS or meaning in LEAVES:
            if head["gap"] and not _begins_line(text, head.start()):
                continue
            found = _read(text, head, closing, vocabulary)
            position = found.end
            is_all = first >= found.begin and last < found.end
            # ``XOR(…)`` in a sentence names the operator and is no broken model.
            empty = isinstance(found.result, PowlError) and not any(map(str.isalnum, text[head.end() : found.end]))
            if is_all or not empty:
                yield found._replace(is_leaf=meaning in LEAVES)
        elif not head["gap"] and (end := closing.get(head.end() - 1)) is not None:
            position = end
            if _holds_a_call(text, head.end(), end, vocabulary):
                yield _Found(head.start(), end, error_at(text, head.start(), no_operator(head["name"])))


def _read(text: str, head: re.Match[str], closing: dict[int, int], vocabulary: Vocabulary) -> _Found:
    try:
        parsed: Parsed = expression_at(text, head.start(), vocabulary)
    except PowlError as error:
        return _Found(head.start(), max(closing.get(head.end() - 1, len(text)), head.end()), error)
    return _Found(head.start(), parsed.end, parsed.model, parsed.loose)


def _holds_a_call(text: str, begin: int, end: int, vocabulary: Vocabulary) -> bool:
    return any(
        (meaning := vocabulary.meaning(found["name"])) in OPERATORS or meaning in LEAVES
        for found in _HEAD.finditer(text, begin, end)
    )


def _begins_line(text: str, position: int) -> bool:
    while position and text[position - 1] != "\n":
        position -= 1
        if not text[position].isspace():
            return False
    return True


def _matches(text: str) -> dict[int, int]:
    """Map each closed opening parenthesis to the position after its end."""
    closing: dict[int, int] = {}
    waiting: list[int] = []
    for found in re.finditer(r"[()]", text):
        if found[0] == "(":
            waiting.append(found.start())
        elif waiting:
            closing[waiting.pop()] = found.end()
    return closing


def _refuse_loose_ends(text: str, chosen: _Found, others: list[_Found]) -> None:
    """Refuse a surplus closing parenthesis in the same paragraph: the model may have ended too early.

    At the very end it is accepted, unless there are other expressions, of which the chosen one may be a part.
    """
    if others and (gap := _SURPLUS.fullmatch(text, others[-1].end, chosen.begin)):
        raise error_at(text, gap.start("extra"), _CLOSES_NOTHING)
    if not others and _CLOSERS.fullmatch(text, chosen.end):
        return
    blank = _PARAGRAPH.search(text, chosen.end)
    depth = max(0, text.count("(", 0, chosen.begin) - text.count(")", 0, chosen.begin))
    for found in re.finditer(r"[()]", text[chosen.end : blank.start() if blank else len(text)]):
        depth += 1 if found[0] == "(" else -1
        if depth < 0:
            position = chosen.end + found.start()
            if not _is_decoration(text, position):
                raise error_at(text, position, _CLOSES_NOTHING)
            depth = 0


def _is_decoration(text: str, position: int) -> bool:
    """Return whether a closing parenthesis is part of a smiley, or of a list number."""
    before = text[position - _INDENT : position] if position > _INDENT else f"\n{text[:position]}"
    return bool(_SMILEY.search(before) or (_LIST_NUMBER.search(before) and _LIST_TEXT.match(text, position)))


def _refuse_json(text: str) -> None:
    if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return
        raise error_at(text, skip_space(text, 0), "this is JSON: read it with parse_json")


def _blanked(text: str) -> str:
    text = _REASONING.sub(lambda found: _spaces_for(found[0]), text)
    # Some servers cut off the opening tag: text before a remaining closing tag is reasoning too.
    left_over = [found.end() for found in _REASONING_END.finditer(text)]
    if left_over:
        text = _spaces_for(text[: left_over[-1]]) + text[left_over[-1] :]
    return _FENCE.sub(lambda found: _spaces_for(found[0]), text)


def _spaces_for(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
