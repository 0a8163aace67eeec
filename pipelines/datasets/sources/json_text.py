"""Read JSON lines and JSON arrays as rows, from where a stream stands.

A line that does not parse becomes a ``Problem``, and reading continues.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import BinaryIO, Final

from tfgrpo.pipelines.datasets.sources.base import Row
from tfgrpo.stores.errors import Problem

_CHUNK: Final = 8192
_LONGEST: Final = 1 << 27
"""Characters of one array element: an unclosed bracket would otherwise read the whole file into memory."""
_LITERAL: Final = 16
"""More characters than a literal or an escape has: an error this close to the end of the buffer may be caused by it."""
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_ARRAY: Final = "a JSON array of objects"
_SCANNER: Final = json.JSONDecoder()


def jsonl_rows(stream: BinaryIO, path: str) -> Iterator[Row | Problem]:
    """Yield one row a line in UTF-8; blank lines are skipped."""
    position, first = stream.tell(), True
    for number, line in enumerate(stream, start=1):
        if first and line.strip() == b"{":
            accepted = "one JSON object on each line, or a JSON array of objects"
            yield Problem(f"{path}:{number}", "a JSON object over several lines", accepted)
            return
        if line.strip():
            first = False
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
        raise ValueError(f"no JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("JSON nested without end") from None
    if "\\ud" in text or "\\uD" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("half a surrogate pair, which is no character") from None
    return value


def is_array(stream: BinaryIO) -> bool:
    """Return whether a text is a JSON array by its first character. The stream is rewound."""
    start, text = stream.tell(), b""
    while not text and (chunk := stream.read(_CHUNK)):
        text = chunk.lstrip()
    stream.seek(start)
    return text.startswith(b"[")


def array_rows(stream: BinaryIO, path: str) -> Iterator[Row | Problem]:
    """Yield every object of the array, one in memory at a time. Stop after text that is no JSON.

    A stream that does not stand at the start of the array stands at an element: yield that one and those after it.
    """
    text = _ArrayText(stream)
    try:
        if text.peek() == "[":
            text.take(1)
        more = text.peek() != "]" or not text.take(1)
        while more:
            text.peek()
            line, position = text.line, text.position
            yield _object_row(text.value(), f"{path}:{line}", line, position, _ARRAY)
            if text.peek() not in {",", "]"}:
                raise ValueError("no JSON: ',' or ']' expected")
            more = text.take(1) == ","
        if text.peek():
            raise ValueError("more text behind the end of the array")
    except ValueError as error:
        yield Problem(f"{path}:{text.line}", str(error), _ARRAY)


class _ArrayText:
    """UTF-8 text of a stream, buffered as needed, with byte and line of the next character."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._next = 0  # into the buffer, which is cut only when more is read: a cut for each element is quadratic
        self.position = stream.tell()
        self.line = 1

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
                    raise ValueError(f"no JSON: {error.msg}") from None
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


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} twice")
    return unique


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name}, which is no JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)
