"""How are files and folders of files read as rows? JSONL and CSV line by line, a folder one file after another by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.dataset_rows import Row, csv_header, csv_rows, csv_values, jsonl_rows, jsonl_values
from pipelines.settings_data import FieldMap
from pipelines.sources_base import RowSource, gone, looked_at
from stores.errors import DatasetError, Problem

_PART_BITS = 44
"""Bits of a place within one file of a folder: files of up to 16 TB."""


@dataclass(frozen=True)
class TextSource:
    """A JSONL or CSV file."""

    path: Path
    fields: FieldMap
    is_csv: bool

    @property
    def name(self) -> str:
        """Path of the file."""
        return str(self.path)

    def rows(self) -> Iterator[Row | Problem]:
        """Every row in file order."""
        read = csv_rows if self.is_csv else jsonl_rows
        try:
            with self.path.open("rb") as stream:
                yield from read(stream, self.name, self.fields)
        except OSError as error:
            raise unreadable(self.name, error) from None

    def values_at(self, places: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        """Rows by the byte that they begin at."""
        try:
            with self.path.open("rb") as stream:
                for place in places:
                    if self.is_csv:
                        yield csv_values(stream, place, self._header, self.fields)
                    else:
                        yield jsonl_values(stream, place)
        except OSError as error:
            raise unreadable(self.name, error) from None
        except ValueError:
            raise gone(self.name) from None

    def where(self, place: int, line: int) -> str:  # noqa: ARG002 - as the protocol has it
        """Path and line."""
        return f"{self.path}:{line}"

    @cached_property
    def _header(self) -> Sequence[str]:
        with self.path.open("rb") as stream:
            return csv_header(stream)


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
