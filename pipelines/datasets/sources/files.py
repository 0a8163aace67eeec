"""Open the source that a dataset setting names, and read text files and folders of files as rows.

The files of a folder follow each other by name.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

from tfgrpo.pipelines.datasets.sources.base import (
    PREFIX,
    UTF16,
    Row,
    RowSource,
    absolute_suffix,
    other_encoding,
    row_changed,
    unreadable,
)
from tfgrpo.pipelines.datasets.sources.csv_text import csv_delimiter, csv_header, csv_lines, csv_rows
from tfgrpo.pipelines.datasets.sources.json_text import array_rows, is_array, jsonl_rows
from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.stores.errors import DatasetError, Problem

_FILE_BITS: Final = 44
"""Bits of a position within one file of a folder: files of up to 16 TB."""
_FILE_MASK: Final = (1 << _FILE_BITS) - 1
_UTF16_BYTES: Final = 64_000_000
"""Longest file in UTF-16, which is read into memory as a whole."""
_TEXT: Final = "text in UTF-8, or in UTF-16 with a byte order mark"
_DELIMITERS = {".jsonl": "", ".ndjson": "", ".csv": ",;\t", ".tsv": "\t,;", ".json": ""}
"""Endings of text files, and the delimiters to try on their header; none for JSON."""
_PARQUET = ".parquet"
_ACCEPTED = "a .jsonl, .json, .csv, .tsv or .parquet file, a folder of such files, or hf:name of a Hugging Face dataset"


_Rows: TypeAlias = Iterator[Row | Problem]


@dataclass(frozen=True)
class TextSource(RowSource):
    """A text file in UTF-8 or UTF-16: JSON lines, a JSON array, or separated values. Positions are bytes."""

    delimiters: str = ""
    """Delimiters to try on the header of separated values, the likeliest first; empty for JSON."""

    def rows(self) -> _Rows:
        """Yield every row in file order."""
        with self._opened() as stream:
            yield from self._reader(stream)(stream, self.name)

    def columns(self) -> list[str]:
        """Return the names in the header of separated values, else as any source does."""
        if not self.delimiters:
            return super().columns()
        with self._opened() as stream:
            return csv_header(csv_lines(stream), csv_delimiter(stream, self.delimiters, self.fields))

    def values_at(self, positions: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        """Yield rows by their first byte."""
        with self._opened() as stream:
            read = self._reader(stream, again=True)
            for position in positions:
                stream.seek(position)
                row = next(read(stream, self.name), None)
                if not isinstance(row, Row):
                    raise row_changed(self.name)
                yield row.values

    def _reader(self, stream: BinaryIO, *, again: bool = False) -> Callable[[BinaryIO, str], _Rows]:
        """Return a function that reads rows from where the stream stands: at its start, or ``again`` at a row."""
        if not self.delimiters:
            return array_rows if is_array(stream) else jsonl_rows
        delimiter = csv_delimiter(stream, self.delimiters, self.fields)
        header = csv_header(csv_lines(stream), delimiter) if again else None
        return partial(csv_rows, fields=self.fields, delimiter=delimiter, header=header)

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            with Path(self.name).open("rb") as stream:
                yield _as_utf8(stream, self.name)
        except OSError as error:
            raise unreadable(self.name, error) from None


def _as_utf8(stream: BinaryIO, name: str) -> BinaryIO:
    """Return the text in UTF-8, behind its byte order mark. Raise ``DatasetError`` for other encodings than these two."""
    first = stream.read(4)
    stream.seek(len(codecs.BOM_UTF8) if first.startswith(codecs.BOM_UTF8) else 0)
    other = other_encoding(first)
    if not other:
        return stream
    if other != UTF16:
        raise DatasetError.one(name, other, _TEXT)
    raw = stream.read(_UTF16_BYTES + 1)
    if len(raw) > _UTF16_BYTES:
        raise DatasetError.one(name, f"more than {_UTF16_BYTES:,} bytes of UTF-16", "a file of this size in UTF-8")
    try:
        return BytesIO(raw.decode("utf-16").encode())
    except UnicodeDecodeError as error:
        raise DatasetError.one(name, f"no UTF-16 at byte {error.start}", _TEXT) from None


@dataclass(frozen=True)
class JoinedSource(RowSource):
    """Several files as one dataset. The high bits of a position are the number of the file."""

    files: tuple[RowSource, ...]

    def rows(self) -> _Rows:
        """Yield the rows of every file in turn."""
        for number, file in enumerate(self.files):
            for row in file.rows():
                yield row if isinstance(row, Problem) else replace(row, position=number << _FILE_BITS | row.position)

    def values_at(self, positions: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        """Open each file once for all its rows, and close it before the next: there may be thousands."""
        requested: dict[int, list[int]] = {}
        for position in positions:
            requested.setdefault(position >> _FILE_BITS, []).append(position & _FILE_MASK)
        answers = {number: iter([*self.files[number].values_at(wanted)]) for number, wanted in requested.items()}
        for position in positions:
            yield next(answers[position >> _FILE_BITS])

    def where(self, position: int, line: int) -> str:
        """Return file and line."""
        return self.files[position >> _FILE_BITS].where(position & _FILE_MASK, line)


def open_source(name: str, fields: FieldMap) -> RowSource:
    """Return the source of this name. Raise ``DatasetError`` for an unknown kind; nothing is read yet."""
    path = Path(name)
    if not name.startswith(PREFIX) and not path.is_dir():
        return _file(path, fields)
    from tfgrpo.pipelines.datasets.sources.tables import HubSource, is_saved  # noqa: PLC0415 - most datasets are text files

    if name.startswith(PREFIX):
        return HubSource(name, fields)
    return HubSource(f"{PREFIX}{name}", fields) if is_saved(path) else _folder(path, fields)


def _file(path: Path, fields: FieldMap) -> RowSource:
    kind = path.suffix.lower()
    if kind == _PARQUET:
        from tfgrpo.pipelines.datasets.sources.tables import ParquetSource  # noqa: PLC0415 - as in open_source

        return ParquetSource(str(path), fields)
    if kind in _DELIMITERS:
        return TextSource(str(path), fields, _DELIMITERS[kind])
    ending = f"a file that ends in {path.suffix or 'nothing'!r}"
    given = ending if path.exists() else f"no such file{absolute_suffix(str(path))}"
    raise DatasetError.one(str(path), given, _ACCEPTED)


def _folder(path: Path, fields: FieldMap) -> JoinedSource:
    """Return every file of a known kind below a folder, ordered by path, without hidden ones.

    A .json file among files of other kinds describes them, as ``dataset_info.json`` does, and is skipped too.
    """
    files = sorted(
        each
        for each in path.rglob("*")
        if each.suffix.lower() in (*_DELIMITERS, _PARQUET)
        and each.is_file()
        and not any(part.startswith(".") for part in each.relative_to(path).parts)
    )
    data = [each for each in files if each.suffix.lower() != ".json"] or files
    if not data:
        raise DatasetError.one(str(path), "a folder without data", _ACCEPTED)
    return JoinedSource(str(path), fields, tuple(_file(each, fields) for each in data))
