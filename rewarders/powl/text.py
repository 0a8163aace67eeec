"""Parse a process model from the text answer of a language model.

Either the whole text is one expression, or an expression is searched in prose: reasoning tags are blanked out, the last
fenced block with an expression is read alone, and the last of several expressions counts. An expression that is broken,
or that ends before its last parenthesis, is an error and never skipped in favour of another. Prose alone is no model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from tfgrpo.rewarders.powl.expression import LEAVES, Parsed, expression_at, meaning_of, no_operator
from tfgrpo.rewarders.powl.model import OPERATORS, Model
from tfgrpo.rewarders.powl.source import checked_text, error_at, skip_space
from tfgrpo.rewarders.text.fences import fenced_blocks
from tfgrpo.stores.errors import PowlError

_REASONING: Final = re.compile(
    r"<(think|thinking|thought|reasoning|reflection|scratchpad)\b[^<>]*>.*?(?:</\1\s*>|\Z)", re.DOTALL | re.IGNORECASE
)
_REASONING_END: Final = re.compile(r"</(?:think|thinking|thought|reasoning|reflection|scratchpad)\s*>", re.IGNORECASE)
_OPENING: Final = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*(?:[\w+-]+[ \t]*)?")
_CLOSING: Final = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*")
_FENCE: Final = re.compile(f"^{_OPENING.pattern}$", re.MULTILINE)
_HEAD: Final = re.compile(
    r"""(?P<line>^[^\S\n]*)?(?<!\w)(?P<name>[^\W\d]\w*|[→×∧↺])(?P<gap>\s*)(?:\(|\[\s*(?="))""", re.MULTILINE
)
_PARENTHESIS: Final = re.compile(r"[()]")
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
    """An expression in prose, or its error."""

    begin: int
    end: int
    result: Parsed | PowlError
    is_leaf: bool = False


def parse_text(text: str | None, *, aliases: bool = False, warn: Callable[[PowlError], object] | None = None) -> Model:
    """Parse a text such as ``SEQUENCE(ACTIVITY(a), XOR(b, c))``. Every node gets an id.

    ``aliases`` also accepts SEQ, AND, PO, TAU, →, ×, ∧, ↺ and any case. A bare word is an activity, and ends at white
    space; ``PARTIAL_ORDER(a, b, c, ORDER(0->2, 1->2))`` counts children from 0. Surplus closing parentheses at the very
    end are accepted. ``warn`` is called for each child without a comma before it: perhaps a label of two words.
    Raises ``PowlError`` with line, column and a caret for everything else, prose included.
    """
    whole = checked_text(text)
    parsed = _alone(whole, aliases) or _in_prose(whole, aliases)
    if warn is not None:
        for position in parsed.loose:
            warn(error_at(whole, position, "no comma before this: is it part of the label before it?"))
    return parsed.model


def without_wrapping(text: str) -> str:
    """Replace reasoning tags and lines of code fences by white space of the same length.

    A fenced block that starts with ``{`` is the answer, the last one of several; then all text around it is blanked.
    """
    return _last_block(text, lambda block: block.lstrip().startswith("{"))


def _alone(text: str, aliases: bool) -> Parsed | None:
    """Return the expression that the whole text is, if it is one."""
    parsed = _read(text, skip_space(text, 1 if text.startswith("\ufeff") else 0), aliases)
    return parsed if isinstance(parsed, Parsed) and skip_space(text, parsed.end) == len(text) else None


def _in_prose(original: str, aliases: bool) -> Parsed:
    _refuse_json(original)
    text = _last_block(original, lambda block: any(_expressions(block, aliases)))
    found = list(_expressions(text, aliases))
    operators = [each for each in found if not each.is_leaf]
    if not found:
        raise error_at(original, skip_space(text, 0), _NOTHING_FOUND)
    if not operators and len(found) > 1:
        raise error_at(text, found[1].begin, "several activities and no operator around them")
    last = (operators or found)[-1]
    if isinstance(last.result, PowlError):
        raise last.result
    _refuse_loose_ends(text, last, operators[:-1])
    return last.result


def _expressions(text: str, aliases: bool) -> Iterator[_Found]:
    """Yield what looks like an expression, from left to right, none inside another."""
    closing = _matches(text)
    first = next((index for index, character in enumerate(text) if character.isalnum()), len(text))
    last = next((index for index in reversed(range(len(text))) if text[index].isalnum()), -1)
    position = 0
    while head := _HEAD.search(text, position):
        begin, position = head.start("name"), head.end()
        meaning = meaning_of(head["name"], aliases=aliases)
        closed = closing.get(position - 1)
        if meaning in OPERATORS or meaning in LEAVES:
            # With a space before its parenthesis, within a line, it is prose: "a SEQUENCE (in my eyes)".
            if head["gap"] and head["line"] is None:
                continue
            result = _read(text, begin, aliases)
            end = result.end if isinstance(result, Parsed) else max(closed or len(text), position)
            # ``XOR(…)`` in a sentence names the operator and is no broken model, unless it is all there is.
            is_all = begin <= first and last < end
            if is_all or isinstance(result, Parsed) or any(map(str.isalnum, text[position:end])):
                yield _Found(begin, end, result, meaning in LEAVES)
            position = end
        elif closed is not None and not head["gap"]:
            if _holds_a_call(text, position, closed, aliases):
                yield _Found(begin, closed, error_at(text, begin, no_operator(head["name"])))
            position = closed


def _read(text: str, begin: int, aliases: bool) -> Parsed | PowlError:
    try:
        return expression_at(text, begin, aliases=aliases)
    except PowlError as error:
        return error


def _holds_a_call(text: str, begin: int, end: int, aliases: bool) -> bool:
    known = (*OPERATORS, *LEAVES)
    return any(meaning_of(found["name"], aliases=aliases) in known for found in _HEAD.finditer(text, begin, end))


def _matches(text: str) -> dict[int, int]:
    """Map each closed opening parenthesis to the position after its end."""
    closing: dict[int, int] = {}
    waiting: list[int] = []
    for found in _PARENTHESIS.finditer(text):
        if found[0] == "(":
            waiting.append(found.start())
        elif waiting:
            closing[waiting.pop()] = found.end()
    return closing


def _refuse_loose_ends(text: str, chosen: _Found, others: Sequence[_Found]) -> None:
    """Refuse a surplus closing parenthesis in the same paragraph: the model may have ended too early.

    At the very end it is accepted, unless there are other expressions, of which the chosen one may be a part.
    """
    if others and (gap := _SURPLUS.fullmatch(text, others[-1].end, chosen.begin)):
        raise error_at(text, gap.start("extra"), _CLOSES_NOTHING)
    if not others and _CLOSERS.fullmatch(text, chosen.end):
        return
    blank = _PARAGRAPH.search(text, chosen.end)
    depth = max(0, text.count("(", 0, chosen.begin) - text.count(")", 0, chosen.begin))
    for found in _PARENTHESIS.finditer(text, chosen.end, blank.start() if blank else len(text)):
        depth += 1 if found[0] == "(" else -1
        if depth < 0:
            if not _is_decoration(text, found.start()):
                raise error_at(text, found.start(), _CLOSES_NOTHING)
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


def _last_block(text: str, is_model: Callable[[str], bool]) -> str:
    """Blank reasoning, and all around the last fenced block that is a model; without one, only the fences."""
    text = _REASONING.sub(lambda found: _spaces_for(found[0]), text)
    # Some servers cut off the opening tag: text before a remaining closing tag is reasoning too.
    left_over = [found.end() for found in _REASONING_END.finditer(text)]
    if left_over:
        text = _spaces_for(text[: left_over[-1]]) + text[left_over[-1] :]
    for begin, end in reversed([*fenced_blocks(text.replace("\r\n", " \n"), _OPENING, _CLOSING)]):
        if is_model(text[begin:end]):
            return _spaces_for(text[:begin]) + text[begin:end] + _spaces_for(text[end:])
    return _FENCE.sub(lambda found: _spaces_for(found[0]), text)


def _spaces_for(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
