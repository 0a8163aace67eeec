"""Define a source of rows: read once from end to end, then by position. A source stores no rows."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.stores.errors import DatasetError, Problem

UTF16: Final = "text in UTF-16"
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

    def where(self, position: int, line: int) -> str:  # noqa: ARG002 - only of joined sources it names the file
        """Return ``path:line`` of a row for messages."""
        return f"{self.name}:{line}"


def first_part(name: str, columns: Iterable[str]) -> str:
    """Return the column of a field: the one of this name, else the first part of the dotted name."""
    return name if name in columns else name.partition(".")[0]


def row_changed(where: str) -> DatasetError:
    """Return the error for a position that no longer has the row read there before."""
    return DatasetError([Problem(where, "a row that changed during the run", "a dataset that stays unchanged")])


def other_encoding(first_bytes: bytes) -> str:
    """Name the encoding of a file by its first four bytes; empty for UTF-8."""
    if first_bytes in {codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE}:
        return "text in UTF-32"
    if first_bytes.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return UTF16
    return "no text, or UTF-16 without a byte order mark" if b"\0" in first_bytes else ""


def absolute_suffix(name: str) -> str:
    """Return `` at <absolute path>`` for a relative path in a message, empty for an absolute one."""
    path = Path(name)
    return "" if path.is_absolute() else f" at {path.absolute()}"


def unreadable(name: str, error: OSError) -> DatasetError:
    """Return the error for a file that the system refuses to read."""
    given = error.strerror or type(error).__name__
    return DatasetError([Problem(name, f"{given}{absolute_suffix(name)}", "a file that can be read")])
