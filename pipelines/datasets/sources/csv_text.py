"""Read separated values with a header as rows. Empty cells are absent; the metadata column is JSON."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Final, Protocol

from tfgrpo.pipelines.datasets.sources.base import Row
from tfgrpo.pipelines.datasets.sources.json_text import strict_json
from tfgrpo.pipelines.problems import quoted_names
from tfgrpo.pipelines.settings.data import FieldMap
from tfgrpo.stores.errors import Problem
from tfgrpo.stores.text import pluralize

_LONGEST_VALUE: Final = 1 << 27
"""Characters of one value: an unclosed quote would otherwise read the whole file into memory."""
_SEPARATED: Final = {",": "comma-separated", ";": "semicolon-separated", "\t": "tab-separated"}
csv.field_size_limit(_LONGEST_VALUE)  # of the whole process, whose only reader of CSV is this module


class _CsvReader(Protocol):
    @property
    def line_num(self) -> int: ...

    def __next__(self) -> list[str]: ...


def csv_delimiter(stream: BinaryIO, order: Sequence[str], fields: FieldMap) -> str:
    """Return the delimiter whose header has the required columns, else most columns; ties by ``order``.

    Only the header counts, because text may contain any delimiter. The stream is rewound.
    """
    line = stream.readline().removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
    stream.seek(0)
    headers = {each: _names(line, each) for each in order}
    return max(order, key=lambda each: (not _missing(headers[each], fields), len(headers[each])))


def csv_rows(stream: BinaryIO, path: str, fields: FieldMap, delimiter: str) -> Iterator[Row | Problem]:
    """Yield every row below the header: UTF-8 with or without a byte order mark."""
    lines = _Lines(stream)
    reader = csv.reader(lines, strict=True, delimiter=delimiter)
    try:
        header = next(reader, [])
        problem = _header_problem(header, path, fields)
        if problem is not None:
            yield problem
            return
        yield from _body_rows(reader, lines, header, path, fields.metadata, f"{_SEPARATED[delimiter]} values")
    except UnicodeDecodeError as error:  # stop here: quotes may be open
        yield Problem(f"{path}:{reader.line_num + 1}", f"no UTF-8 at byte {error.start}", "a file in UTF-8")
    except csv.Error as error:
        yield Problem(f"{path}:{reader.line_num}", _explained(error), f"a header of {_SEPARATED[delimiter]} names")


class CsvRows:
    """The rows of an open stream by position. Raise ``ValueError`` for text that is no CSV."""

    def __init__(self, stream: BinaryIO, fields: FieldMap, delimiter: str) -> None:
        self._stream, self._fields, self._delimiter = stream, fields, delimiter
        self._header = self._cells_at(0)

    def row_at(self, position: int) -> Row | Problem:
        """Return the row that starts at a byte."""
        return _row(self._cells_at(position), self._header, "", 0, position, self._fields.metadata)

    def _cells_at(self, position: int) -> list[str]:
        self._stream.seek(position)
        try:
            return next(csv.reader(_Lines(self._stream), strict=True, delimiter=self._delimiter), [])
        except csv.Error as error:
            raise ValueError(str(error)) from None


class _Lines:
    """The lines of a stream as text, and the byte after the last one. Drops the byte order mark of the file."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._first = stream.tell() == 0
        self.position = stream.tell()

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        raw = self._stream.readline()
        if not raw:
            raise StopIteration
        self.position += len(raw)
        first, self._first = self._first, False
        return (raw.removeprefix(codecs.BOM_UTF8) if first else raw).decode("utf-8")


def _names(line: str, delimiter: str) -> Sequence[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # reported by ``csv_rows``
        return []


def _body_rows(
    reader: _CsvReader, lines: _Lines, header: Sequence[str], path: str, metadata: str, accepted: str
) -> Iterator[Row | Problem]:
    while True:
        line, position = reader.line_num + 1, lines.position
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Problem(f"{path}:{line}", _explained(error), f"{accepted}, in quotes where needed")
            continue
        if cells:
            yield _row(cells, header, f"{path}:{line}", line, position, metadata)


def _row(
    cells: Sequence[str], header: Sequence[str], where: str, line: int, position: int, metadata: str
) -> Row | Problem:
    if len(cells) != len(header):
        return Problem(
            where, pluralize(len(cells), "value"), f"{pluralize(len(header), 'value')}, as the header has names"
        )
    values: dict[str, Any] = {name: cell for name, cell in zip(header, cells, strict=True) if cell}
    if metadata in values:
        try:
            values[metadata] = strict_json(values[metadata])
        except ValueError as error:
            return Problem(where, str(error), f"a JSON object in the field {metadata!r}")
    return Row(line, values, position)


def _header_problem(header: Sequence[str], path: str, fields: FieldMap) -> Problem | None:
    twice = sorted({name for name in header if header.count(name) > 1})
    missing = _missing(header, fields)
    if twice:
        return Problem(f"{path}:1", f"a header with {twice[0]!r} twice", "every name of the header once")
    if missing and header:
        given = f"a header without {missing[0]!r}: {quoted_names(header)}"
        accepted = f"a header with {' and '.join(map(repr, fields.required))}, {fields.remedy(missing[0])}"
        return Problem(f"{path}:1", given, accepted)
    return None


def _missing(header: Sequence[str], fields: FieldMap) -> list[str]:
    return [name for name in fields.required if name not in header]


def _explained(error: csv.Error) -> str:
    """Return the reader's message, or a plainer one with the remedy; ``csv.Error`` carries only text."""
    if str(error).startswith("field larger than"):
        return f"a value of more than {csv.field_size_limit():,} characters; is a quote not closed?"
    if str(error).startswith("new-line character"):
        return "lines that end in a carriage return alone"
    return str(error)
