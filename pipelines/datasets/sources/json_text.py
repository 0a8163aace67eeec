"""Read JSON as rows, from where a stream stands: JSON lines, an array, an object that holds one, or objects in a row.

A line that does not parse becomes a ``Problem``, and reading continues.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final, Literal, NamedTuple

from tfgrpo.pipelines.datasets.sources.base import Row
from tfgrpo.pipelines.settings.tree import first_part
from tfgrpo.stores.errors import Problem
from tfgrpo.stores.text import quoted_names

_CHUNK: Final = 8192
_LONGEST: Final = 1 << 27
"""Characters of one array element: an unclosed bracket would otherwise read the whole file into memory."""
_LITERAL: Final = 16
"""More characters than a literal or an escape has: an error this close to the end of the buffer may be caused by it."""
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_ARRAY: Final = "a JSON array of objects"
_COMMENT: Final = "a comment, which JSON does not have"
_LINES: Final = "one JSON object on each line"
_NO_ITEMS: Final = frozenset({"messages", "resourceSpans", "resource_spans"})
"""Members of conversations and traces, whose lists hold no items."""
_SCANNER: Final = json.JSONDecoder()


class JsonForm(NamedTuple):
    """How a text holds its objects."""

    kind: Literal["lines", "array", "values"]
    """One on a line, in an array, or one after another over several lines."""
    start: int
    """First byte of the rows."""
    line: int = 1
    """Its line."""
    whole: bool = True
    """Nothing follows them."""
    problem: Problem | None = None
    """Why it cannot be read as a whole."""

    def rows(self, stream: BinaryIO, path: str) -> Iterator[Row | Problem]:
        """Yield every row from where the stream stands: at the start of the text, or at a row."""
        if self.problem is not None:
            yield self.problem
        elif self.kind == "lines":
            yield from jsonl_rows(stream, path)
        elif self.kind == "values":
            yield from value_rows(stream, path)
        else:
            yield from array_rows(stream, path, line=self.line, whole=self.whole)


def json_form(stream: BinaryIO, path: str, required: Sequence[str]) -> JsonForm:
    """Return the form of a text, whose first object is read for it.

    A single object that is no item, because it lacks what is ``required``, holds the items in its one list of objects.
    """
    start, text = stream.tell(), _JsonText(stream)
    form = JsonForm("array" if text.peek() == "[" else "lines", start)
    if text.peek() in {"/", "#"}:
        return form._replace(problem=Problem(f"{path}:{text.line}", _COMMENT, f"{_LINES}, or {_ARRAY}"))
    if text.peek() == "{":
        where, first = f"{path}:{text.line}", text.line
        stream.seek(text.position)
        line = stream.readline(_CHUNK)
        over_several = JsonForm("values", start) if line.rstrip()[-1:] in {b"{", b"[", b",", b":"} else form
        stream.seek(start)
        text = _JsonText(stream)
        try:
            members = list(text.members())
            form = JsonForm("values", start) if text.line > first else form
            form = form if text.peek() else _single(members, required, form, where)
        except ValueError:  # which the rows explain
            form = over_several
    return form


def _single(members: Sequence[_Member], required: Sequence[str], form: JsonForm, where: str) -> JsonForm:
    """Return the form of a text with one object only."""
    names = [member.name for member in members]
    if all(first_part(name, names) in names for name in required) or _NO_ITEMS & {*names}:
        return form
    lists = [member for member in members if member.objects]
    if len(lists) == 1:
        return JsonForm("array", lists[0].start, lists[0].line, whole=False)
    accepted = f"{_LINES}, {_ARRAY}, or an object with one list of objects"
    if lists:
        given = f"a JSON object with several lists of objects: {quoted_names(each.name for each in lists)}"
        return form._replace(problem=Problem(where, given, f"{accepted}: a file for each of them"))
    if form.kind == "values":
        return form._replace(problem=Problem(where, "a JSON object over several lines", accepted))
    return form


def jsonl_rows(stream: BinaryIO, path: str) -> Iterator[Row | Problem]:
    """Yield one row a line in UTF-8; blank lines are skipped."""
    position = stream.tell()
    for number, line in enumerate(stream, start=1):
        if line.strip():
            yield _line_row(line, f"{path}:{number}", number, position)
        position += len(line)


def _line_row(line: bytes, where: str, number: int, position: int) -> Row | Problem:
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        return Problem(where, f"no UTF-8 at byte {error.start}", "a line in UTF-8")
    return _object_row(text, where, number, position, "one JSON object on the line")


def _object_row(text: str, where: str, number: int, position: int, accepted: str) -> Row | Problem:
    try:
        value = strict_json(text)
    except ValueError as error:
        return Problem(where, str(error), accepted)
    if not isinstance(value, dict):
        kinds = {list: "a list", str: "text", bool: "a truth value", int: "a number", float: "a number"}
        return Problem(where, f"JSON that is {kinds.get(type(value), 'null')}", accepted)
    return Row(number, value, position)


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


def array_rows(stream: BinaryIO, path: str, *, line: int = 1, whole: bool = True) -> Iterator[Row | Problem]:
    """Yield every object of the array, one in memory at a time. Stop after text that is no JSON.

    A stream that does not stand at the start of the array stands at an element: yield that one and those after it.
    ``whole``: nothing may follow the array.
    """
    text = _JsonText(stream, line)
    try:
        for number, position, value in text.elements():
            yield _object_row(value, f"{path}:{number}", number, position, _ARRAY)
        if whole and text.peek():
            raise ValueError("more text behind the end of the array")
    except ValueError as error:
        yield Problem(f"{path}:{text.line}", str(error), _ARRAY)


def value_rows(stream: BinaryIO, path: str) -> Iterator[Row | Problem]:
    """Yield objects that follow each other over several lines. Stop after text that is no JSON."""
    text = _JsonText(stream)
    try:
        while text.peek():
            number, position = text.line, text.position
            yield _object_row(text.value(), f"{path}:{number}", number, position, _LINES)
    except ValueError as error:
        yield Problem(f"{path}:{text.line}", str(error), _LINES)


class _Member(NamedTuple):
    """A member of an object, which is skipped."""

    name: str
    start: int
    """First byte of its value."""
    line: int
    objects: bool
    """Whether its value is a list of objects, at least one."""


class _JsonText:
    """UTF-8 text of a stream, buffered as needed, with byte and line of the next character."""

    def __init__(self, stream: BinaryIO, line: int = 1) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._next = 0  # into the buffer, which is cut only when more is read: a cut for each element is quadratic
        self.position = stream.tell()
        self.line = line

    def elements(self) -> Iterator[tuple[int, int, str]]:
        """Yield line, first byte and text of the elements of an array, from its start or from an element."""
        if self.peek() == "[":
            self.take(1)
        more = self.peek() != "]" or not self.take(1)
        while more:
            self.peek()
            yield self.line, self.position, self.value()
            more = self._another("]")

    def members(self) -> Iterator[_Member]:
        """Yield the members of an object without keeping their values."""
        self.peek()
        self.take(1)
        more = self.peek() != "}" or not self.take(1)
        while more:
            if self.peek() != '"':
                raise ValueError(_comment(self._text, self._next) or "no JSON: a name in double quotes expected")
            name = str(strict_json(self.value()))
            if self.peek() != ":":
                raise ValueError("no JSON: ':' expected")
            self.take(1)
            kind, start, line = self.peek(), self.position, self.line
            kinds = [value[:1] == "{" for _, _, value in self.elements()] if kind == "[" else [not self.value()]
            yield _Member(name, start, line, bool(kinds) and all(kinds))
            more = self._another("}")

    def _another(self, end: str) -> bool:
        """Move past a comma, or past the end."""
        if self.peek() not in {",", end}:
            raise ValueError(_comment(self._text, self._next) or f"no JSON: ',' or '{end}' expected")
        return self.take(1) == ","

    def peek(self) -> str:
        """Skip white space and return the next character; empty at the end."""
        while True:
            space = _SPACE.match(self._text, self._next)
            self.take(len(space[0]) if space else 0)
            if self._next < len(self._text) or not self._read_more():
                return self._text[self._next : self._next + 1]

    def take(self, count: int) -> str:
        """Return the next characters of the buffer and move past them."""
        taken = self._text[self._next : self._next + count]
        self._next += len(taken)
        self.position += len(taken.encode())
        self.line += taken.count("\n")
        return taken

    def value(self) -> str:
        """Return the text of the next JSON value. Raise ``ValueError`` if there is none."""
        while len(self._text) - self._next <= _LONGEST:
            try:
                _, end = _SCANNER.raw_decode(self._text, self._next)
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated") or error.pos > len(self._text) - _LITERAL
                if not cut or not self._read_more():
                    raise ValueError(_comment(error.doc, error.pos) or f"no JSON: {error.msg}") from None
            except RecursionError:
                raise ValueError("JSON nested without end") from None
            else:
                if end < len(self._text) or not self._read_more():  # a number may continue in the next chunk
                    return self.take(end - self._next)
        raise ValueError(f"a value of more than {_LONGEST:,} characters; is a bracket or a quote not closed?")

    def _read_more(self) -> bool:
        raw = self._stream.read(max(_CHUNK, len(self._text) - self._next))
        try:
            self._text = self._text[self._next :] + self._decoder.decode(raw, final=not raw)
        except UnicodeDecodeError:
            raise ValueError("no UTF-8") from None
        self._next = 0
        return bool(raw)


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


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)
