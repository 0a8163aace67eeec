"""Read the elements of a JSON array one by one, as rows; only the one that is being read is held."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

from tfgrpo.pipelines.datasets.rows import Row, object_row
from tfgrpo.stores.errors import Problem

_CHUNK: Final = 8192
_LONGEST: Final = 1 << 27
"""Characters of one element. A bracket that is not closed would take in the whole file."""
_LITERAL: Final = 16
"""More characters than a literal or an escape has: an error this close to the end of the text read so far may be its end."""
_SPACE: Final = " \t\r\n\ufeff"
_ACCEPTED: Final = "a JSON array of objects"
_FINDER: Final = json.JSONDecoder()


def is_array(stream: BinaryIO) -> bool:
    """Whether a text begins like a JSON array. The stream is left at its beginning."""
    text = b""
    while not text and (chunk := stream.read(_CHUNK)):
        text = chunk.removeprefix(codecs.BOM_UTF8).lstrip()
    stream.seek(0)
    return text.startswith(b"[")


def array_rows(stream: BinaryIO, path: str) -> Iterator[Row | Problem]:
    """Every object of the array. After text that is no JSON nothing more is read."""
    text = _Text(stream)
    try:
        text.peek()
        text.take(1)
        more = text.peek() != "]" or not text.take(1)
        while more:
            text.peek()
            line, place = text.line, text.place
            yield object_row(text.value().encode(), f"{path}:{line}", line, place, _ACCEPTED)
            mark = text.peek()
            if mark not in {",", "]"}:
                raise ValueError("no JSON: ',' or ']' expected")
            more = text.take(1) == ","
        if text.peek():
            raise ValueError("more text behind the end of the array")
    except ValueError as error:
        yield Problem(f"{path}:{text.line}", str(error), _ACCEPTED)


def array_values(stream: BinaryIO, place: int) -> Mapping[str, Any]:
    """The values of the object that begins at a byte. Raises ``ValueError`` when none does any more."""
    stream.seek(place)
    row = object_row(_Text(stream).value().encode(), "", 0, place, _ACCEPTED)
    if isinstance(row, Problem):
        raise ValueError(row.given)
    return row.values


class _Text:
    """UTF-8 text of a stream, read as far as it is needed, with the byte and the line of what is next."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self.place = stream.tell()
        self.line = 1

    def peek(self) -> str:
        """The next character behind white space, which is passed over; empty at the end."""
        while True:
            rest = self._text.lstrip(_SPACE)
            self.take(len(self._text) - len(rest))
            if rest or not self._more():
                return rest[:1]

    def take(self, count: int) -> str:
        """The next characters, of those that were read."""
        taken, self._text = self._text[:count], self._text[count:]
        self.place += len(taken.encode())
        self.line += taken.count("\n")
        return taken

    def value(self) -> str:
        """The text of the JSON value that is next. Raises ``ValueError`` when it is none."""
        while len(self._text) <= _LONGEST:
            try:
                _, end = _FINDER.raw_decode(self._text)
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated") or error.pos > len(self._text) - _LITERAL
                if not cut or not self._more():
                    raise ValueError(f"no JSON: {error.msg}") from None
            except RecursionError:
                raise ValueError("JSON nested without end") from None
            else:
                if end < len(self._text) or not self._more():  # a number may go on
                    return self.take(end)
        raise ValueError(f"a value of more than {_LONGEST:,} characters; is a bracket or a quote not closed?")

    def _more(self) -> bool:
        raw = self._stream.read(max(_CHUNK, len(self._text)))
        try:
            self._text += self._decoder.decode(raw, final=not raw)
        except UnicodeDecodeError:
            raise ValueError("no UTF-8") from None
        return bool(raw)
