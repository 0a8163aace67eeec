"""Read separated values as rows. The metadata column is JSON."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from tfgrpo.pipelines.datasets.json_text import strict_json
from tfgrpo.pipelines.datasets.rows import DatasetRow, DataSource
from tfgrpo.pipelines.settings.tree import METADATA, FieldMap
from tfgrpo.rewarders.text.json_values import written_value
from tfgrpo.stores.errors import Problem
from tfgrpo.stores.text import pluralize, quoted_names

if TYPE_CHECKING:
    from _csv import Reader as CsvReader

_EXCEL: Final = re.compile(r'"?sep=([,;\t|:])"?\s*')
_LONGEST_VALUE: Final = 1 << 27
"""Characters of one value: an unclosed quote would otherwise make a value of the whole file."""
_SEPARATED: Final = {",": "comma-separated", ";": "semicolon-separated", "\t": "tab-separated"}
csv.field_size_limit(_LONGEST_VALUE)  # of the whole process, whose only reader of CSV is this module


def csv_source(text: str, path: str, fields: FieldMap, order: Sequence[str], warnings: tuple[str, ...]) -> DataSource:
    """Return the rows of a table. ``order``: the delimiters to try on the header.

    It is that whose header has the required columns, else most columns: only the header counts, because text may contain any
    delimiter. Blank lines before it are skipped, and a line ``sep=;`` as Excel writes it names the delimiter.
    """
    lines = StringIO(text, newline="\n")  # a carriage return is a value's
    number, start, line = 1, 0, lines.readline()
    while (named := _EXCEL.fullmatch(line) if number == 1 else None) or (line and not line.strip()):
        order = named[1] if named else order
        number, start, line = number + 1, lines.tell(), lines.readline()
    lines.seek(start)
    headers = {each: _names(line, each) for each in order}
    delimiter = max(order, key=lambda each: (not _missing(_stripped(headers[each]), fields), len(headers[each])))
    padded = len(headers[delimiter]) > 1 and all(name[:1] == " " for name in headers[delimiter][1:])
    reader = csv.reader(lines, strict=True, delimiter=delimiter, skipinitialspace=padded)
    separated = _SEPARATED.get(delimiter, f"{delimiter!r}-separated")
    try:
        header = _stripped(next(reader, []))
    except csv.Error as error:
        problem = Problem(f"{path}:{reader.line_num + number - 1}", _explained(error), f"a header of {separated} names")
        return DataSource(path, [problem], [], warnings)
    if wrong := _header_problem(header, f"{path}:{number}", fields):
        return DataSource(path, [wrong], header, warnings)
    accepted = f"{separated} values, in quotes where needed"
    return DataSource(path, _rows(reader, header, path, number, accepted), header, warnings)


def _rows(
    reader: CsvReader, header: Sequence[str], path: str, first: int, accepted: str
) -> Iterator[DatasetRow | Problem]:
    while True:
        where = f"{path}:{reader.line_num + first}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Problem(where, _explained(error), accepted)
            continue
        if any(cell.strip() for cell in cells):
            yield _row(cells, header, where)


def _names(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _stripped(names: Sequence[str]) -> list[str]:
    return [name.strip() for name in names]


def _row(cells: Sequence[str], header: Sequence[str], where: str) -> DatasetRow | Problem:
    if len(cells) > len(header) and not any(cell.strip() for cell in cells[len(header) :]):
        cells = cells[: len(header)]  # a spreadsheet's empty columns
    if len(cells) != len(header):
        accepted = f"{pluralize(len(header), 'value')}, as the header has names"
        return Problem(where, pluralize(len(cells), "value"), accepted)
    # The first column without a name is an index, as pandas writes it; elsewhere an unquoted delimiter shifts values.
    if any(cell.strip() and not name for name, cell in zip(header[1:], cells[1:], strict=True)):
        return Problem(where, "a value in a column without a name", "a name in the header for every value")
    values: dict[str, Any] = {name: cell for name, cell in zip(header, cells, strict=True) if name}
    if METADATA in values:
        try:
            text = values[METADATA]  # Python writes single quotes
            python = written_value(text) if text.startswith("{'") else None
            values[METADATA] = python or (strict_json(text) if text else None)
        except ValueError as error:
            return Problem(where, str(error), f"a JSON object in the field {METADATA!r}")
    return DatasetRow(where, values)


def _header_problem(header: Sequence[str], where: str, fields: FieldMap) -> Problem | None:
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        return Problem(where, f"a header with {twice[0]!r} twice", "every name of the header once")
    missing = _missing(header, fields)
    if not missing or not header:
        return None
    remedy = fields.remedy(missing[0])
    lacking = quoted_names(name for name in missing if fields.remedy(name) == remedy)
    *names, last = map(repr, fields.required)
    needed = f"{', '.join(names)} and {last}" if names else last
    given = f"a header without {lacking}: {quoted_names(header)}"
    return Problem(where, given, f"a header with {needed}, {remedy}")


def _missing(header: Sequence[str], fields: FieldMap) -> list[str]:
    return [name for name in fields.required if name not in header]


def _explained(error: csv.Error) -> str:
    """Return the reader's message, or a plainer one with the remedy; ``csv.Error`` carries only text."""
    if str(error).startswith("field larger than"):
        return f"a value of more than {csv.field_size_limit():,} characters; is a quote not closed?"
    if str(error).startswith("new-line character"):
        return "a carriage return alone outside quotes"
    return str(error)
