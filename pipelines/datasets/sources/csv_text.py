"""Read separated values as rows, from where a stream stands. Empty cells are absent; the metadata column is JSON."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Final

from tfgrpo.pipelines.datasets.sources.base import Row
from tfgrpo.pipelines.datasets.sources.json_text import strict_json
from tfgrpo.pipelines.problems import quoted_names
from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.stores.errors import Problem
from tfgrpo.stores.text import pluralize

_LONGEST_VALUE: Final = 1 << 27
"""Characters of one value: an unclosed quote would otherwise read the whole file into memory."""
_SEPARATED: Final = {",": "comma-separated", ";": "semicolon-separated", "\t": "tab-separated"}
csv.field_size_limit(_LONGEST_VALUE)  # of the whole process, whose only reader of CSV is this module


def csv_delimiter(stream: BinaryIO, order: Sequence[str], fields: FieldMap) -> str:
    """Return the delimiter whose header has the required columns, else most columns; ties by ``order``.

    Only the header counts, because text may contain any delimiter. The stream is rewound.
    """
    start = stream.tell()
    line = stream.readline().decode("utf-8", "replace")
    stream.seek(start)
    headers = {each: csv_header([line], each, strict=False) for each in order}
    return max(order, key=lambda each: (not _missing(headers[each], fields), len(headers[each])))


def csv_header(lines: Iterable[str], delimiter: str, *, strict: bool = True) -> list[str]:
    """Return the names in the header; none if it cannot be read, which ``csv_rows`` explains."""
    try:
        return next(csv.reader(lines, strict=strict, delimiter=delimiter), [])
    except (csv.Error, UnicodeDecodeError):
        return []


def csv_lines(stream: BinaryIO) -> Iterator[str]:
    """Yield the lines of a stream as text, without reading ahead: the stream stands behind the last one."""
    for raw in iter(stream.readline, b""):
        yield raw.decode("utf-8")


def csv_rows(
    stream: BinaryIO, path: str, fields: FieldMap, delimiter: str, header: Sequence[str] | None = None
) -> Iterator[Row | Problem]:
    """Yield every row. Without a ``header`` the first line is it."""
    reader = csv.reader(csv_lines(stream), strict=True, delimiter=delimiter)
    separated = _SEPARATED[delimiter]
    try:
        if header is None:
            header = next(reader, [])
            if problem := _header_problem(header, path, fields):
                yield problem
                return
        while True:
            line, position = reader.line_num + 1, stream.tell()
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield Problem(f"{path}:{line}", _explained(error), f"{separated} values, in quotes where needed")
                continue
            if cells:
                yield _row(cells, header, f"{path}:{line}", line, position, fields.metadata)
    except UnicodeDecodeError as error:  # stop here: quotes may be open
        yield Problem(f"{path}:{reader.line_num + 1}", f"no UTF-8 at byte {error.start}", "a file in UTF-8")
    except csv.Error as error:
        yield Problem(f"{path}:{reader.line_num}", _explained(error), f"a header of {separated} names")


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
