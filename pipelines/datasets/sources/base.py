"""Define a source of rows: read once from end to end, then by position. A source stores no rows."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.stores.errors import DatasetError, Problem

UTF16: Final = "text in UTF-16"
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
"""What files are that are no text, or not the text that was meant, by their first bytes in lower case."""
PREFIX: Final = "hf:"
"""Start of the name of a Hugging Face dataset."""


@dataclass(frozen=True, slots=True)
class Row:
    """The named values of one item."""

    line: int
    """First line, from 1; the number of the row in a table."""
    values: Mapping[str, Any]
    position: int = 0
    """Where its source finds it again: in a text file its first byte."""


@dataclass(frozen=True)
class RowSource(ABC):
    """Rows with named values, of one file or table."""

    name: str
    """Name in messages: a path, or ``hf:owner/name:config#split``."""
    fields: FieldMap
    """Names of the columns that become items."""

    @abstractmethod
    def rows(self) -> Iterator[Row | Problem]:
        """Yield every row in order, or its problem. Raise ``DatasetError`` if the source is unreadable."""

    @abstractmethod
    def values_at(self, positions: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        """Yield the values of some rows in the order requested. Raise ``DatasetError`` if a row has changed."""

    def columns(self) -> list[str]:
        """Return the names of the columns, or of the first row's values. Raise ``DatasetError`` for a row not readable."""
        row = next(self.rows(), None)
        if isinstance(row, Problem):
            raise DatasetError([row])
        return [] if row is None else list(row.values)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about what was assumed in order to read the source."""
        return ()

    def where(self, position: int, line: int) -> str:  # noqa: ARG002 - only of joined sources it names the file
        """Return ``path:line`` of a row for messages."""
        return f"{self.name}:{line}"


def row_changed(where: str) -> DatasetError:
    """Return the error for a position that no longer has the row read there before."""
    return DatasetError([Problem(where, "a row that changed during the run", "a dataset that stays unchanged")])


def other_encoding(first_bytes: bytes) -> str:
    """Name what a file is by its first bytes, at least four; empty for text in UTF-8."""
    if first_bytes[:4] in {codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE}:
        return "text in UTF-32"
    if first_bytes.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return UTF16
    if named := next((name for mark, name in _MARKS.items() if first_bytes.lstrip().lower().startswith(mark)), ""):
        return named
    return "no text, or UTF-16 without a byte order mark" if b"\0" in first_bytes[:4] else ""


def absolute_suffix(name: str) -> str:
    """Return `` at <absolute path>`` for a relative path in a message, empty for an absolute one."""
    path = Path(name)
    return "" if path.is_absolute() else f" at {path.absolute()}"


def unreadable(name: str, error: OSError) -> DatasetError:
    """Return the error for a file that the system refuses to read."""
    given = error.strerror or type(error).__name__
    return DatasetError([Problem(name, f"{given}{absolute_suffix(name)}", "a file that can be read")])
