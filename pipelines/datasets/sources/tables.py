"""Read tables as rows: Parquet files in small batches, and Hugging Face datasets by name or from a saved folder.

The extra ``parquet`` installs pyarrow, the extra ``hf`` installs ``datasets``, which keeps the data memory-mapped, so that
only the rows in use are in memory. Positions are row numbers from 0.
"""

from __future__ import annotations

import importlib
import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from tfgrpo.pipelines.datasets.sources.base import PREFIX, Row, RowSource, row_changed, unreadable
from tfgrpo.pipelines.datasets.sources.json_text import strict_json
from tfgrpo.pipelines.settings.tree import FieldMap, first_part
from tfgrpo.stores.errors import DatasetError, Problem
from tfgrpo.stores.text import quoted_names

_BATCH = 1024
_HUB_NAME = re.compile(r"hf:(?P<path>[^#]+?)(?::(?P<config>[^:/\\#]+))?(?:#(?P<split>[^#]+))?")
_NOT_TEXT = re.compile(r"\b(?:Image|Audio|Video|Pdf|Nifti)\(|binary\b(?!'?:)")
"""Types of columns that are read only for a field: decoding them takes other libraries, and much memory."""
_HUB_ACCEPTED = "hf:owner/name, hf:owner/name:config or a folder, with #split behind it if it is not #train"


