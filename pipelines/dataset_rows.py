"""How is a dataset file cut into rows? One reader for JSONL and one for CSV; a row has a line number and named values.

They know nothing of items. A line that does not parse comes out as a ``Problem`` in its place, and reading goes on.
"""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from pipelines.settings import FieldMap
from stores.errors import Problem


@dataclass(frozen=True, slots=True)
class Row:
    """The named values of one item, and the line it starts on."""

    line: int
    values: dict[str, Any]


class _CsvReader(Protocol):
    @property
    def line_num(self) -> int: ...

    def __next__(self) -> list[str]: ...


def jsonl_rows(stream: BinaryIO, path: str, fields: FieldMap) -> Iterator[Row | Problem]:  # noqa: ARG001 - as csv_rows
    """One JSON object a line, UTF-8 with or without a byte order mark; blank lines are skipped."""
    for number, raw in enumerate(stream, start=1):
        line = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
        if not line.strip():
            continue
        try:
            value = strict_json(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            yield Problem(f"{path}:{number}", f"no UTF-8 at byte {error.start}", "a line in UTF-8")
        except ValueError as error:
            yield Problem(f"{path}:{number}", str(error), "one JSON object on the line")
        else:
            if isinstance(value, dict):
                yield Row(number, value)
            else:
                yield Problem(f"{path}:{number}", f"JSON that is {_kind(value)}", "one JSON object on the line")


def csv_rows(stream: BinaryIO, path: str, fields: FieldMap) -> Iterator[Row | Problem]:
    """Comma-separated with a header, UTF-8, a byte order mark or none. Empty cells are absent; metadata is JSON."""
    reader = csv.reader(_decoded(stream), strict=True)
    try:
        header = next(reader, [])
        problem = _header_problem(header, path, fields)
        if problem is not None:
            yield problem
            return
        yield from _csv_body(reader, header, path, fields.metadata)
    except UnicodeDecodeError as error:  # what follows is not read: quotes may be open
        yield Problem(f"{path}:{reader.line_num + 1}", f"no UTF-8 at byte {error.start}", "a file in UTF-8")
    except csv.Error as error:
        yield Problem(f"{path}:{reader.line_num}", str(error), "a header of comma-separated names")


def strict_json(text: str) -> object:
    """Parse JSON. Raises ``ValueError`` for duplicate keys, NaN and infinity, and text that UTF-8 cannot hold."""
    try:
        value: object = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("JSON nested without end") from None
    if "\\ud" in text.lower():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("half a surrogate pair, which is no character") from None
    return value


def _decoded(stream: BinaryIO) -> Iterator[str]:
    for number, raw in enumerate(stream, start=1):
        yield (raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw).decode("utf-8")


def _csv_body(reader: _CsvReader, header: Sequence[str], path: str, metadata: str) -> Iterator[Row | Problem]:
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Problem(f"{path}:{line}", str(error), "comma-separated values, in quotes where needed")
            continue
        if cells:
            yield _csv_row(cells, header, f"{path}:{line}", line, metadata)


def _csv_row(cells: Sequence[str], header: Sequence[str], where: str, line: int, metadata: str) -> Row | Problem:
    if len(cells) != len(header):
        return Problem(where, f"{len(cells)} values", f"{len(header)} values, as the header has names")
    values: dict[str, Any] = {name: cell for name, cell in zip(header, cells, strict=True) if cell}
    if metadata in values:
        try:
            values[metadata] = strict_json(values[metadata])
        except ValueError as error:
            return Problem(where, str(error), f"a JSON object in the field {metadata!r}")
    return Row(line, values)


def _header_problem(header: Sequence[str], path: str, fields: FieldMap) -> Problem | None:
    twice = sorted({name for name in header if header.count(name) > 1})
    missing = [name for name in (fields.id, fields.prompt) if name not in header]
    if twice:
        return Problem(f"{path}:1", f"a header with {twice[0]!r} twice", "every name of the header once")
    if missing and header:
        return Problem(
            f"{path}:1", f"a header without {missing[0]!r}", f"a header with {fields.id!r} and {fields.prompt!r}"
        )
    return None


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
