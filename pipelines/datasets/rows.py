"""How is a text file cut into rows? One reader for JSONL and one for CSV; a row has a line, a place and named values.

They know nothing of items. A line that does not parse comes out as a ``Problem`` in its place, and reading goes on. What
stands at a place can be read again later, without what stands before it.
"""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Protocol

from tfgrpo.pipelines.datasets.item_fields import shown_names
from tfgrpo.pipelines.settings.data import FieldMap
from tfgrpo.stores.errors import Problem
from tfgrpo.stores.text import pluralize

_LONGEST_VALUE: Final = 1 << 27
"""Characters of one CSV value. JSONL lines have no bound; here a quote that is not closed would take in the whole file."""
_SEPARATED: Final = {",": "comma-separated", ";": "semicolon-separated", "\t": "tab-separated"}
csv.field_size_limit(_LONGEST_VALUE)  # of the whole process, whose only reader of CSV is this module


@dataclass(frozen=True, slots=True)
class Row:
    """The named values of one item."""

    line: int
    """Line that it starts on, from 1; its number in a table that has no lines."""
    values: Mapping[str, Any]
    place: int = 0
    """Where its source finds it again: the byte that it starts at, in a text file."""


class _CsvReader(Protocol):
    @property
    def line_num(self) -> int: ...

    def __next__(self) -> list[str]: ...


def jsonl_rows(stream: BinaryIO, path: str) -> Iterator[Row | Problem]:
    """One JSON object a line, UTF-8 with or without a byte order mark; blank lines are skipped."""
    place, first = 0, True
    for number, raw in enumerate(stream, start=1):
        line = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
        if first and line.strip() == b"{":
            accepted = "one JSON object on each line, or a JSON array of objects"
            yield Problem(f"{path}:{number}", "a JSON object over several lines", accepted)
            return
        if line.strip():
            first = False
            yield object_row(line, f"{path}:{number}", number, place + len(raw) - len(line))
        place += len(raw)


def jsonl_values(stream: BinaryIO, place: int) -> Mapping[str, Any]:
    """The values of the row that begins at a byte. Raises ``ValueError`` when none does any more."""
    stream.seek(place)
    row = object_row(stream.readline(), "", 0, place)
    if isinstance(row, Problem):
        raise ValueError(row.given)
    return row.values


def csv_delimiter(stream: BinaryIO, order: Sequence[str], fields: FieldMap) -> str:
    """The delimiter that makes the needed columns of the first line, else most columns; of several the first in ``order``.

    Only the header is looked at: text may hold any of them. The stream is left at its beginning.
    """
    line = stream.readline().removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
    stream.seek(0)
    headers = {each: _names(line, each) for each in order}
    return max(order, key=lambda each: (not _missing(headers[each], fields), len(headers[each])))


