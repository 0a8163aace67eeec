"""Recognise words, labels and call heads at a position of a text, and report errors with line, column and excerpt.

A label has one of three forms. A bare word ends at white space, a comma or a parenthesis. ``ACTIVITY(label)`` extends to
its closing parenthesis; the label is trimmed and otherwise kept: commas, quotes, line breaks. ``ACTIVITY["label"]`` is a
JSON string, which can write every label.
"""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from tfgrpo.rewarders.powl.model import OPERATORS
from tfgrpo.stores.errors import PowlError

MAX_CHARS: Final = 1_000_000
"""Characters of the longest accepted text."""
LEAVES: Final = ("ACTIVITY", "SILENT")
ORDER: Final = "ORDER"
EXACT: Final[Mapping[str, str]] = MappingProxyType({name: name for name in (*OPERATORS, *LEAVES, ORDER)})
"""Words before a parenthesis, each with its canonical name."""
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
"""The same with aliases, in capitals."""

_EXCERPT: Final = 60
"""Characters shown to the left and to the right of the caret."""
_ARROWS = frozenset("<>=|~+^$`→←↔⇒⇐⇔⟶⟵⟹↦➔➜➝➞")
"""Signs between activities that Unicode does not class as punctuation."""
_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[^\s,()]+")
_PARENTHESIS = re.compile(r"[()]")
_QUOTED = re.compile(r'ACTIVITY\s*\[\s*(?=")', re.IGNORECASE)
_STEP = re.compile(r"\s*(\d{1,6})\s*")
_DECODER = json.JSONDecoder()


class Vocabulary(NamedTuple):
    """Names of operators and leaves."""

    names: Mapping[str, str] = EXACT
    any_case: bool = False

    def meaning(self, word: str) -> str | None:
        """Return the canonical name of a word, or None."""
        return self.names.get(word.upper() if self.any_case else word)


STRICT: Final = Vocabulary()
TOLERANT: Final = Vocabulary(ALIASES, any_case=True)


class Word(NamedTuple):
    """A word at a position."""

    text: str
    begin: int
    end: int
    opens: int | None
    """Position of the parenthesis after it, if there is one."""


class Label(NamedTuple):
    """A label and the position after it."""

    text: str
    end: int


# --- errors


def error_at(text: str, position: int, reason: str) -> PowlError:
    """Return the error for a mistake at ``position``: line and column count from 1, a column is a character."""
    breaks = _line_breaks(text)
    number = bisect_left(breaks, position)
    begin = breaks[number - 1] + 1 if number else 0
    end = breaks[number] if number < len(breaks) else len(text)
    left = max(begin, position - _EXCERPT)
    right = min(end, position + _EXCERPT)
    before = "…" if left > begin else ""
    after = "…" if right < end else ""
    excerpt = "".join(each if each.isprintable() else " " for each in f"{before}{text[left:right]}{after}").rstrip()
    caret = " " * (len(before) + position - left) + "^"
    return PowlError(reason, line=number + 1, column=position - begin + 1, excerpt=f"{excerpt}\n{caret}")


@lru_cache(maxsize=1)
def _line_breaks(text: str) -> tuple[int, ...]:
    # Cached for the current text: prose with thousands of broken expressions has thousands of errors.
    return tuple(found.start() for found in re.finditer("\n", text))


def checked_text(text: object) -> str:
    """Return the text. Raises ``PowlError`` when it is no text, blank or too long."""
    if text is not None and not isinstance(text, str):
        raise PowlError(f"expected a text, received {type(text).__name__}")
    if text is None or not text.strip():
        raise PowlError("there is no text")
    if len(text) > MAX_CHARS:
        raise PowlError(f"the text has {len(text):,} characters; at most {MAX_CHARS:,} are read")
    return text


def shortened(text: str) -> str:
    """Return a word of the input, quoted for a message."""
    return repr(text if len(text) <= 40 else f"{text[:39]}…")


def no_operator(word: str) -> str:
    """Return the message for an unknown word before a parenthesis."""
    meant = TOLERANT.meaning(word)
    hint = f"write {meant}" if meant else f"there are {', '.join(OPERATORS)}, and ACTIVITY(label) and SILENT()"
    return f"{shortened(word)} is no operator; {hint}"


# --- tokens


def skip_space(text: str, position: int) -> int:
    """Return the first position from here on that is not white space."""
    found = _SPACE.match(text, position)
    return found.end() if found else position


def word_at(text: str, position: int) -> Word:
    """Return the word at a position; empty before a comma, a parenthesis or the end."""
    found = _WORD.match(text, position)
    if found is None:
        return Word("", position, position, None)
    behind = skip_space(text, found.end())
    return Word(found[0], position, found.end(), behind if text[behind : behind + 1] == "(" else None)


def quoted_label_at(text: str, position: int, vocabulary: Vocabulary) -> Label | None:
    """Return the label of ``ACTIVITY["…"]`` at a position, if there is one. Raises ``PowlError`` when it is broken."""
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
    """Return the label of ``ACTIVITY(…)``, whose word is at ``position`` and whose parenthesis is at ``opens``."""
    depth = 0
    for found in _PARENTHESIS.finditer(text, opens):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            _refuse_call_inside(text, opens + 1, found.start(), vocabulary)
            return Label(_not_blank(text, position, text[opens + 1 : found.start()].strip()), found.end())
    raise error_at(text, position, "this ACTIVITY( is never closed")


def steps_at(text: str, opens: int) -> tuple[frozenset[tuple[int, int]], int]:
    """Return the pairs of ``ORDER(0->1->2, 0->3)`` and the position after it."""
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
    """Return the label of a bare word. Raises ``PowlError`` for names of operators, and for punctuation alone."""
    if vocabulary.meaning(word.text) is not None:
        raise error_at(text, word.begin, f"{word.text} stands alone: expected ( behind it")
    if all(unicodedata.category(character)[0] in "PZC" or character in _ARROWS for character in word.text):
        raise error_at(text, word.begin, f"{shortened(word.text)} is no label: write ACTIVITY(label)")
    return word.text


def _refuse_call_inside(text: str, begin: int, end: int, vocabulary: Vocabulary) -> None:
    for found in re.finditer(r"(?<!\w)([^\W\d]\w*)\s*\(", text[begin:end]):
        if vocabulary.meaning(found[1]) is not None:
            reason = f"{found[1]}( inside ACTIVITY(…): is a parenthesis missing before it?"
            raise error_at(text, begin + found.start(), reason)


def _not_blank(text: str, position: int, label: str) -> str:
    if not label.strip():
        raise error_at(text, position, "this activity has no label")
    return label
