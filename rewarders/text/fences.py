"""Find fenced blocks in a text, in one pass over its lines.

The caller defines opening and closing lines. A single pattern would search for the end of each opening anew, which takes
seconds for a repetitive reply with unclosed fences.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

_CANDIDATE: Final = re.compile(r"^[ \t]*(?:`{3}|~{3})", re.MULTILINE)


class Block(NamedTuple):
    """Position of the lines between two fences."""

    begin: int
    end: int


def fenced_blocks(text: str, opening: re.Pattern[str], closing: re.Pattern[str]) -> Iterator[Block]:
    """Yield the blocks from left to right, none inside another. Each pattern matches a line; its first group is the fence.

    A block extends from an opening line to the next closing one with the same fence; an opening without one is skipped.
    Both patterns may match only lines that start with three backticks or tildes, after white space.
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


def _line(text: str, begin: int) -> Block:
    end = text.find("\n", begin)
    return Block(begin, len(text) if end < 0 else end)


def _after(number: int, ascending: list[int]) -> int | None:
    place = bisect_right(ascending, number)
    return ascending[place] if place < len(ascending) else None
