"""Process models as text, such as ``SEQUENCE(ACTIVITY(a), XOR(b, c))``, bare or in an answer, and as JSON.

Children are separated by commas or by white space. A label is a bare word, ``ACTIVITY(label)`` up to its closing parenthesis,
trimmed, or a JSON string in ``ACTIVITY["label"]``. In the answer of a language model, reasoning tags are blanked out, the last
fenced block with an expression is read alone, and the last of several expressions counts. A broken one is an error and never
skipped in favour of another. Prose alone is no model.

JSON, such as ``{"type": "XOR", "children": [{"type": "ACTIVITY", "label": "a"}, …]}``, is strict. Unknown fields of a node are
ignored, except where that would lose a part of the model: children of an activity, an order of anything but a PARTIAL_ORDER.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count, pairwise
from reprlib import repr as brief_repr
from typing import Any, Final, NamedTuple

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
    fold,
    sites,
)
from tfgrpo.rewarders.text.answers import fenced_blocks
from tfgrpo.rewarders.text.rules import shown
from tfgrpo.stores.errors import PowlError
from tfgrpo.stores.json_values import load_json

_LEAVES: Final = ("ACTIVITY", "SILENT")
_NAMES: Final = {name: name for name in (*OPERATORS, *_LEAVES, "ORDER")}
# The same with aliases, in capitals
_ALIASES: Final = _NAMES | {
    "SEQ": "SEQUENCE", "→": "SEQUENCE", "×": "XOR", "AND": "PARALLEL", "∧": "PARALLEL", "↺": "LOOP",
    "PO": "PARTIAL_ORDER", "TAU": "SILENT",
}  # fmt: skip
# Signs between activities that Unicode does not class as punctuation
_ARROWS: Final = frozenset("<>=|~+^$`→←↔⇒⇐⇔⟶⟵⟹↦➔➜➝➞")
_DECODER: Final = json.JSONDecoder()

MAX_DOCUMENT_CHARS: Final = 1_000_000
_EXCERPT: Final = 60
_WORD_CHARS: Final = 40

_SPACE: Final = re.compile(r"\s*")
_WORD: Final = re.compile(r"(?P<name>[^\s,()]+)(?P<call>\s*\()?")
_QUOTED: Final = re.compile(r'(?P<name>ACTIVITY)\s*\[\s*(?=")', re.IGNORECASE)
_PARENTHESIS: Final = re.compile(r"[()]")
_CALL: Final = re.compile(r"(?<!\w)([^\W\d]\w*)\s*\(")
_CHAIN: Final = r"\s*\d{1,6}\s*(?:->\s*\d{1,6}\s*)+"
_ORDER: Final = re.compile(rf"({_CHAIN}(?:,{_CHAIN})*)\)")

_TAGS: Final = "think|thinking|thought|reasoning|reflection|scratchpad"
_REASONING: Final = re.compile(rf"<({_TAGS})\b[^<>]*>.*?(?:</\1\s*>|\Z)", re.DOTALL | re.IGNORECASE)
_REASONING_END: Final = re.compile(rf"</(?:{_TAGS})\s*>", re.IGNORECASE)
_OPENING: Final = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*(?:[\w+-]+[ \t]*)?")
_CLOSING: Final = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*")
_FENCE: Final = re.compile(f"^{_OPENING.pattern}$", re.MULTILINE)
_HEAD: Final = re.compile(
    r"""(?P<line>^[^\S\n]*)?(?<!\w)(?P<name>[^\W\d]\w*|[→×∧↺])(?P<gap>\s*)(?:\(|\[\s*(?="))""", re.MULTILINE
)
_PARAGRAPH: Final = re.compile(r"\n[ \t\r]*\n")
_CLOSERS: Final = re.compile(r"[\s).;`]*")
_SURPLUS: Final = re.compile(r"[\s,]*(?P<extra>\))[\s,)]*")
# A smiley, or the number of a list
_DECORATION: Final = re.compile(r"[:;=]-?\)|\n\s*\w{1,2}\)(?=[ \t]+\S)")
_CLOSES_NOTHING: Final = "this ) closes nothing: did the model end too early?"


def to_text(model: Model) -> str:
    """Return one line such as ``SEQUENCE(ACTIVITY(a), XOR(ACTIVITY(b), SILENT()))``; some labels become JSON strings."""

    def combine(node: Model, parts: Sequence[str]) -> str:
        if isinstance(node, Operator):
            steps = ", ".join(f"{before}->{after}" for before, after in sorted(node.order))
            return f"{node.kind}({', '.join([*parts, f'ORDER({steps})'] if steps else parts)})"
        if isinstance(node, Silent):
            return "SILENT()"
        label = node.label
        is_simple = label.isprintable() and label == label.strip() and not set("()") & set(label)
        return f"ACTIVITY({label})" if is_simple else f"ACTIVITY[{_json_line(label)}]"

    return fold(model, combine)


def parse_text(text: str | None, *, aliases: bool = False) -> Model:
    """Parse a text such as ``SEQUENCE(ACTIVITY(a), XOR(b, c))``. Every node gets an id.

    ``aliases`` also accepts SEQ, AND, PO, TAU, →, ×, ∧, ↺ and any case. ``PARTIAL_ORDER(a, b, c, ORDER(0->2, 1->2))``
    counts children from 0. Raises ``PowlError`` with line, column and a caret for everything else, prose included.
    """
    whole = _checked_text(text)
    parsed = _expression(whole, _skip_space(whole, whole.startswith("\ufeff")), aliases)
    try:
        if isinstance(parsed.result, _Mistake) or _skip_space(whole, parsed.end) < len(whole):
            parsed = _in_prose(whole, aliases)
        if isinstance(parsed.result, _Mistake):
            raise parsed.result
    except _Mistake as mistake:
        raise _error_at(whole, *mistake.args) from None
    return parsed.result


def without_wrapping(text: str) -> str:
    """Blank reasoning and fences, at equal length, and all around the last fenced block that starts with ``{``."""
    return _last_block(text, lambda block: block.lstrip().startswith("{"))


class _Mistake(Exception):
    """A position in the text, and what is wrong there."""


class _Parsed(NamedTuple):
    result: Model | _Mistake
    begin: int
    end: int
    is_leaf: bool = False


def _meaning_of(word: str, *, aliases: bool) -> str | None:
    return _ALIASES.get(word.upper()) if aliases else _NAMES.get(word)


def _no_operator(position: int, word: str) -> _Mistake:
    meant = _meaning_of(word, aliases=True)
    hint = f"write {meant}" if meant else f"there are {', '.join(OPERATORS)}, and ACTIVITY(label) and SILENT()"
    return _Mistake(position, f"{shown(word, _WORD_CHARS)} is no operator; {hint}")


def _expression(text: str, begin: int, aliases: bool) -> _Parsed:
    parser = _Parser(text, begin, aliases)
    try:
        return _Parsed(parser.node(ROOT_ID), begin, parser.at)
    except _Mistake as mistake:
        return _Parsed(mistake, begin, parser.at)


class _Parser:
    """One pass over an expression. ``at`` is the position of what is read next; a level of the model is two frames."""

    def __init__(self, text: str, at: int, aliases: bool) -> None:
        self.at = at
        self._text = text
        self._meaning = partial(_meaning_of, aliases=aliases)
        self._nodes = 0

    def node(self, identity: str, depth: int = 1) -> Model:
        begin = self.at
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _Mistake(begin, f"the model has more than {MAX_NODES:,} nodes")
        quoted, word = _QUOTED.match(self._text, begin), _WORD.match(self._text, begin)
        if quoted and self._meaning(quoted["name"]):
            label = self._quoted_label(quoted.end())
        elif word is None or not word["call"]:
            label = self._bare_label(word["name"] if word else "", depth)
        else:
            self.at = word.end()
            kind = self._meaning(word["name"])
            if kind in OPERATORS:
                return self._operator(kind, begin, identity, depth)
            if kind == "SILENT":
                self._expect(")", "SILENT() takes nothing; an activity is ACTIVITY(label)")
                return Silent(id=identity)
            if kind != "ACTIVITY":
                raise _no_operator(begin, word["name"])
            label = self._raw_label(begin)
        if not label.strip():
            raise _Mistake(begin, "this activity has no label")
        return _made(begin, partial(Activity, label, id=identity))

    def _operator(self, kind: OperatorKind, begin: int, identity: str, depth: int) -> Model:
        if depth > MAX_DEPTH:
            raise _Mistake(begin, f"the model has more than {MAX_DEPTH} levels")
        children: list[Model] = []
        order: frozenset[tuple[int, int]] = frozenset()
        comma = False
        while (sign := self._sign()) != ")":
            if not sign:
                raise _Mistake(begin, f"this {kind}( is never closed")
            if sign == "(":
                raise _Mistake(self.at, "a parenthesis without the name of an operator before it")
            if sign == "," and comma:
                raise _Mistake(self.at, "two commas with nothing between them")
            word = _WORD.match(self._text, self.at)
            if sign == ",":
                self.at += 1
            elif word and word["call"] and self._meaning(word["name"]) == "ORDER":
                if order or kind != "PARTIAL_ORDER":
                    raise _Mistake(self.at, "one ORDER(…) is enough" if order else f"{kind} takes no ORDER(…)")
                order = self._order(word.end())
            elif order:
                raise _Mistake(self.at, "ORDER(…) comes last; a child follows it")
            else:
                children.append(self.node(f"{identity}.{len(children)}", depth + 1))
            comma = sign == ","
        self.at += 1
        return _made(begin, partial(Operator, kind, tuple(children), order, id=identity))

    def _sign(self) -> str:
        self.at = _skip_space(self._text, self.at)
        return self._text[self.at : self.at + 1]

    def _expect(self, sign: str, otherwise: str) -> None:
        if self._sign() != sign:
            raise _Mistake(self.at, otherwise)
        self.at += 1

    def _bare_label(self, word: str, depth: int) -> str:
        if depth == 1:
            raise _Mistake(self.at, "expected an operator with its children, or ACTIVITY(label)")
        if self._meaning(word) is not None:
            raise _Mistake(self.at, f"{word} stands alone: expected ( behind it")
        if all(unicodedata.category(character)[0] in "PZC" or character in _ARROWS for character in word):
            raise _Mistake(self.at, f"{shown(word, _WORD_CHARS)} is no label: write ACTIVITY(label)")
        self.at += len(word)
        return word

    def _quoted_label(self, begin: int) -> str:
        try:
            label, self.at = _DECODER.raw_decode(self._text, begin)
        except json.JSONDecodeError as error:
            raise _Mistake(error.pos, f"the label in ACTIVITY[…] is no JSON string: {error.msg}") from None
        self._expect("]", "expected ] after the label")
        return str(label)

    def _raw_label(self, begin: int) -> str:
        depth = 1
        for sign in _PARENTHESIS.finditer(self._text, self.at):
            depth += 1 if sign[0] == "(" else -1
            if depth == 0:
                for call in _CALL.finditer(self._text, self.at, sign.start()):
                    if self._meaning(call[1]) is not None:
                        reason = f"{call[1]}( inside ACTIVITY(…): is a parenthesis missing before it?"
                        raise _Mistake(call.start(), reason)
                label, self.at = self._text[self.at : sign.start()].strip(), sign.end()
                return label
        raise _Mistake(begin, "this ACTIVITY( is never closed")

    def _order(self, begin: int) -> frozenset[tuple[int, int]]:
        chains = _ORDER.match(self._text, begin)
        if chains is None:
            raise _Mistake(begin, "expected numbers of children, from 0, with -> between, as in ORDER(0->1->2, 0->3)")
        self.at = chains.end()
        return frozenset(pair for chain in chains[1].split(",") for pair in pairwise(map(int, chain.split("->"))))


def _made(begin: int, make: Callable[[], Model]) -> Model:
    try:
        return make()
    except PowlError as error:
        raise _Mistake(begin, error.reason) from None


def _in_prose(original: str, aliases: bool) -> _Parsed:
    if original.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            json.loads(original)
            raise _Mistake(_skip_space(original, 0), "this is JSON: read it with parse_json")
    text = _last_block(original, lambda block: any(_expressions(block, aliases)))
    expressions = [*_expressions(text, aliases)]
    operators = [each for each in expressions if not each.is_leaf]
    if not expressions:
        expected = f"ACTIVITY(label) or one of {', '.join(OPERATORS)} with children"
        raise _Mistake(_skip_space(text, 0), f"no process model found; expected {expected}")
    if not operators and len(expressions) > 1:
        raise _Mistake(expressions[1].begin, "several activities and no operator around them")
    last = (operators or expressions)[-1]
    if not isinstance(last.result, _Mistake):
        _refuse_loose_ends(text, last, operators[:-1])
    return last


def _expressions(text: str, aliases: bool) -> Iterator[_Parsed]:
    closing: dict[int, int] = {}
    waiting: list[int] = []
    for sign in _PARENTHESIS.finditer(text):
        if sign[0] == "(":
            waiting.append(sign.start())
        elif waiting:
            closing[waiting.pop()] = sign.end()
    meaning_of = partial(_meaning_of, aliases=aliases)
    first = next((index for index, character in enumerate(text) if character.isalnum()), len(text))
    last = next((index for index in reversed(range(len(text))) if text[index].isalnum()), -1)
    position = 0
    while head := _HEAD.search(text, position):
        begin, position = head.start("name"), head.end()
        meaning, closed = meaning_of(head["name"]), closing.get(position - 1)
        if meaning in OPERATORS or meaning in _LEAVES:
            # With a space before its parenthesis, within a line, it is prose: "a SEQUENCE (in my eyes)".
            if head["gap"] and head["line"] is None:
                continue
            parsed = _expression(text, begin, aliases)
            is_broken = isinstance(parsed.result, _Mistake)
            end = max(closed or len(text), position) if is_broken else parsed.end
            # ``XOR(…)`` in a sentence names the operator and is no broken model, unless it is all there is.
            is_all = begin <= first and last < end
            if is_all or not is_broken or any(map(str.isalnum, text[position:end])):
                yield parsed._replace(end=end, is_leaf=meaning in _LEAVES)
            position = end  # what is inside another one is none
        elif closed is not None and not head["gap"]:
            calls = {meaning_of(call["name"]) for call in _HEAD.finditer(text, position, closed)}
            if calls - {None, "ORDER"}:
                yield _Parsed(_no_operator(begin, head["name"]), begin, closed)
            position = closed


def _refuse_loose_ends(text: str, chosen: _Parsed, others: Sequence[_Parsed]) -> None:
    """Refuse a surplus closing parenthesis in the same paragraph: the model may have ended too early."""
    if others and (gap := _SURPLUS.fullmatch(text, others[-1].end, chosen.begin)):
        raise _Mistake(gap.start("extra"), _CLOSES_NOTHING)
    if not others and _CLOSERS.fullmatch(text, chosen.end):
        return
    blank = _PARAGRAPH.search(text, chosen.end)
    behind = _DECORATION.sub(_blanked, text[chosen.end : blank.start() if blank else len(text)])
    depth = max(0, text.count("(", 0, chosen.begin) - text.count(")", 0, chosen.begin))
    for sign in _PARENTHESIS.finditer(behind):
        depth += 1 if sign[0] == "(" else -1
        if depth < 0:
            raise _Mistake(chosen.end + sign.start(), _CLOSES_NOTHING)


def _last_block(text: str, is_model: Callable[[str], bool]) -> str:
    """Blank reasoning, and all around the last fenced block that is a model; without one, only the fences."""
    text = _REASONING.sub(_blanked, text)
    # Some servers cut off the opening tag: text before a remaining closing tag is reasoning too.
    for left_over in [*_REASONING_END.finditer(text)][-1:]:
        text = _spaces(text[: left_over.end()]) + text[left_over.end() :]
    for begin, end in reversed([*fenced_blocks(text.replace("\r\n", " \n"), _OPENING, _CLOSING)]):
        if is_model(text[begin:end]):
            return _spaces(text[:begin]) + text[begin:end] + _spaces(text[end:])
    return _FENCE.sub(_blanked, text)


def _spaces(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _blanked(match: re.Match[str]) -> str:
    return _spaces(match[0])


def _checked_text(text: object) -> str:
    if text is not None and not isinstance(text, str):
        raise PowlError(f"expected a text, received {type(text).__name__}")
    if text is None or not text.strip():
        raise PowlError("there is no text")
    if len(text) > MAX_DOCUMENT_CHARS:
        raise PowlError(f"the text has {len(text):,} characters; at most {MAX_DOCUMENT_CHARS:,} are read")
    return text


def _skip_space(text: str, position: int) -> int:
    space = _SPACE.match(text, position)
    return space.end() if space else position


def _error_at(text: str, position: int, reason: str) -> PowlError:
    # Line and column count from 1.
    begin, end = text.rfind("\n", 0, position) + 1, text.find("\n", position)
    end = len(text) if end < 0 else end
    left, right = max(begin, position - _EXCERPT), min(end, position + _EXCERPT)
    before, after = "…" if left > begin else "", "…" if right < end else ""
    excerpt = "".join(each if each.isprintable() else " " for each in f"{before}{text[left:right]}{after}").rstrip()
    caret = " " * (len(before) + position - left) + "^"
    number = text.count("\n", 0, position) + 1
    return PowlError(reason, line=number, column=position - begin + 1, excerpt=f"{excerpt}\n{caret}")


def _json_line(value: Any) -> str:
    # Signs that a reader might take for the end of the line are escaped, and all others with them.
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)


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
    return _json_line(to_value(model))


def parse_json(source: str | Mapping[str, Any] | None, *, fenced: bool = False) -> Model:
    """Parse a JSON object. A mapping is an object that is parsed already.

    ``id`` is optional; a node without one gets its path (``n.0.2``). ``fenced`` also accepts the reply of a language model
    with the object in a code fence, after reasoning in tags. Raises ``PowlError``: with line and column for invalid JSON,
    with a JSON pointer for an invalid model.
    """
    value: Any = source
    if source is None or isinstance(source, str):
        text = _checked_text(source)
        text = without_wrapping(text) if fenced else text
        try:
            value = load_json(text)
        except json.JSONDecodeError as error:
            raise _error_at(text, error.pos, f"this is no JSON: {error.msg}") from None
        except ValueError as error:
            raise PowlError(f"this JSON cannot be read: {error}") from None
    return _child(value, "", ROOT_ID, count(1))


def model_in(answer: str, *, aliases: bool = False) -> Model:
    """Return the model in an answer with reasoning tags, code fences and, around text, prose. Raises ``PowlError``."""
    if without_wrapping(answer).lstrip().startswith("{"):
        return parse_json(answer, fenced=True)
    return parse_text(answer, aliases=aliases)


def _child(value: Any, pointer: str, path: str, numbers: Iterator[int]) -> Model:
    try:
        return _model(value, path, numbers)
    except PowlError as error:
        raise PowlError(error.reason, pointer=pointer + (error.pointer or "")) from None


def _model(value: Any, path: str, numbers: Iterator[int]) -> Model:
    if not isinstance(value, Mapping):
        raise PowlError(f"expected an object, found {brief_repr(value)}")
    kind = value.get("type")
    if kind not in ("ACTIVITY", "SILENT", *OPERATORS):
        accepted = ", ".join(("ACTIVITY", "SILENT", *OPERATORS))
        raise PowlError(f"expected one of {accepted}, found {brief_repr(kind)}", pointer="/type")
    if next(numbers) > MAX_NODES:
        raise PowlError(f"the model has more than {MAX_NODES:,} nodes")
    identity = path if value.get("id") is None else _text(value, "id")
    if kind in OPERATORS:
        if path.count(".") >= MAX_DEPTH:
            raise PowlError(f"the model has more than {MAX_DEPTH} levels")
        listed, order, children = value.get("children"), _order(value.get("order")), []
        if not isinstance(listed, list | tuple):
            raise PowlError(f"expected a list of children, found {brief_repr(listed)}", pointer="/children")
        for index, child in enumerate(listed):
            children.append(_child(child, f"/children/{index}", f"{path}.{index}", numbers))
        return Operator(kind, tuple(children), order, id=identity)
    for lost in ("children", "order"):
        if value.get(lost) not in (None, []):
            raise PowlError(f"{kind} takes no {lost}", pointer=f"/{lost}")
    return Silent(id=identity) if kind == "SILENT" else Activity(_text(value, "label"), id=identity)


def _order(value: Any) -> frozenset[tuple[int, int]]:
    if not isinstance(value, list | tuple | None):
        raise PowlError(f"expected a list of pairs, found {brief_repr(value)}", pointer="/order")
    for index, pair in enumerate(value or ()):
        # Not ``isinstance``: true is an int in Python.
        if not isinstance(pair, list | tuple) or [*map(type, pair)] != [int, int]:
            raise PowlError("expected a pair of positions in children, such as [0, 1]", pointer=f"/order/{index}")
    return frozenset(map(tuple, value or ()))


def _text(node: Mapping[str, Any], name: str) -> str:
    value = node.get(name)
    if not isinstance(value, str) or not value.strip():
        raise PowlError(f"expected text that is not blank, found {brief_repr(value)}", pointer=f"/{name}")
    return value
