"""Read separated values as rows. The metadata column is JSON."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from tfgrpo.pipelines.datasets.json_text import strict_json
from tfgrpo.pipelines.datasets.rows import Row
from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.stores.errors import Problem
from tfgrpo.stores.text import pluralize, quoted_names

if TYPE_CHECKING:
    from _csv import Reader as CsvReader

_EXCEL: Final = re.compile(rb'"?sep=([,;\t|:])"?\s*')
_LONGEST_VALUE: Final = 1 << 27
"""Characters of one value: an unclosed quote would otherwise make a value of the whole file."""
_SEPARATED: Final = {",": "comma-separated", ";": "semicolon-separated", "\t": "tab-separated"}
csv.field_size_limit(_LONGEST_VALUE)  # of the whole process, whose only reader of CSV is this module


class _Form(NamedTuple):
    """How a table is written."""

    delimiter: str
    padded: bool
    """Spaces follow the delimiters."""
    line: int
    """Line of the header, from 1."""

    def reader(self, lines: Iterable[str], *, strict: bool = True) -> CsvReader:
        """Return the reader of lines."""
        return csv.reader(lines, strict=strict, delimiter=self.delimiter, skipinitialspace=self.padded)


def csv_rows(stream: BinaryIO, path: str, fields: FieldMap, order: Sequence[str]) -> Iterator[Row | Problem]:
    """Yield every row of a table in UTF-8. ``order``: the delimiters to try on the header."""
    form = _form(stream, order, fields)
    separated = _SEPARATED.get(form.delimiter, f"{form.delimiter!r}-separated")
    reader = form.reader(line.decode() for line in stream)  # lines end in a line feed: a carriage return is a value's
    try:
        header = _stripped(next(reader, []))
    except csv.Error as error:
        where = f"{path}:{reader.line_num + form.line - 1}"
        yield Problem(where, _explained(error), f"a header of {separated} names")
        return
    if problem := _header_problem(header, f"{path}:{form.line}", fields):
        yield problem
        return
    while True:
        where = f"{path}:{reader.line_num + form.line}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Problem(where, _explained(error), f"{separated} values, in quotes where needed")
            continue
        if any(cell.strip() for cell in cells):
            yield _row(cells, header, where, fields.metadata)


def csv_columns(stream: BinaryIO, fields: FieldMap, order: Sequence[str]) -> list[str]:
    """Return the names in the header; none if it cannot be read, which ``csv_rows`` explains."""
    form = _form(stream, order, fields)
    return [name for name in _stripped(_names((line.decode() for line in stream), form)) if name]


def _form(stream: BinaryIO, order: Sequence[str], fields: FieldMap) -> _Form:
    """Return the delimiter whose header has the required columns, else most columns; ties by ``order``.

    Only the header counts, because text may contain any delimiter. Blank lines before it are skipped, and a line
    ``sep=;`` as Excel writes it names the delimiter. The stream then stands at the header.
    """
    number, start, line = 1, stream.tell(), stream.readline()
    while (named := _EXCEL.fullmatch(line) if number == 1 else None) or (line and not line.strip()):
        order = named[1].decode() if named else order
        number, start, line = number + 1, stream.tell(), stream.readline()
    stream.seek(start)
    text = line.decode()
    headers = {each: _names([text], _Form(each, False, number), strict=False) for each in order}
    best = max(order, key=lambda each: (not _missing(_stripped(headers[each]), fields), len(headers[each])))
    padded = len(headers[best]) > 1 and all(name[:1] == " " for name in headers[best][1:])
    return _Form(best, padded, number)


def _names(lines: Iterable[str], form: _Form, *, strict: bool = True) -> list[str]:
    try:
        return next(form.reader(lines, strict=strict), [])
    except csv.Error:
        return []


def _stripped(names: Iterable[str]) -> list[str]:
    return [name.strip() for name in names]


def _row(cells: Sequence[str], header: Sequence[str], where: str, metadata: str) -> Row | Problem:
    if len(cells) > len(header) and not any(cell.strip() for cell in cells[len(header) :]):
        cells = cells[: len(header)]  # a spreadsheet's empty columns
    if len(cells) != len(header):
        accepted = f"{pluralize(len(header), 'value')}, as the header has names"
        return Problem(where, pluralize(len(cells), "value"), accepted)
    # The first column without a name is an index, as pandas writes it; elsewhere an unquoted delimiter shifts values.
    if any(cell.strip() and not name for name, cell in zip(header[1:], cells[1:], strict=True)):
        return Problem(where, "a value in a column without a name", "a name in the header for every value")
    values: dict[str, Any] = {name: cell for name, cell in zip(header, cells, strict=True) if name}
    if metadata in values:
        try:
            values[metadata] = strict_json(values[metadata]) if values[metadata] else None
        except ValueError as error:
            return Problem(where, str(error), f"a JSON object in the field {metadata!r}")
    return Row(where, values)


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
