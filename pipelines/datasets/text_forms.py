"""Read text files as rows: CSV with its relatives, and JSON lines, an array, an object that holds one, or objects in a row.

Text is UTF-8, UTF-16 or Windows-1252; what is none of these is named. A line that does not parse becomes a ``Problem``, and
reading continues.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tfgrpo.pipelines.settings.tree import FieldMap, first_part
from tfgrpo.stores.errors import DatasetError, Problem
from tfgrpo.stores.json_values import UNIQUE, load_json
from tfgrpo.stores.text import pluralize, quoted_names

if TYPE_CHECKING:
    from _csv import Reader as CsvReader

HUB_PREFIX: Final = "hf:"


class DatasetRow(NamedTuple):
    """The named values of one item."""

    source: str
    """``path:line``: its first line, or the number of the row in a table, from 1."""
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DataSource:
    """Rows of one file, folder or table, to be read once."""

    name: str
    rows: Iterable[DatasetRow | Problem]
    header: Sequence[str] | None = None
    """Names of the columns of a table; None of JSON."""
    warnings: tuple[str, ...] = ()

    def columns(self) -> list[str]:
        """Return the names of the columns, or of the first row's values. Raise ``DatasetError`` for a row not readable."""
        if self.header is not None:
            return [name for name in self.header if name]
        row = next(iter(self.rows), None)
        if isinstance(row, Problem):
            raise DatasetError([row])
        return [] if row is None else list(row.values)


def absolute_suffix(name: str) -> str:
    """Return `` at <absolute path>`` for a relative path in a message, empty for an absolute one."""
    path = Path(name)
    return "" if path.is_absolute() else f" at {path.absolute()}"


def unreadable(name: str, error: OSError) -> DatasetError:
    """Return the error for a file that the system refuses to read."""
    received = error.strerror or type(error).__name__
    return DatasetError([Problem(name, f"{received}{absolute_suffix(name)}", "a file that can be read")])


_FEW: Final = 20
# Letters and signs in UTF-8, in sequences that texts in Windows-1252 do not have: read as that they would be garbled.
_SURELY_UTF8: Final = re.compile(
    rb"[\xc2\xc3][\x80-\xbf]|\xe2[\x80-\x84][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}"
    rb"|(?:[\xc4-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}){2}"
)
_UNDEFINED: Final = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
_TEXT: Final = "text in UTF-8, or in UTF-16 with a byte order mark"
_UTF16: Final = "text in UTF-16"
# What files are that are no text, or not the text that was meant, by their first bytes in lower case.
_MARKS: Final = {
    b"pk\x03\x04": "a zip archive, as .xlsx files are: save its sheet as CSV UTF-8, or unpack it",
    b"\xd0\xcf\x11\xe0": "a spreadsheet of an old Excel: save its sheet as CSV UTF-8",
    b"\x1f\x8b": "data compressed by gzip: unpack it",
    b"par1": "a Parquet file: let its name end in .parquet",
    b"sqlite format 3": "a database of SQLite: export a table as CSV",
    b"%pdf-": "a PDF",
    b"version https://git-lfs": "a pointer of Git LFS in place of the data: git lfs pull",
    b"<!doctype html": "a web page in place of the data",
    b"<html": "a web page in place of the data",
}


