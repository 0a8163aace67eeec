"""Read JSON as rows: JSON lines, an array, an object that holds one, or objects one after another.

A line that does not parse becomes a ``Problem``, and reading continues.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final

from tfgrpo.pipelines.datasets.rows import DatasetRow
from tfgrpo.pipelines.settings.tree import first_part
from tfgrpo.stores.errors import Problem
from tfgrpo.stores.text import quoted_names

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_ARRAY: Final = "a JSON array of objects"
_COMMENT: Final = "a comment, which JSON does not have"
_LINES: Final = "one JSON object on each line"
_NO_ITEMS: Final = frozenset({"messages", "resourceSpans", "resource_spans"})
"""Members of conversations and traces, whose lists hold no items."""
_SCANNER: Final = json.JSONDecoder()


def json_rows(text: str, path: str, required: Sequence[str]) -> Iterator[DatasetRow | Problem]:
    """Yield every row of a text.

    A single object that is no item, because it lacks what is ``required``, holds the items in its one list of objects.
    """
    at = _past_space(text, 0)
    if text.startswith("[", at):
        yield from _values(text, at + 1, path, array=True)
    elif text.startswith(("/", "#"), at):
        yield Problem(f"{path}:{_line(text, at)}", _COMMENT, f"{_LINES}, or {_ARRAY}")
    elif text.startswith("{", at):
        yield from _objects(text, at, path, required)
    else:
        yield from _lines(text, path)


def _objects(text: str, at: int, path: str, required: Sequence[str]) -> Iterator[DatasetRow | Problem]:
    """Yield the rows of a text that starts with an object."""
    try:
        value, end = _scanned(text, at)
    except ValueError:  # which the rows explain
        unfinished = text[at:].partition("\n")[0].rstrip()[-1:] in {"{", "[", ",", ":"}
        yield from _values(text, at, path) if unfinished else _lines(text, path)
        return
    several, where = "\n" in text[at:end], f"{path}:{_line(text, at)}"
    is_item = all(first_part(name, value) in value for name in required) or not _NO_ITEMS.isdisjoint(value)
    single = _past_space(text, end) == len(text) and not is_item
    members = [*_members(text, at)] if single else []
    within = (_members(text, place, f"{name}.") for name, place, held in members if isinstance(held, dict))
    lists = [each for each in chain(members, *within) if _holds_objects(each[2])]
    keys = [set(held) if isinstance(held, dict) else set[str]() for _, _, held in members]
    if not lists and len(keys) > 1 and set.intersection(*keys):
        yield from _keyed(text, members, path)
    elif len(lists) == 1:
        yield from _values(text, lists[0][1] + 1, path, array=True, whole=False)
    elif lists or (single and several):
        names = quoted_names(name for name, _, _ in lists)
        given = f"with several lists of objects: {names}" if lists else "over several lines"
        accepted = f"{_LINES}, {_ARRAY}, or an object with one list of objects"
        yield Problem(where, f"a JSON object {given}", accepted + (": a file for each of them" if lists else ""))
    elif several:
        yield from _values(text, at, path)
    else:
        yield from _lines(text, path)


def _members(text: str, at: int, before: str = "") -> Iterator[tuple[str, int, Any]]:
    """Yield name, place and value of each member of the object at a place, which is known to be JSON."""
    at = _past_space(text, at + 1)
    while not text.startswith("}", at):
        name, end = _scanned(text, at)
        start = _past_space(text, _past_space(text, end) + 1)  # past the colon
        value, end = _scanned(text, start)
        yield before + name, start, value
        at = _past_space(text, end)
        at = _past_space(text, at + text.startswith(",", at))


def _keyed(text: str, members: Sequence[tuple[str, int, Any]], path: str) -> Iterator[DatasetRow | Problem]:
    """Yield the objects of an object by their names, which are the ids of those without one."""
    line, counted = 1, 0
    for name, start, _ in members:
        line, counted = line + text.count("\n", counted, start), start
        row = _row(text[start : _scanned(text, start)[1]], f"{path}:{line}", "an object for each id")
        yield row if isinstance(row, Problem) else DatasetRow(row.source, {"id": name, **row.values})


def _holds_objects(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _lines(text: str, path: str) -> Iterator[DatasetRow | Problem]:
    """Yield one row a line; blank lines are skipped."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _row(line, f"{path}:{number}", "one JSON object on the line")


def _values(
    text: str, at: int, path: str, *, array: bool = False, whole: bool = True
) -> Iterator[DatasetRow | Problem]:
    """Yield the objects that follow each other from a place on, or those of an array. Stop after text that is no JSON.

    ``whole``: nothing may follow the array.
    """
    accepted = _ARRAY if array else _LINES
    at = _past_space(text, at)
    line, counted = _line(text, at), at
    more = text[at : at + 1] != ("]" if array else "")
    try:
        while more:
            line, counted = line + text.count("\n", counted, at), at  # only what is new: counting all is quadratic
            _, end = _scanned(text, at)
            yield _row(text[at:end], f"{path}:{line}", accepted)
            at = _past_space(text, end)
            more = text.startswith(",", at) if array else at < len(text)
            if array and not more and not text.startswith("]", at):
                raise ValueError(_comment(text, at) or "no JSON: ',' or ']' expected")
            at = _past_space(text, at + more) if array else at
        if array and whole and _past_space(text, at + 1) < len(text):
            at = _past_space(text, at + 1)
            raise ValueError("more text behind the end of the array")
    except ValueError as error:
        yield Problem(f"{path}:{_line(text, at)}", str(error), accepted)


def _row(text: str, where: str, accepted: str) -> DatasetRow | Problem:
    try:
        value = strict_json(text)
    except ValueError as error:
        return Problem(where, str(error), accepted)
    if not isinstance(value, dict):
        kinds = {list: "a list", str: "text", bool: "a truth value", int: "a number", float: "a number"}
        return Problem(where, f"JSON that is {kinds.get(type(value), 'null')}", accepted)
    return DatasetRow(where, value)


def strict_json(text: str) -> object:
    """Parse JSON. Raise ``ValueError`` for duplicate keys, NaN, infinity and half surrogate pairs."""
    try:
        value: object = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        reason = _comment(error.doc, error.pos) or f"no JSON: {error.msg}"
        raise ValueError(f"{reason} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("JSON nested without end") from None
    if "\\ud" in text or "\\uD" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("half a surrogate pair, which is no character") from None
    return value


def _scanned(text: str, at: int) -> tuple[Any, int]:
    """Return the JSON value at a place, and its end. Raise ``ValueError`` if there is none."""
    try:
        return _SCANNER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise ValueError(_comment(error.doc, error.pos) or f"no JSON: {error.msg}") from None
    except RecursionError:
        raise ValueError("JSON nested without end") from None


def _past_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _comment(text: str, at: int) -> str:
    """Return that there is a comment, if there is."""
    return _COMMENT if text.startswith(("//", "/*", "#"), at) else ""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} twice")
    return unique


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name}, which is no JSON number")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)
