"""Read JSON as rows: JSON lines, an array, an object that holds one, or objects one after another.

Lines are streamed; any other form is read into memory first. A line that does not parse becomes a ``Problem``, and reading
continues.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final, NamedTuple

from tfgrpo.pipelines.datasets.rows import Row
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


def json_rows(stream: BinaryIO, path: str, required: Sequence[str]) -> Iterator[Row | Problem]:
    """Yield every row of a text in UTF-8.

    A single object that is no item, because it lacks what is ``required``, holds the items in its one list of objects.
    """
    start = stream.tell()
    first, more = (next(filter(bytes.strip, stream), b"") for _ in range(2))
    stream.seek(start)
    if more and first[:1] == b"{" and _is_json(first):
        yield from _lines(stream, path)
        return
    text = _JsonText(stream.read().decode())
    stream.seek(start)
    kind = text.peek()
    if kind == "[":
        yield from _array(text, path)
    elif kind in {"/", "#"}:
        yield Problem(f"{path}:{text.line}", _COMMENT, f"{_LINES}, or {_ARRAY}")
    elif kind == "{":
        yield from _objects(text, stream, path, required)
    else:
        yield from _lines(stream, path)


def _is_json(line: bytes) -> bool:
    try:
        _SCANNER.decode(line.decode())
    except (ValueError, RecursionError):
        return False
    return True


def _objects(text: _JsonText, stream: BinaryIO, path: str, required: Sequence[str]) -> Iterator[Row | Problem]:
    """Yield the rows of a text that begins with an object, which the stream has once more."""
    start, line = text.at, text.line
    try:
        members = list(text.members())
        several, alone = text.line > line, not text.peek()
    except ValueError:  # which the rows explain
        end_of_line = text.text[start:].partition("\n")[0].rstrip()[-1:]
        several, alone = end_of_line in {"{", "[", ",", ":"}, False
    single = _single(members, required, f"{path}:{line}", several=several) if alone else None
    if isinstance(single, Problem):
        yield single
    elif single is not None:
        yield from _array(_JsonText(text.text, single.start), path, whole=False)
    elif several:
        yield from _values(_JsonText(text.text), path)
    else:
        yield from _lines(stream, path)


def _single(
    members: Sequence[_Member], required: Sequence[str], where: str, *, several: bool
) -> _Member | Problem | None:
    """Return the list of items that a text's only object holds, what is wrong with it, or None if it is an item itself."""
    names = [member.name for member in members]
    if all(first_part(name, names) in names for name in required) or _NO_ITEMS & {*names}:
        return None
    lists = [member for member in members if member.objects]
    if len(lists) == 1:
        return lists[0]
    accepted = f"{_LINES}, {_ARRAY}, or an object with one list of objects"
    if lists:
        given = f"a JSON object with several lists of objects: {quoted_names(each.name for each in lists)}"
        return Problem(where, given, f"{accepted}: a file for each of them")
    return Problem(where, "a JSON object over several lines", accepted) if several else None


def _lines(stream: BinaryIO, path: str) -> Iterator[Row | Problem]:
    """Yield one row a line; blank lines are skipped."""
    for number, line in enumerate(stream, start=1):
        if line.strip():
            yield _row(line.decode(), f"{path}:{number}", "one JSON object on the line")


def _array(text: _JsonText, path: str, *, whole: bool = True) -> Iterator[Row | Problem]:
    """Yield every object of the array. Stop after text that is no JSON. ``whole``: nothing may follow the array."""
    try:
        for line, value in text.elements():
            yield _row(value, f"{path}:{line}", _ARRAY)
        if whole and text.peek():
            raise ValueError("more text behind the end of the array")
    except ValueError as error:
        yield Problem(f"{path}:{text.line}", str(error), _ARRAY)


def _values(text: _JsonText, path: str) -> Iterator[Row | Problem]:
    """Yield objects that follow each other over several lines. Stop after text that is no JSON."""
    try:
        while text.peek():
            line = text.line
            yield _row(text.value(), f"{path}:{line}", _LINES)
    except ValueError as error:
        yield Problem(f"{path}:{text.line}", str(error), _LINES)


def _row(text: str, where: str, accepted: str) -> Row | Problem:
    try:
        value = strict_json(text)
    except ValueError as error:
        return Problem(where, str(error), accepted)
    if not isinstance(value, dict):
        kinds = {list: "a list", str: "text", bool: "a truth value", int: "a number", float: "a number"}
        return Problem(where, f"JSON that is {kinds.get(type(value), 'null')}", accepted)
    return Row(where, value)


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


class _Member(NamedTuple):
    """A member of an object."""

    name: str
    start: int
    """First character of its value."""
    objects: bool
    """Whether its value is a list of objects, at least one."""


class _JsonText:
    """A text with a place in it, which moves past one value after another."""

    def __init__(self, text: str, at: int = 0) -> None:
        self.text, self.at = text, at
        self._line, self._counted = 1, 0

    @property
    def line(self) -> int:
        """Line of the place, from 1."""
        self._line += self.text.count("\n", self._counted, self.at)  # only what is new: counting all is quadratic
        self._counted = self.at
        return self._line

    def elements(self) -> Iterator[tuple[int, str]]:
        """Yield line and text of the elements of the array that begins here."""
        self._skip("[")
        more = self.peek() != "]" or not self._skip("]")
        while more:
            self.peek()
            yield self.line, self.value()
            more = self._another("]")

    def members(self) -> Iterator[_Member]:
        """Yield the members of the object that begins here."""
        self._skip("{")
        more = self.peek() != "}" or not self._skip("}")
        while more:
            if self.peek() != '"':
                raise ValueError(_comment(self.text, self.at) or "no JSON: a name in double quotes expected")
            name = str(strict_json(self.value()))
            if not self._skip(":"):
                raise ValueError("no JSON: ':' expected")
            kind, start = self.peek(), self.at
            kinds = [value[:1] == "{" for _, value in self.elements()] if kind == "[" else [not self.value()]
            yield _Member(name, start, bool(kinds) and all(kinds))
            more = self._another("}")

    def peek(self) -> str:
        """Skip white space and return the next character; empty at the end."""
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at
        return self.text[self.at : self.at + 1]

    def value(self) -> str:
        """Return the text of the next JSON value. Raise ``ValueError`` if there is none."""
        start = self.at
        try:
            _, self.at = _SCANNER.raw_decode(self.text, start)
        except json.JSONDecodeError as error:
            raise ValueError(_comment(error.doc, error.pos) or f"no JSON: {error.msg}") from None
        except RecursionError:
            raise ValueError("JSON nested without end") from None
        return self.text[start : self.at]

    def _skip(self, sign: str) -> bool:
        """Move past this sign; return whether it is here."""
        here = self.peek() == sign
        self.at += here
        return here

    def _another(self, end: str) -> bool:
        """Move past a comma, or past the end."""
        if self._skip(","):
            return True
        if not self._skip(end):
            raise ValueError(_comment(self.text, self.at) or f"no JSON: ',' or '{end}' expected")
        return False


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
