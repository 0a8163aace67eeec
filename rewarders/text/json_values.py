"""Find fenced blocks in a text, and the JSON value that an answer states: all of it, a fenced one, the only one in prose."""

from __future__ import annotations

import ast
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple, NoReturn

from tfgrpo.stores.canonical import canonical_json
from tfgrpo.stores.errors import RewardError

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
    starts = (found.start() for found in _CANDIDATE.finditer(text))
    lines = [Block(begin, len(text) if (end := text.find("\n", begin)) < 0 else end) for begin in starts]
    closers: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        if found := closing.fullmatch(text, *line):
            closers.setdefault(found[1], []).append(number)
    number = 0
    while number < len(lines):
        found = opening.fullmatch(text, *lines[number])
        ascending = closers.get(found[1], []) if found else []
        place = bisect_right(ascending, number)
        if place < len(ascending):
            yield Block(lines[number].end + 1, lines[ascending[place]].begin)
            number = ascending[place]
        number += 1


_OPENING: Final = re.compile(r"[ \t]*(`{3,}|~{3,})[^`\n]*")
_CLOSING: Final = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*\r?")
_BRACKET: Final = re.compile(r"\{(?=\s*[\"}])|\[(?=\s*[\[{\"\]\d\-tfn])")
_BRACE: Final = re.compile(r"[{}]")


def json_in(text: str) -> Any:
    """Return the JSON value of an answer: all of it, its fenced one, or the only object or array of its prose.

    Raises ``ValueError`` for none, and ``RewardError`` for different ones.
    """
    text = text.strip("\ufeff \t\r\n")
    try:
        return load_json(text)
    except ValueError as error:
        reason = str(error)
    blocks = [*fenced_blocks(text, _OPENING, _CLOSING)]
    values: list[Any] = []
    for begin, end in blocks:
        try:
            values.append(load_json(text[begin:end]))
        except ValueError as error:
            if "json" in text[:begin].rstrip("\r\n").rpartition("\n")[2].lower():
                raise ValueError(f"the fenced JSON cannot be read: {error}") from None
    if not values:
        begins, ends = [0, *(end for _, end in blocks)], [*(begin for begin, _ in blocks), len(text)]
        values = _embedded("\n".join(text[begin:end] for begin, end in zip(begins, ends, strict=True)))
    if len({canonical_json(value) for value in values}) > 1:
        raise RewardError(f"{len(values)} JSON values in the answer, which differ")
    if not values:
        raise ValueError(f"no JSON in the answer: {reason}")
    return values[0]


def _embedded(text: str) -> list[Any]:
    """Return the outermost objects and arrays in prose; arrays without an object only if there is none, as in ``[1]``."""
    values: list[Any] = []
    pieces: list[str] = []
    place = 0
    while opening := _BRACKET.search(text, place):
        pieces.append(text[place : opening.start()])
        try:
            value, place = _DECODER.raw_decode(text, opening.start())
        except (ValueError, RecursionError) as error:
            if opening[0] == "{" or isinstance(error, RecursionError):
                return []
            place = opening.end()  # a remark in brackets
            continue
        values.append(value)
    objects = [value for value in values if "{" in canonical_json(value)]
    # Braces around it may make it a part of a value that is broken.
    return [] if _BRACE.search("".join([*pieces, text[place:]])) else objects or values


def written_value(text: str) -> Any:
    """Return the list or object that a cell of a table has as text: JSON, or Python as pandas writes it; None for neither."""
    read: Callable[[str], Any]
    for read in (load_json, ast.literal_eval) if text.lstrip()[:1] in ("[", "{") else ():
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return read(text.strip())
    return None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def load_json(text: str) -> Any:
    """Parse JSON without NaN and infinity. Raise ``ValueError``, also for text nested too deep."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