class ParquetSource(RowSource):
    """A Parquet file."""

    def columns(self) -> list[str]:
        """Return the names of all columns."""
        with self._opened() as file:
            return list(file.schema_arrow.names)

    def rows(self) -> Iterator[Row | Problem]:
        """Yield every row. Raise ``DatasetError`` if pyarrow or a required column is missing."""
        with self._opened() as file:
            yield from _rows(self._records(file, None), self.name, self.fields)

    def values_at(self, positions: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        """Yield rows by number; row groups without any of them are not read."""
        wanted = set(positions)
        values: dict[int, Mapping[str, Any]] = {}
        with self._opened() as file:
            groups = range(file.num_row_groups)
            starts = [0, *accumulate(file.metadata.row_group(group).num_rows for group in groups)]
            for group in {bisect(starts, position) - 1 for position in wanted} & {*groups}:
                for number, record in enumerate(self._records(file, [group]), start=starts[group]):
                    if number in wanted:
                        values[number] = _values(record, self.fields)
        if len(values) < len(wanted):
            raise row_changed(self.name)
        yield from (values[position] for position in positions)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        parquet = imported("pyarrow.parquet", self.name, extra="parquet", package="pyarrow")
        arrow_error = imported("pyarrow", self.name, extra="parquet", package="pyarrow").ArrowException
        try:
            # Opened here, because pyarrow would replace the system's message by one of its own.
            with Path(self.name).open("rb") as stream, parquet.ParquetFile(stream) as file:
                yield file
        except OSError as error:
            raise unreadable(self.name, error) from None
        except arrow_error as error:
            raise DatasetError.one(self.name, " ".join(str(error).split())[:200], "a Parquet file") from None

    def _records(self, file: Any, groups: Sequence[int] | None) -> Iterator[Mapping[str, Any]]:
        schema = file.schema_arrow
        types = dict(zip(schema.names, map(str, schema.types), strict=True))
        columns = _read_columns(self.name, types, self.fields)
        for batch in file.iter_batches(batch_size=_BATCH, row_groups=groups, columns=columns):
            yield from batch.to_pylist()


class HubSource(RowSource):
    """One split of a Hugging Face dataset."""

    def columns(self) -> list[str]:
        """Return the names of all columns."""
        return list(self._whole.column_names)

    def rows(self) -> Iterator[Row | Problem]:
        """Yield every row. Raise ``DatasetError`` if the library, the dataset or a required column is missing."""
        batches = self._table.iter(batch_size=_BATCH)  # row by row takes twenty times as long
        records = (dict(zip(batch, row, strict=True)) for batch in batches for row in zip(*batch.values(), strict=True))
        yield from _rows(records, self.name, self.fields)

    def values_at(self, positions: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        """Yield rows by number."""
        for position in positions:
            if position >= len(self._table):
                raise row_changed(self.name)
            yield _values(self._table[position], self.fields)

    @cached_property
    def _table(self) -> Any:
        types = {name: str(feature) for name, feature in self._whole.features.items()}
        return self._whole.select_columns(_read_columns(self.name, types, self.fields))

    @cached_property
    def _whole(self) -> Any:
        match = _HUB_NAME.fullmatch(self.name)
        if match is None:
            raise DatasetError.one("dataset.path", repr(self.name), _HUB_ACCEPTED)
        library = imported("datasets", self.name, extra="hf", package="datasets")
        try:
            return _loaded(library, match["path"], match["config"], match["split"] or "train")
        except DatasetError:
            raise
        except Exception as error:  # noqa: BLE001 - hub, network and files raise many types; each becomes a DatasetError
            given = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise DatasetError.one(self.name, given, _HUB_ACCEPTED) from None


def is_saved(folder: Path) -> bool:
    """Return whether a folder was written by ``save_to_disk`` of ``datasets``."""
    return (folder / "dataset_dict.json").is_file() or (
        (folder / "dataset_info.json").is_file() and (folder / "state.json").is_file()
    )


def imported(module: str, name: str, *, extra: str, package: str) -> Any:
    """Import a module of an optional package. Raise ``DatasetError`` naming the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        given = f"data that only {package} reads, which cannot be imported ({error})"
        raise DatasetError.one(name, given, f"the extra {extra!r}: pip install 'tfgrpo[{extra}]'") from None


def _loaded(library: Any, path: str, config: str | None, split: str) -> Any:
    if not is_saved(Path(path)):
        return library.load_dataset(path, config, split=split)
    saved = library.load_from_disk(path)
    if not isinstance(saved, library.DatasetDict):
        return saved
    if split not in saved:
        splits = sorted(saved)
        accepted = f"one of {', '.join(splits)}, as {PREFIX}{path}#{splits[0]}"
        raise DatasetError.one(f"{PREFIX}{path}", f"no split {split!r}", accepted)
    return saved[split]


def _rows(records: Iterable[Mapping[str, Any]], name: str, fields: FieldMap) -> Iterator[Row | Problem]:
    for number, record in enumerate(records):
        try:
            yield Row(number + 1, _values(record, fields), number)
        except ValueError as error:
            yield Problem(f"{name}:{number + 1}", str(error), f"a JSON object in the field {fields.metadata!r}")


def _values(record: Mapping[str, Any], fields: FieldMap) -> dict[str, Any]:
    """Return a record as JSON values: dates as text, metadata text parsed. Raise ``ValueError``.

    NaN is null, except in fields, which refuse it.
    """
    withheld = {first_part(name, record) for name in fields.withheld}
    further = {name: value for name, value in record.items() if name not in withheld}
    own = {name: value for name, value in record.items() if name in withheld}
    values: dict[str, Any] = to_jsonable_python(own, fallback=str, bytes_mode="base64")
    values |= to_jsonable_python(further, fallback=str, bytes_mode="base64", inf_nan_mode="null")
    metadata = values.get(fields.metadata)
    if isinstance(metadata, str):
        values[fields.metadata] = strict_json(metadata)
    return values


def _read_columns(name: str, types: Mapping[str, str], fields: FieldMap) -> list[str]:
    """Return the columns to read. Raise ``DatasetError`` for required ones that are missing."""
    if problems := [
        Problem(name, f"no column {each!r} among {quoted_names(types)}", f"a column {each!r}, {fields.remedy(each)}")
        for each in fields.required
        if first_part(each, types) not in types
    ]:
        raise DatasetError(problems)
    needed = {first_part(each, types) for each in (*fields.required, *fields.withheld)}
    return [column for column, kind in types.items() if column in needed or not _NOT_TEXT.search(kind)]
