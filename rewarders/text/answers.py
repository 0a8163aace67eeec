"""Where in a text does its final answer stand? Finds the stated answer; never judges or parses it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

LOOKED_AT: Final = 50_000
"""Characters from the end of a text that are searched. An answer stands at the end; a runaway reply costs no time."""

Place: TypeAlias = Literal["answer line", "box", "text"]

_ANSWER_LINE: Final = re.compile(
    r"^[ \t>*_#`-]{0,12}(?:the[ \t]+)?(?:final[ \t]+)?answer[ \t*_`]{0,6}[:\uff1a][ \t*_`]{0,6}",
    re.IGNORECASE | re.MULTILINE,
)
_BOX: Final = re.compile(r"\\f?boxed[ \t]{0,3}\{")


@dataclass(frozen=True, slots=True)
class Stated:
    """The part of a text that states its answer."""

    text: str
    place: Place


def stated_answer(text: str) -> Stated:
    r"""What follows the last ``Answer:`` line, else what the last ``\boxed{}`` holds, else the whole text.

    After an answer line that has something on it, only that line counts; an empty one is answered by what follows.
    """
    tail = text[-LOOKED_AT:]
    marker = _last(_ANSWER_LINE, tail)
    place: Place = "answer line" if marker is not None else "text"
    stated = _rest(tail[marker.end() :]) if marker is not None else tail.strip()
    box = _last(_BOX, stated)
    if box is None:
        return Stated(stated, place)
    return Stated(_until_closing(stated[box.end() :]).strip(), "box" if place == "text" else place)


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = None
    for found in pattern.finditer(text):  # noqa: B007  the last one is wanted
        pass
    return found


def _rest(text: str) -> str:
    line, _, below = text.partition("\n")
    return line.strip() or below.strip()


def _until_closing(text: str) -> str:
    """The text up to the brace that closes the one just opened; all of it when none does."""
    depth = 1
    for position, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return text[:position]
    return text
