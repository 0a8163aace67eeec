"""Read a Hugging Face dataset as rows, by name or from a saved folder; the extra ``hf`` installs ``datasets``.

The library keeps the data memory-mapped, so that only the rows in use are in memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tfgrpo.pipelines.datasets.sources.base import PREFIX, Row, row_changed
from tfgrpo.pipelines.datasets.sources.tables import field_columns, imported, table_rows, table_values
from tfgrpo.pipelines.settings.data import FieldMap
from tfgrpo.stores.errors import DatasetError, Problem

_NAME = re.compile(r"hf:(?P<path>[^#]+?)(?::(?P<config>[^:/\\#]+))?(?:#(?P<split>[^#]+))?")
_ACCEPTED = "hf:owner/name, hf:owner/name:config or a folder, with #split behind it if it is not #train"
_BATCH = 256


@dataclass(frozen=True)
class HubSource:
    """One split of a Hugging Face dataset; positions are row numbers from 0."""

    name: str
    """As given, ``hf:owner/name:config#split``."""
    fields: FieldMap

    def rows(self) -> Iterator[Row | Problem]:
        """Yield every row. Raise ``DatasetError`` if the library, the dataset or a required column is missing."""
        yield from table_rows(self._records(), self.name, self.fields)

    def values_at(self, positions: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        """Yield rows by number."""
        for position in positions:
            if position >= len(self._table):
                raise row_changed(self.name)
            yield table_values(self._table[position], self.fields)

    def where(self, position: int, line: int) -> str:  # noqa: ARG002 - as the protocol has it
        """Return name and number of the row, from 1."""
        return f"{self.name}:{line}"

    def _records(self) -> Iterator[Mapping[str, Any]]:
        for first in range(0, len(self._table), _BATCH):
            columns = self._table[first : first + _BATCH]
            for values in zip(*columns.values(), strict=True):
                yield dict(zip(columns, values, strict=True))

    @cached_property
    def _table(self) -> Any:
        match = _NAME.fullmatch(self.name)
        if match is None:
            raise DatasetError.one("dataset.path", repr(self.name), _ACCEPTED)
        library = imported("datasets", self.name, extra="hf", package="datasets")
        try:
            table = _loaded(library, match["path"], match["config"], match["split"] or "train")
        except DatasetError:
            raise
        except Exception as error:  # noqa: BLE001 - hub, network and files raise many types; each becomes a DatasetError
            given = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise DatasetError.one(self.name, given, _ACCEPTED) from None
        return table.select_columns(field_columns(self.name, table.column_names, self.fields))


def is_saved(folder: Path) -> bool:
    """Return whether a folder was written by ``save_to_disk``."""
    return (folder / "dataset_dict.json").is_file() or (
        (folder / "dataset_info.json").is_file() and (folder / "state.json").is_file()
    )


def _loaded(library: Any, path: str, config: str | None, split: str) -> Any:
    if not is_saved(Path(path)):
        return library.load_dataset(path, config, split=split)
    saved = library.load_from_disk(path)
    if not isinstance(saved, library.DatasetDict):
        return saved
    if split not in saved:
        raise DatasetError.one(f"{PREFIX}{path}", f"no split {split!r}", f"one of {', '.join(sorted(saved))}")
    return saved[split]