def _names(line: str, delimiter: str) -> Sequence[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # ``csv_rows`` says what is wrong
        return []


def csv_rows(stream: BinaryIO, path: str, fields: FieldMap, delimiter: str) -> Iterator[Row | Problem]:
    """Separated values with a header, UTF-8, a byte order mark or none. Empty cells are absent; metadata is JSON."""
    lines = _Lines(stream)
    reader = csv.reader(lines, strict=True, delimiter=delimiter)
    try:
        header = next(reader, [])
        problem = _header_problem(header, path, fields)
        if problem is not None:
            yield problem
            return
        yield from _csv_body(reader, lines, header, path, fields.metadata, f"{_SEPARATED[delimiter]} values")
    except UnicodeDecodeError as error:  # what follows is not read: quotes may be open
        yield Problem(f"{path}:{reader.line_num + 1}", f"no UTF-8 at byte {error.start}", "a file in UTF-8")
    except csv.Error as error:
        yield Problem(f"{path}:{reader.line_num}", _csv_fault(error), f"a header of {_SEPARATED[delimiter]} names")


def csv_header(stream: BinaryIO, delimiter: str) -> Sequence[str]:
    """The names of the columns. Raises ``ValueError`` when they cannot be read."""
    try:
        return next(csv.reader(_Lines(stream), strict=True, delimiter=delimiter), [])
    except csv.Error as error:
        raise ValueError(str(error)) from None


def csv_values(
    stream: BinaryIO, place: int, header: Sequence[str], fields: FieldMap, delimiter: str
) -> Mapping[str, Any]:
    """The values of the row that begins at a byte. Raises ``ValueError`` when none does any more."""
    stream.seek(place)
    try:
        cells = next(csv.reader(_Lines(stream), strict=True, delimiter=delimiter), [])
        row = _csv_row(cells, header, "", 0, place, fields.metadata)
    except csv.Error as error:
        raise ValueError(str(error)) from None
    if isinstance(row, Problem):
        raise ValueError(row.given)
    return row.values


def object_row(
    text: bytes, where: str, number: int, place: int, accepted: str = "one JSON object on the line"
) -> Row | Problem:
    """The row of a JSON object, or why the text is none."""
    try:
        value = strict_json(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Problem(where, f"no UTF-8 at byte {error.start}", "a line in UTF-8")
    except ValueError as error:
        return Problem(where, str(error), accepted)
    if not isinstance(value, dict):
        return Problem(where, f"JSON that is {_kind(value)}", accepted)
    return Row(number, value, place)


def strict_json(text: str) -> object:
    """Parse JSON. Raises ``ValueError`` for duplicate keys, NaN and infinity, and text that UTF-8 cannot hold."""
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


class _Lines:
    """The lines of a stream as text, and how many bytes of it they took. A mark at the beginning of the file is left out."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._number = 0 if stream.tell() == 0 else 1
        self.place = stream.tell()

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        raw = self._stream.readline()
        if not raw:
            raise StopIteration
        self.place += len(raw)
        self._number += 1
        return (raw.removeprefix(codecs.BOM_UTF8) if self._number == 1 else raw).decode("utf-8")


def _csv_body(
    reader: _CsvReader, lines: _Lines, header: Sequence[str], path: str, metadata: str, accepted: str
) -> Iterator[Row | Problem]:
    while True:
        line, place = reader.line_num + 1, lines.place
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Problem(f"{path}:{line}", _csv_fault(error), f"{accepted}, in quotes where needed")
            continue
        if cells:
            yield _csv_row(cells, header, f"{path}:{line}", line, place, metadata)


def _csv_row(
    cells: Sequence[str], header: Sequence[str], where: str, line: int, place: int, metadata: str
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
    return Row(line, values, place)


def _header_problem(header: Sequence[str], path: str, fields: FieldMap) -> Problem | None:
    twice = sorted({name for name in header if header.count(name) > 1})
    missing = _missing(header, fields)
    if twice:
        return Problem(f"{path}:1", f"a header with {twice[0]!r} twice", "every name of the header once")
    if missing and header:
        given = f"a header without {missing[0]!r}: {shown_names(header)}"
        accepted = f"a header with {' and '.join(map(repr, _needed(fields)))}, {fields.otherwise(missing[0])}"
        return Problem(f"{path}:1", given, accepted)
    return None


def _needed(fields: FieldMap) -> list[str]:
    return [name for name in (fields.id, fields.prompt) if name is not None]


def _missing(header: Sequence[str], fields: FieldMap) -> list[str]:
    return [name for name in _needed(fields) if name not in header]


def _csv_fault(error: csv.Error) -> str:
    """The reader's complaint, where it says what to do about it."""
    if str(error).startswith("field larger than"):
        return f"a value of more than {csv.field_size_limit():,} characters; is a quote not closed?"
    if str(error).startswith("new-line character"):
        return "lines that end in a carriage return alone"
    return str(error)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} twice")
    return found


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name}, which is no JSON number")


def _kind(value: object) -> str:
    names = {list: "a list", str: "text", bool: "a truth value", int: "a number", float: "a number"}
    return names.get(type(value), "null")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)
