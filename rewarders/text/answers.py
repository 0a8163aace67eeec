"""Find the answer that a text states, as text or as a number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from tfgrpo.rewarders.text.number_text import Number, last_number, only_number, stated_number

LOOKED_AT: Final = 50_000
"""Characters from the end of a text that are searched: answers are at the end, and runaway replies are long."""

Source: TypeAlias = Literal["answer line", "box", "text"]

_ANSWER_LINE: Final = re.compile(
    r"^[ \t>*_#`-]{0,12}(?:the[ \t]+)?(?:final[ \t]+)?answer[ \t*_`]{0,6}[:\uff1a][ \t*_`]{0,6}",
    re.IGNORECASE | re.MULTILINE,
)
_BOX: Final = re.compile(r"\\f?boxed[ \t]{0,3}\{")


_INTEGER: Final = re.compile("[+-]?[0-9]{1,18}")
_MARK: Final = "####"
"""Before the answer, in references of the GSM8K form."""


@dataclass(frozen=True, slots=True)
class Stated:
    """The part of a text that states its answer."""

    text: str
    source: Source


def stated_answer(text: str) -> Stated:
    r"""Return the text after the last ``Answer:`` line, else the content of the last ``\boxed{}``, else the whole text.

    Only the rest of an answer line counts, unless it is empty; then the text below does.
    """
    tail = text[-LOOKED_AT:]
    marker = _last(_ANSWER_LINE, tail)
    if marker is None:
        source: Source = "text"
        stated = tail.strip()
    else:
        source = "answer line"
        line, _, below = tail[marker.end() :].partition("\n")
        stated = line.strip() or below.strip()
    box = _last(_BOX, stated)
    if box is None:
        return Stated(stated, source)
    return Stated(_until_closing(stated[box.end() :]).strip(), "box" if source == "text" else source)


def answered_number(text: str) -> Number | None:
    r"""Return the number after the last ``Answer:`` line or in the last ``\boxed{}``, else the last number, or None."""
    # Most references are plain integers, which need no search.
    integer = _integer(text)
    if integer is not None:
        return integer
    stated = stated_answer(text)
    return last_number(stated.text) if stated.source == "text" else stated_number(stated.text)


def reference_number(text: str) -> Number | None:
    """Return the number of a reference; None when it is no single number.

    The text after the last ``####``, else the last ``Answer:`` line, else the only box, else the whole text has to be a
    number.
    """
    integer = _integer(text)
    if integer is not None:
        return integer
    marked = text.rpartition(_MARK)[2]
    stated = stated_answer(marked)
    return None if stated.source == "box" and marked.count("boxed") > 1 else only_number(stated.text)


def _integer(text: str) -> Number | None:
    bare = text.strip()
    return Number(Fraction(int(bare)), percent=False, text=bare) if _INTEGER.fullmatch(bare) else None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = None
    for found in pattern.finditer(text):  # noqa: B007  the last one is wanted
        pass
    return found


def _until_closing(text: str) -> str:
    """Return the text up to the brace that closes an open one; all of it without one."""
    depth = 1
    for position, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return text[:position]
    return text
