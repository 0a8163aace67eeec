"""Read files and folders of files as rows: JSON and separated values row by row, a folder one file after another by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Final

from tfgrpo.pipelines.datasets.json_arrays import array_rows, array_values, is_array
from tfgrpo.pipelines.datasets.rows import (
    Row,
    csv_delimiter,
    csv_header,
    csv_rows,
    csv_values,
    jsonl_rows,
    jsonl_values,
)
from tfgrpo.pipelines.datasets.source_base import UTF16, RowSource, gone, looked_at, other_encoding
from tfgrpo.pipelines.settings.data import FieldMap
from tfgrpo.stores.errors import DatasetError, Problem

_PART_BITS = 44
"""Bits of a place within one file of a folder: files of up to 16 TB."""
_UTF16_BYTES: Final = 64_000_000
"""Longest file in UTF-16, which is taken into memory whole whenever it is read."""
_TEXT: Final = "text in UTF-8, or in UTF-16 with a byte order mark"


@dataclass(frozen=True)
class TextSource:
    """A text file in UTF-8 or UTF-16: JSON lines, a JSON array, or separated values."""

    path: Path
    fields: FieldMap
    delimiters: str = ""
    """Of separated values, those that the header is tried with, the likeliest first; empty for JSON."""

    @property
    def name(self) -> str:
        """Path of the file."""
        return str(self.path)

    def rows(self) -> Iterator[Row | Problem]:
        """Every row in file order."""
        with self._opened() as stream:
            if self.delimiters:
                delimiter = csv_delimiter(stream, self.delimiters, self.fields)
                yield from csv_rows(stream, self.name, self.fields, delimiter)
            else:
                yield from (array_rows if is_array(stream) else jsonl_rows)(stream, self.name)

    def values_at(self, places: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        """Rows by the byte that they begin at."""
        with self._opened() as stream:
            try:
                at = self._values(stream)
                yield from (at(place) for place in places)
            except ValueError:
                raise gone(self.name) from None

    def where(self, place: int, line: int) -> str:  # noqa: ARG002 - as the protocol has it
        """Path and line."""
        return f"{self.path}:{line}"

    def _values(self, stream: BinaryIO) -> Callable[[int], Mapping[str, Any]]:
        """What reads the row at a byte."""
        if self.delimiters:
            delimiter = csv_delimiter(stream, self.delimiters, self.fields)
            header = csv_header(stream, delimiter)
            return lambda place: csv_values(stream, place, header, self.fields, delimiter)
        return partial(array_values if is_array(stream) else jsonl_values, stream)

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            with self.path.open("rb") as stream:
                yield as_utf8(stream, self.name)
        except OSError as error:
            raise unreadable(self.name, error) from None


def as_utf8(stream: BinaryIO, name: str) -> BinaryIO:
    """The same text in UTF-8, at its beginning. Raises ``DatasetError`` for bytes that are neither UTF-8 nor UTF-16."""
    other = other_encoding(stream.read(4))
    stream.seek(0)
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


@dataclass(frozen=True, slots=True)
class FolderSource:
    """Several files as one dataset."""

    path: Path
    parts: tuple[RowSource, ...]

    @property
    def name(self) -> str:
        """Path of the folder."""
        return str(self.path)

    def rows(self) -> Iterator[Row | Problem]:
        """The rows of every file in turn."""
        for number, part in enumerate(self.parts):
            for found in part.rows():
                yield (
                    Row(found.line, found.values, number << _PART_BITS | found.place)
                    if isinstance(found, Row)
                    else found
                )

    def values_at(self, places: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        """Each file is opened once for all that is asked of it, and closed before the next: there may be thousands."""
        asked: dict[int, list[int]] = {}
        for place in places:
            asked.setdefault(place >> _PART_BITS, []).append(place & ((1 << _PART_BITS) - 1))
        answers = {number: iter([*self.parts[number].values_at(wanted)]) for number, wanted in asked.items()}
        for place in places:
            yield next(answers[place >> _PART_BITS])

    def where(self, place: int, line: int) -> str:
        """File and line."""
        return self.parts[place >> _PART_BITS].where(place & ((1 << _PART_BITS) - 1), line)


def unreadable(name: str, error: OSError) -> DatasetError:
    """The system's refusal to read a file, as ours."""
    given = error.strerror or type(error).__name__
    return DatasetError([Problem(name, f"{given}{looked_at(name)}", "a file that can be read")])
