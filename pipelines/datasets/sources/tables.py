"""Read the columns of tables as rows, and Parquet files in small batches; the extra ``parquet`` installs pyarrow."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from tfgrpo.pipelines.datasets.sources.base import Row, first_part, row_changed, unreadable
from tfgrpo.pipelines.datasets.sources.json_text import strict_json
from tfgrpo.pipelines.problems import quoted_names
from tfgrpo.pipelines.settings.data import FieldMap
from tfgrpo.stores.errors import DatasetError, Problem

_BATCH = 1024


def table_rows(records: Iterable[Mapping[str, Any]], name: str, fields: FieldMap) -> Iterator[Row | Problem]:
    """Yield the rows of a table; the position of a row is its number from 0, its line the number from 1."""
    for number, record in enumerate(records):
        try:
            yield Row(number + 1, table_values(record, fields), number)
        except ValueError as error:
            yield Problem(f"{name}:{number + 1}", str(error), f"a JSON object in the field {fields.metadata!r}")


def table_values(record: Mapping[str, Any], fields: FieldMap) -> dict[str, Any]:
    """Return a record as JSON values: dates as text, metadata text parsed. Raise ``ValueError``."""
    values: dict[str, Any] = to_jsonable_python(dict(record), fallback=str, bytes_mode="base64")
    metadata = values.get(fields.metadata)
    if isinstance(metadata, str):
        values[fields.metadata] = strict_json(metadata)
    return values


def field_columns(name: str, columns: Sequence[str], fields: FieldMap) -> list[str]:
    """Return the columns that contain fields. Raise ``DatasetError`` for required ones that are missing."""
    if missing := [each for each in fields.required if first_part(each, columns) not in columns]:
        given = f"among {quoted_names(columns)}"
        raise DatasetError(
            [
                Problem(name, f"no column {each!r} {given}", f"a column {each!r}, {fields.remedy(each)}")
                for each in missing
            ]
        )
    wanted = {first_part(each, columns) for each in fields.names}
    return [column for column in columns if column in wanted]


def imported(module: str, name: str, *, extra: str, package: str) -> Any:
    """Import a module of an optional package. Raise ``DatasetError`` naming the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        given = f"data that only {package} reads, which cannot be imported ({error})"
        raise DatasetError.one(name, given, f"the extra {extra!r}: pip install 'tfgrpo[{extra}]'") from None


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """A Parquet file; positions are row numbers from 0."""

    path: Path
    fields: FieldMap

    @property
    def name(self) -> str:
        """Path of the file."""
        return str(self.path)

    def rows(self) -> Iterator[Row | Problem]:
        """Yield every row. Raise ``DatasetError`` if pyarrow or a required column is missing."""
        with self._opened() as file:
            yield from table_rows(self._records(file, None), self.name, self.fields)

    def values_at(self, positions: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        """Yield rows by number; row groups without any of them are not read."""
        wanted = set(positions)
        values: dict[int, Mapping[str, Any]] = {}
        with self._opened() as file:
            first = 0
            for group in range(file.num_row_groups):
                count = file.metadata.row_group(group).num_rows
                if any(first <= position < first + count for position in wanted):
                    for number, record in enumerate(self._records(file, [group]), start=first):
                        if number in wanted:
                            values[number] = table_values(record, self.fields)
                first += count
        if len(values) < len(wanted):
            raise row_changed(self.name)
        yield from (values[position] for position in positions)

    def where(self, position: int, line: int) -> str:  # noqa: ARG002 - as the protocol has it
        """Return path and number of the row, from 1."""
        return f"{self.path}:{line}"

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        parquet = imported("pyarrow.parquet", self.name, extra="parquet", package="pyarrow")
        arrow_error = imported("pyarrow", self.name, extra="parquet", package="pyarrow").ArrowException
        try:
            # Opened here, because pyarrow would replace the system's message by one of its own.
            with self.path.open("rb") as stream, parquet.ParquetFile(stream) as file:
                yield file
        except OSError as error:
            raise unreadable(self.name, error) from None
        except arrow_error as error:
            raise DatasetError.one(self.name, " ".join(str(error).split())[:200], "a Parquet file") from None

    def _records(self, file: Any, groups: Sequence[int] | None) -> Iterator[Mapping[str, Any]]:
        columns = field_columns(self.name, file.schema_arrow.names, self.fields)
        for batch in file.iter_batches(batch_size=_BATCH, row_groups=groups, columns=columns):
            yield from batch.to_pylist()
