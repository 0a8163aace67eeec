"""How is a Parquet file read as rows? In small batches of the columns that are needed; the extra ``parquet`` brings pyarrow."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfgrpo.pipelines.datasets.rows import Row
from tfgrpo.pipelines.datasets.source_base import columns_wanted, gone, table_values
from tfgrpo.pipelines.datasets.source_files import unreadable
from tfgrpo.pipelines.settings.data import FieldMap
from tfgrpo.stores.errors import DatasetError, Problem

_BATCH = 1024


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """A Parquet file; the place of a row is its number from 0."""

    path: Path
    fields: FieldMap

    @property
    def name(self) -> str:
        """Path of the file."""
        return str(self.path)

    def rows(self) -> Iterator[Row | Problem]:
        """Every row in file order. Raises ``DatasetError`` when pyarrow or a required column is missing."""
        with self._opened() as file:
            for number, row in enumerate(self._records(file, None)):
                try:
                    yield Row(number + 1, table_values(row, self.fields), number)
                except ValueError as error:
                    accepted = f"a JSON object in the field {self.fields.metadata!r}"
                    yield Problem(self.where(number, number + 1), str(error), accepted)

    def values_at(self, places: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        """Row groups that hold nothing asked for are not read."""
        wanted = set(places)
        found: dict[int, Mapping[str, Any]] = {}
        with self._opened() as file:
            first = 0
            for group in range(file.num_row_groups):
                count = file.metadata.row_group(group).num_rows
                if any(first <= place < first + count for place in wanted):
                    for number, row in enumerate(self._records(file, [group]), start=first):
                        if number in wanted:
                            found[number] = table_values(row, self.fields)
                first += count
        if len(found) < len(wanted):
            raise gone(self.name)
        yield from (found[place] for place in places)

    def where(self, place: int, line: int) -> str:  # noqa: ARG002 - as the protocol has it
        """Path and number of the row, from 1."""
        return f"{self.path}:{line}"

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        parquet = imported("pyarrow.parquet", self.name, extra="parquet", package="pyarrow")
        faults = imported("pyarrow", self.name, extra="parquet", package="pyarrow").ArrowException
        try:
            # Opened here, because pyarrow would tell the system's refusal in words of its own.
            with self.path.open("rb") as stream, parquet.ParquetFile(stream) as file:
                yield file
        except OSError as error:
            raise unreadable(self.name, error) from None
        except faults as error:
            given = " ".join(str(error).split())[:200]
            raise DatasetError.one(self.name, given, "a Parquet file") from None

    def _records(self, file: Any, groups: Sequence[int] | None) -> Iterator[Mapping[str, Any]]:
        columns = columns_wanted(self.name, file.schema_arrow.names, self.fields)
        for batch in file.iter_batches(batch_size=_BATCH, row_groups=groups, columns=columns):
            yield from batch.to_pylist()


def imported(module: str, name: str, *, extra: str, package: str) -> Any:
    """A module of an optional package. Raises ``DatasetError`` naming the extra that brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        given = f"data that only {package} reads, which cannot be imported ({error})"
        raise DatasetError.one(name, given, f"the extra {extra!r}: pip install 'tfgrpo[{extra}]'") from None
