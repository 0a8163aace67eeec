"""Where does a text have fenced blocks? Its lines are walked once, however many fences are opened and never closed.

What opens and what closes a block is the caller's to say; what stands in one, too. A pattern over the whole text would
look for each opening's end anew: a model that repeats itself would hold up everybody on the event loop for seconds.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

_CANDIDATE: Final = re.compile(r"^[ \t]*(?:`{3}|~{3})", re.MULTILINE)


class Block(NamedTuple):
    """The lines between two fences: where they begin and end in the text."""

    begin: int
    end: int


class _Line(NamedTuple):
    begin: int
    end: int


def fenced_blocks(text: str, opening: re.Pattern[str], closing: re.Pattern[str]) -> Iterator[Block]:
    """The blocks from left to right, none inside another. Each pattern is of one line, its first group the fence.

    A block goes from a line that opens to the next one that closes with the same fence; an opening without one is passed
    over. Both patterns may match only lines that begin with three backticks or tildes, after white space.
    """
    lines = [_line(text, found.start()) for found in _CANDIDATE.finditer(text)]
    closers: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        if found := closing.fullmatch(text, *line):
            closers.setdefault(found[1], []).append(number)
    number = 0
    while number < len(lines):
        found = opening.fullmatch(text, *lines[number])
        last = _after(number, closers.get(found[1], [])) if found else None
        if last is not None:
            yield Block(lines[number].end + 1, lines[last].begin)
            number = last
        number += 1


def _line(text: str, begin: int) -> _Line:
    end = text.find("\n", begin)
    return _Line(begin, len(text) if end < 0 else end)


def _after(number: int, ascending: list[int]) -> int | None:
    place = bisect_right(ascending, number)
    return ascending[place] if place < len(ascending) else None
