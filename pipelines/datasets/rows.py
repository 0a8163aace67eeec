"""Define a source of rows: the named values of each item, with the place of each for messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from tfgrpo.stores.errors import DatasetError, Problem

HUB_PREFIX: Final = "hf:"
"""Start of the name of a Hugging Face dataset."""


class DatasetRow(NamedTuple):
    """The named values of one item."""

    source: str
    """``path:line``: its first line, or the number of the row in a table, from 1."""
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DataSource:
    """Rows of one file, folder or table, to be read once."""

    name: str
    """Name in messages: a path, or ``hf:owner/name:config#split``."""
    rows: Iterable[DatasetRow | Problem]
    """Every row in order, or its problem."""
    header: Sequence[str] | None = None
    """Names of the columns of a table; None of JSON."""
    warnings: tuple[str, ...] = ()
    """Sentences about what was assumed in order to read it."""

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
    given = error.strerror or type(error).__name__
    return DatasetError([Problem(name, f"{given}{absolute_suffix(name)}", "a file that can be read")])
