"""Define a source of rows: the named values of each item, read from end to end, with the place of each for messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.stores.errors import DatasetError, Problem

PREFIX: Final = "hf:"
"""Start of the name of a Hugging Face dataset."""


class Row(NamedTuple):
    """The named values of one item."""

    source: str
    """``path:line``: its first line, or the number of the row in a table, from 1."""
    values: Mapping[str, Any]


@dataclass(frozen=True)
class RowSource(ABC):
    """Rows with named values, of one file, folder or table."""

    name: str
    """Name in messages: a path, or ``hf:owner/name:config#split``."""
    fields: FieldMap
    """Names of the columns that become items."""

    @abstractmethod
    def rows(self) -> Iterator[Row | Problem]:
        """Yield every row in order, or its problem. Raise ``DatasetError`` if the source is unreadable."""

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


def absolute_suffix(name: str) -> str:
    """Return `` at <absolute path>`` for a relative path in a message, empty for an absolute one."""
    path = Path(name)
    return "" if path.is_absolute() else f" at {path.absolute()}"


def unreadable(name: str, error: OSError) -> DatasetError:
    """Return the error for a file that the system refuses to read."""
    given = error.strerror or type(error).__name__
    return DatasetError([Problem(name, f"{given}{absolute_suffix(name)}", "a file that can be read")])
