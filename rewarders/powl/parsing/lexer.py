"""What stands at a position of a text? Words, labels and heads of calls; knows no tree.

A label is read in one of three ways. A bare word ends at white space, a comma or a parenthesis. ``ACTIVITY(label)`` is
read to the parenthesis that closes it, trimmed, and otherwise kept as it is: commas, quotes, line breaks. Everything
else is written ``ACTIVITY["label"]`` with the label as a JSON string, so that every label can be written.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from tfgrpo.rewarders.powl.model import OPERATORS
from tfgrpo.rewarders.powl.parsing.errors import error_at, shortened

LEAVES: Final = ("ACTIVITY", "SILENT")
ORDER: Final = "ORDER"
EXACT: Final[Mapping[str, str]] = MappingProxyType({name: name for name in (*OPERATORS, *LEAVES, ORDER)})
"""Every word that is written before a parenthesis, as it is and as it is meant."""
ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **EXACT,
        "SEQ": "SEQUENCE",
        "→": "SEQUENCE",
        "×": "XOR",
        "AND": "PARALLEL",
        "∧": "PARALLEL",
        "↺": "LOOP",
        "PO": "PARTIAL_ORDER",
        "TAU": "SILENT",
    }
)
"""The same with other names; words are looked up in capitals."""

_ARROWS = frozenset("<>=|~+^$`→←↔⇒⇐⇔⟶⟵⟹↦➔➜➝➞")
"""Signs that stand between activities, which Unicode does not count as punctuation."""
_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[^\s,()]+")
_PARENTHESIS = re.compile(r"[()]")
_QUOTED = re.compile(r'ACTIVITY\s*\[\s*(?=")', re.IGNORECASE)
_STEP = re.compile(r"\s*(\d{1,6})\s*")
_DECODER = json.JSONDecoder()


class Vocabulary(NamedTuple):
    """Which words are names of operators and leaves."""

    names: Mapping[str, str] = EXACT
    any_case: bool = False

    def meaning(self, word: str) -> str | None:
        """Canonical name of a word, or None."""
        return self.names.get(word.upper() if self.any_case else word)


STRICT: Final = Vocabulary()
TOLERANT: Final = Vocabulary(ALIASES, any_case=True)


def no_operator(word: str) -> str:
    """What is wrong with a word before a parenthesis that names nothing."""
    meant = TOLERANT.meaning(word)
    hint = f"write {meant}" if meant else f"there are {', '.join(OPERATORS)}, and ACTIVITY(label) and SILENT()"
    return f"{shortened(word)} is no operator; {hint}"


class Word(NamedTuple):
    """A word at a position, and where the parenthesis behind it opens, if one does."""

    text: str
    begin: int
    end: int
    opens: int | None


class Label(NamedTuple):
    """A label and where the text goes on behind it."""

    text: str
    end: int


def skip_space(text: str, position: int) -> int:
    """The first position from here on that is not white space."""
    found = _SPACE.match(text, position)
    return found.end() if found else position


def word_at(text: str, position: int) -> Word:
    """The word that begins here; empty before a comma, a parenthesis or the end."""
    found = _WORD.match(text, position)
    if found is None:
        return Word("", position, position, None)
    behind = skip_space(text, found.end())
    return Word(found[0], position, found.end(), behind if text[behind : behind + 1] == "(" else None)


def quoted_label_at(text: str, position: int, vocabulary: Vocabulary) -> Label | None:
    """The label of ``ACTIVITY["…"]`` when that stands here. Raises ``PowlError`` when it is begun and broken."""
    found = _QUOTED.match(text, position)
    if found is None or vocabulary.meaning(text[position : position + len("ACTIVITY")]) is None:
        return None
    try:
        label, end = _DECODER.raw_decode(text, found.end())
    except json.JSONDecodeError as error:
        raise error_at(text, error.pos, f"the label in ACTIVITY[…] is no JSON string: {error.msg}") from None
    end = skip_space(text, end)
    if text[end : end + 1] != "]":
        raise error_at(text, end, "expected ] after the label")
    return Label(_not_blank(text, position, label), end + 1)


def raw_label_at(text: str, position: int, opens: int, vocabulary: Vocabulary) -> Label:
    """The label of ``ACTIVITY(…)``, whose word stands at ``position`` and whose parenthesis opens at ``opens``."""
    depth = 0
    for found in _PARENTHESIS.finditer(text, opens):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            _no_call_inside(text, opens + 1, found.start(), vocabulary)
            return Label(_not_blank(text, position, text[opens + 1 : found.start()].strip()), found.end())
    raise error_at(text, position, "this ACTIVITY( is never closed")


def steps_at(text: str, opens: int) -> tuple[frozenset[tuple[int, int]], int]:
    """The pairs of ``ORDER(0->1->2, 0->3)`` and where the text goes on behind it."""
    pairs: set[tuple[int, int]] = set()
    position, before, linked = opens + 1, -1, False
    while True:
        found = _STEP.match(text, position)
        if found is None:
            if not pairs and not linked and text[skip_space(text, position) :][:1] == ")":
                raise error_at(text, position, "ORDER has no pairs; leave it out when nothing is ordered")
            raise error_at(text, skip_space(text, position), "expected the number of a child, from 0")
        after, position = int(found[1]), found.end()
        if linked:
            pairs.add((before, after))
        before = after
        if text.startswith("->", position):
            position, linked = position + 2, True
        elif linked and text[position : position + 1] == ",":
            position, linked = position + 1, False
        elif linked and text[position : position + 1] == ")":
            return frozenset(pairs), position + 1
        else:
            raise error_at(text, position, "expected -> and the number of a child, as in ORDER(0->1, 0->2)")


def bare_label(text: str, word: Word, vocabulary: Vocabulary) -> str:
    """The label a bare word stands for. Raises ``PowlError`` for names of operators, and for dots, dashes and arrows alone."""
    if vocabulary.meaning(word.text) is not None:
        raise error_at(text, word.begin, f"{word.text} stands alone: expected ( behind it")
    if all(unicodedata.category(character)[0] in "PZC" or character in _ARROWS for character in word.text):
        raise error_at(text, word.begin, f"{shortened(word.text)} is no label: write ACTIVITY(label)")
    return word.text


def _no_call_inside(text: str, begin: int, end: int, vocabulary: Vocabulary) -> None:
    for found in re.finditer(r"(?<!\w)([^\W\d]\w*)\s*\(", text[begin:end]):
        if vocabulary.meaning(found[1]) is not None:
            reason = f"{found[1]}( inside ACTIVITY(…): is a parenthesis missing before it?"
            raise error_at(text, begin + found.start(), reason)


def _not_blank(text: str, position: int, label: str) -> str:
    if not label.strip():
        raise error_at(text, position, "this activity has no label")
    return label
