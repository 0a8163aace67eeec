"""Read separated values as rows, from where a stream stands. The metadata column is JSON."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from tfgrpo.pipelines.datasets.sources.base import Row
from tfgrpo.pipelines.datasets.sources.json_text import strict_json
from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.stores.errors import Problem
from tfgrpo.stores.text import pluralize, quoted_names

if TYPE_CHECKING:
    from _csv import Reader as CsvReader

_EXCEL: Final = re.compile(rb'"?sep=([,;\t|:])"?\s*')
_LONGEST_VALUE: Final = 1 << 27
"""Characters of one value: an unclosed quote would otherwise read the whole file into memory."""
_SEPARATED: Final = {",": "comma-separated", ";": "semicolon-separated", "\t": "tab-separated"}
csv.field_size_limit(_LONGEST_VALUE)  # of the whole process, whose only reader of CSV is this module


class CsvForm(NamedTuple):
    """How a table is written."""

    delimiter: str
    padded: bool
    """Spaces follow the delimiters."""
    header: int
    """First byte of the header."""
    line: int
    """Its line, from 1."""

    @property
    def separated(self) -> str:
        """Kind of table, for a message."""
        return _SEPARATED.get(self.delimiter, f"{self.delimiter!r}-separated")

    def reader(self, lines: Iterable[str], *, strict: bool = True) -> CsvReader:
        """Return the reader of lines."""
        return csv.reader(lines, strict=strict, delimiter=self.delimiter, skipinitialspace=self.padded)


def csv_form(stream: BinaryIO, order: Sequence[str], fields: FieldMap) -> CsvForm:
    """Return the delimiter whose header has the required columns, else most columns; ties by ``order``.

    Only the header counts, because text may contain any delimiter. Blank lines before it are skipped, and a line
    ``sep=;`` as Excel writes it names the delimiter. The stream then stands at the header.
    """
    number, start, line = 1, stream.tell(), stream.readline()
    while (named := _EXCEL.fullmatch(line) if number == 1 else None) or (line and not line.strip()):
        order = named[1].decode() if named else order
        number, start, line = number + 1, stream.tell(), stream.readline()
    stream.seek(start)
    text = line.decode("utf-8", "replace")
    headers = {each: _names([text], CsvForm(each, False, start, number), strict=False) for each in order}
    best = max(order, key=lambda each: (not _missing(_stripped(headers[each]), fields), len(headers[each])))
    padded = len(headers[best]) > 1 and all(name[:1] == " " for name in headers[best][1:])
    return CsvForm(best, padded, start, number)


def csv_header(lines: Iterable[str], form: CsvForm) -> list[str]:
    """Return the names in the header; none if it cannot be read, which ``csv_rows`` explains."""
    return _stripped(_names(lines, form))


def _names(lines: Iterable[str], form: CsvForm, *, strict: bool = True) -> list[str]:
    try:
        return next(form.reader(lines, strict=strict), [])
    except (csv.Error, UnicodeDecodeError):
        return []


def _stripped(names: Iterable[str]) -> list[str]:
    return [name.strip() for name in names]


def csv_lines(stream: BinaryIO) -> Iterator[str]:
    """Yield the lines of a stream as text, without reading ahead: the stream stands behind the last one."""
    for raw in iter(stream.readline, b""):
        yield raw.decode("utf-8")


def csv_rows(
    stream: BinaryIO, path: str, fields: FieldMap, form: CsvForm, header: Sequence[str] | None = None
) -> Iterator[Row | Problem]:
    """Yield every row. Without a ``header`` the first line is it."""
    reader = form.reader(csv_lines(stream))
    try:
        if header is None:
            header = _stripped(next(reader, []))
            if problem := _header_problem(header, f"{path}:{form.line}", fields):
                yield problem
                return
        while True:
            line, position = reader.line_num + form.line, stream.tell()
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield Problem(f"{path}:{line}", _explained(error), f"{form.separated} values, in quotes where needed")
                continue
            if any(cell.strip() for cell in cells):
                yield _row(cells, header, f"{path}:{line}", line, position, fields.metadata)
    except UnicodeDecodeError as error:  # stop here: quotes may be open
        yield Problem(f"{path}:{reader.line_num + form.line}", f"no UTF-8 at byte {error.start}", "a file in UTF-8")
    except csv.Error as error:
        yield Problem(
            f"{path}:{reader.line_num + form.line - 1}", _explained(error), f"a header of {form.separated} names"
        )


def _row(
    cells: Sequence[str], header: Sequence[str], where: str, line: int, position: int, metadata: str
) -> Row | Problem:
    if len(cells) > len(header) and not any(cell.strip() for cell in cells[len(header) :]):
        cells = cells[: len(header)]  # a spreadsheet's empty columns
    if len(cells) != len(header):
        return Problem(
            where, pluralize(len(cells), "value"), f"{pluralize(len(header), 'value')}, as the header has names"
        )
    # The first column without a name is an index, as pandas writes it; elsewhere an unquoted delimiter shifts values.
    if any(cell.strip() and not name for name, cell in zip(header[1:], cells[1:], strict=True)):
        return Problem(where, "a value in a column without a name", "a name in the header for every value")
    values: dict[str, Any] = {name: cell for name, cell in zip(header, cells, strict=True) if name}
    if metadata in values:
        try:
            values[metadata] = strict_json(values[metadata]) if values[metadata] else None
        except ValueError as error:
            return Problem(where, str(error), f"a JSON object in the field {metadata!r}")
    return Row(line, values, position)


def _header_problem(header: Sequence[str], where: str, fields: FieldMap) -> Problem | None:
    twice = sorted({name for name in header if name and header.count(name) > 1})
    missing = _missing(header, fields)
    if twice:
        return Problem(where, f"a header with {twice[0]!r} twice", "every name of the header once")
    if missing and header:
        remedy = fields.remedy(missing[0])
        lacking = quoted_names(name for name in missing if fields.remedy(name) == remedy)
        *names, last = map(repr, fields.required)
        needed = f"{', '.join(names)} and {last}" if names else last
        given = f"a header without {lacking}: {quoted_names(header)}"
        return Problem(where, given, f"a header with {needed}, {remedy}")
    return None


def _missing(header: Sequence[str], fields: FieldMap) -> list[str]:
    return [name for name in fields.required if name not in header]


def _explained(error: csv.Error) -> str:
    """Return the reader's message, or a plainer one with the remedy; ``csv.Error`` carries only text."""
    if str(error).startswith("field larger than"):
        return f"a value of more than {csv.field_size_limit():,} characters; is a quote not closed?"
    if str(error).startswith("new-line character"):
        return "a carriage return alone outside quotes"
    return str(error)