def decoded_file(path: Path) -> tuple[str, str]:
    """Return the text of a file, with line feeds and without byte order mark, and a warning about what was assumed.

    Raise ``DatasetError`` for what is no text, or text in an encoding of which none can be sure.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise unreadable(str(path), error) from None
    other, warning = _other_encoding(raw[:64]), ""
    if other and other != _UTF16:
        raise DatasetError.one(str(path), other, _TEXT)
    try:
        text = raw.decode("utf-16" if other else "utf-8")
    except UnicodeDecodeError as error:
        if other:
            raise DatasetError.one(str(path), f"no UTF-16 at byte {error.start}", _TEXT) from None
        warning = _western(raw, str(path))
        text = raw.decode("cp1252")
    if "\r" in text.partition("\n")[0].rstrip("\r"):  # lines end in a carriage return alone, as on an old Mac
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.removeprefix("\ufeff"), warning


def _other_encoding(first_bytes: bytes) -> str:
    # At least four of them; empty for text in UTF-8.
    if first_bytes[:4] in {codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE}:
        return "text in UTF-32"
    if first_bytes.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _UTF16
    named = next((name for mark, name in _MARKS.items() if first_bytes.lstrip().lower().startswith(mark)), "")
    return named or ("no text, or UTF-16 without a byte order mark" if b"\0" in first_bytes[:4] else "")


def _western(raw: bytes, name: str) -> str:
    # A warning, or an error if it is probably not Windows-1252.
    lines = [*enumerate(raw.split(b"\n"), start=1)]
    foreign = [(number, line) for number, line in lines if line.decode(errors="replace").encode() != line]
    number, text = foreign[0][0], b"".join(line for _, line in foreign)
    garbled = next((at for at, line in lines if _SURELY_UTF8.search(line) or line.startswith(codecs.BOM_UTF8)), None)
    undefined = next((at for at, line in foreign if _UNDEFINED.search(line)), None)
    received = ""
    if b"\0" in raw:
        number, received = raw.partition(b"\0")[0].count(b"\n") + 1, "a zero byte, which is no text"
    elif garbled is not None:
        received = f"bytes that are no UTF-8, while line {garbled} is UTF-8: a file in two encodings"
    elif b"\r" in raw.partition(b"\n")[0].rstrip(b"\r"):
        received = "no UTF-8, and lines that end in a carriage return: probably Mac Roman (iconv -f MACINTOSH -t UTF-8)"
    elif undefined is not None:
        number, received = undefined, "bytes that neither UTF-8 nor Windows-1252 has"
    elif len(re.findall(rb"[\xc0-\xff]", text)) > _FEW + len(re.findall(rb"[A-Za-z]", text)):
        received = "no UTF-8, and probably no Windows-1252: most of its letters would have accents"
    if received:
        raise DatasetError.one(f"{name}:{number}", received, _TEXT)
    return (
        f"{name}: line {number} is no UTF-8, so the file is read as Windows-1252 (cp1252), which Excel writes in Western "
        f"Europe; `iconv -f CP1252 -t UTF-8 FILE` converts it, or save it as CSV UTF-8"
    )


_SPACE: Final = re.compile(r"[ \t\r\n]*")
_ARRAY: Final = "a JSON array of objects"
_COMMENT: Final = "a comment, which JSON does not have"
_LINES: Final = "one JSON object on each line"
# Members of conversations and traces, whose lists are no items.
_NO_ITEMS: Final = frozenset({"messages", "resourceSpans", "resource_spans"})
_SCANNER: Final = json.JSONDecoder()


def json_rows(text: str, path: str, required: Sequence[str]) -> Iterator[DatasetRow | Problem]:
    """Yield every row of a text.

    A single object that is no item, because it lacks what is ``required``, holds the items in its one list of objects.
    """
    at = _past_space(text, 0)
    if text.startswith("[", at):
        yield from _values(text, at + 1, path, array=True)
    elif text.startswith(("/", "#"), at):
        yield Problem(f"{path}:{_line(text, at)}", _COMMENT, f"{_LINES}, or {_ARRAY}")
    elif text.startswith("{", at):
        yield from _objects(text, at, path, required)
    else:
        yield from _lines(text, path)


def _objects(text: str, at: int, path: str, required: Sequence[str]) -> Iterator[DatasetRow | Problem]:
    try:
        value, end = _scanned(text, at)
    except ValueError:
        # Which the rows explain.
        unfinished = text[at:].partition("\n")[0].rstrip()[-1:] in {"{", "[", ",", ":"}
        yield from _values(text, at, path) if unfinished else _lines(text, path)
        return
    several, where = "\n" in text[at:end], f"{path}:{_line(text, at)}"
    is_item = all(first_part(name, value) in value for name in required) or not _NO_ITEMS.isdisjoint(value)
    single = _past_space(text, end) == len(text) and not is_item
    members = [*_members(text, at)] if single else []
    within = (_members(text, start, f"{name}.") for name, start, held in members if isinstance(held, dict))
    lists = [
        (name, start)
        for name, start, held in chain(members, *within)
        if isinstance(held, list) and held and all(isinstance(each, dict) for each in held)
    ]
    keys = [set(held) if isinstance(held, dict) else set[str]() for _, _, held in members]
    if not lists and len(keys) > 1 and set.intersection(*keys):
        line, counted_to = 1, 0
        # Their names are the ids of those without one.
        for name, start, _ in members:
            line, counted_to = line + text.count("\n", counted_to, start), start
            row = _row(text[start : _scanned(text, start)[1]], f"{path}:{line}", "an object for each id")
            yield row if isinstance(row, Problem) else DatasetRow(row.source, {"id": name, **row.values})
    elif len(lists) == 1:
        yield from _values(text, lists[0][1] + 1, path, array=True, whole=False)
    elif lists or (single and several):
        names = quoted_names(name for name, _ in lists)
        received = f"with several lists of objects: {names}" if lists else "over several lines"
        accepted = f"{_LINES}, {_ARRAY}, or an object with one list of objects"
        yield Problem(where, f"a JSON object {received}", accepted + (": a file for each of them" if lists else ""))
    elif several:
        yield from _values(text, at, path)
    else:
        yield from _lines(text, path)


def _members(text: str, at: int, before: str = "") -> Iterator[tuple[str, int, Any]]:
    at = _past_space(text, at + 1)
    while not text.startswith("}", at):
        name, end = _scanned(text, at)
        start = _past_space(text, _past_space(text, end) + 1)  # past the colon
        value, end = _scanned(text, start)
        yield before + name, start, value
        at = _past_space(text, end)
        at = _past_space(text, at + text.startswith(",", at))


def _lines(text: str, path: str) -> Iterator[DatasetRow | Problem]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _row(line, f"{path}:{number}", "one JSON object on the line")


def _values(text: str, at: int, path: str, *, array: bool = False, whole: bool = True) -> Iterator[DatasetRow | Problem]:
    # Objects that follow each other, or those of an array, up to text that is no JSON; `whole`: nothing may follow the array.
    accepted = _ARRAY if array else _LINES
    at = _past_space(text, at)
    line, counted_to = _line(text, at), at
    more = text[at : at + 1] != ("]" if array else "")
    try:
        while more:
            # Only what is new: counting all is quadratic.
            line, counted_to = line + text.count("\n", counted_to, at), at
            _, end = _scanned(text, at)
            yield _row(text[at:end], f"{path}:{line}", accepted)
            at = _past_space(text, end)
            more = text.startswith(",", at) if array else at < len(text)
            if array and not more and not text.startswith("]", at):
                raise ValueError(_comment(text, at) or "no JSON: ',' or ']' expected")
            at = _past_space(text, at + more) if array else at
        if array and whole and _past_space(text, at + 1) < len(text):
            at = _past_space(text, at + 1)
            raise ValueError("more text behind the end of the array")
    except ValueError as error:
        yield Problem(f"{path}:{_line(text, at)}", str(error), accepted)


def _row(text: str, where: str, accepted: str) -> DatasetRow | Problem:
    try:
        value = strict_json(text)
    except ValueError as error:
        return Problem(where, str(error), accepted)
    if not isinstance(value, dict):
        kinds = {list: "a list", str: "text", bool: "a truth value", int: "a number", float: "a number"}
        return Problem(where, f"JSON that is {kinds.get(type(value), 'null')}", accepted)
    return DatasetRow(where, value)


def strict_json(text: str) -> object:
    """Parse JSON. Raise ``ValueError`` for duplicate keys, NaN, infinity and half surrogate pairs."""
    try:
        value: object = load_json(text, UNIQUE)
    except json.JSONDecodeError as error:
        reason = _comment(error.doc, error.pos) or f"no JSON: {error.msg}"
        raise ValueError(f"{reason} at column {error.colno}") from None
    if "\\ud" in text or "\\uD" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("half a surrogate pair, which is no character") from None
    return value


def _scanned(text: str, at: int) -> tuple[Any, int]:
    try:
        return _SCANNER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise ValueError(_comment(error.doc, error.pos) or f"no JSON: {error.msg}") from None
    except RecursionError:
        raise ValueError("JSON nested without end") from None


def _past_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _comment(text: str, at: int) -> str:
    return _COMMENT if text.startswith(("//", "/*", "#"), at) else ""


_EXCEL: Final = re.compile(r'"?sep=([,;\t|:])"?\s*')
# Characters of one value: an unclosed quote would otherwise make a value of the whole file.
_LONGEST_VALUE: Final = 1 << 27
_SEPARATED: Final = {",": "comma-separated", ";": "semicolon-separated", "\t": "tab-separated"}
csv.field_size_limit(_LONGEST_VALUE)  # of the whole process, whose only reader of CSV is this module


def csv_source(text: str, path: str, fields: FieldMap, order: Sequence[str], warnings: tuple[str, ...]) -> DataSource:
    """Return the rows of a table. ``order``: the delimiters to try on the header, which alone counts.

    It is that whose header has the required columns, else most columns. Blank lines before it are skipped, and a line
    ``sep=;`` as Excel writes it names the delimiter.
    """
    # A carriage return is a value's.
    lines = StringIO(text, newline="\n")
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
    return DataSource(path, _table_rows(reader, header, path, number, accepted), header, warnings)


def _table_rows(
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
        if not any(cell.strip() for cell in cells):
            continue
        if not any(cell.strip() for cell in cells[len(header) :]):
            cells = cells[: len(header)]  # without a spreadsheet's empty columns
        if len(cells) != len(header):
            expected = f"{pluralize(len(header), 'value')}, as the header has names"
            yield Problem(where, pluralize(len(cells), "value"), expected)
        # The first column without a name is an index, as pandas writes it; elsewhere an unquoted delimiter shifts values.
        elif any(cell.strip() and not name for name, cell in zip(header[1:], cells[1:], strict=True)):
            yield Problem(where, "a value in a column without a name", "a name in the header for every value")
        else:
            yield DatasetRow(where, {name: cell for name, cell in zip(header, cells, strict=True) if name})


def _names(line: str, delimiter: str) -> list[str]:
    with suppress(csv.Error):
        return next(csv.reader([line], delimiter=delimiter), [])
    return []


def _stripped(names: Sequence[str]) -> list[str]:
    return [name.strip() for name in names]


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
    received = f"a header without {lacking}: {quoted_names(header)}"
    return Problem(where, received, f"a header with {needed}, {remedy}")


def _missing(header: Sequence[str], fields: FieldMap) -> list[str]:
    return [name for name in fields.required if name not in header]


def _explained(error: csv.Error) -> str:
    # It carries only text.
    if str(error).startswith("field larger than"):
        return f"a value of more than {csv.field_size_limit():,} characters; is a quote not closed?"
    return "a carriage return alone outside quotes" if str(error).startswith("new-line character") else str(error)
