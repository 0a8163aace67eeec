"""How is a Hugging Face dataset read as rows? By name from the hub, or from a folder; the extra ``hf`` brings ``datasets``.

The library keeps it memory-mapped, so that no more of it is held than is looked at. Nothing is asked of the hub but
what the library asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tfgrpo.pipelines.datasets.rows import Row
from tfgrpo.pipelines.datasets.source_base import columns_wanted, gone, table_values
from tfgrpo.pipelines.datasets.source_tables import imported
from tfgrpo.pipelines.settings.data import FieldMap
from tfgrpo.stores.errors import DatasetError, Problem

PREFIX = "hf:"
_NAME = re.compile(r"hf:(?P<path>[^#]+?)(?::(?P<config>[^:/\\#]+))?(?:#(?P<split>[^#]+))?")
_ACCEPTED = "hf:owner/name, hf:owner/name:config or a folder, with #split behind it if it is not #train"
_BATCH = 256


@dataclass(frozen=True)
class HubSource:
    """One split of a Hugging Face dataset; the place of a row is its number from 0."""

    name: str
    """As given, ``hf:owner/name:config#split``."""
    fields: FieldMap

    def rows(self) -> Iterator[Row | Problem]:
        """Every row in order. Raises ``DatasetError`` when the library, the dataset or a required column is missing."""
        table = self._table
        for first in range(0, len(table), _BATCH):
            for number, row in enumerate(_records(table[first : first + _BATCH]), start=first):
                try:
                    yield Row(number + 1, table_values(row, self.fields), number)
                except ValueError as error:
                    accepted = f"a JSON object in the field {self.fields.metadata!r}"
                    yield Problem(self.where(number, number + 1), str(error), accepted)

    def values_at(self, places: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        """Rows by their number."""
        table = self._table
        for place in places:
            if place >= len(table):
                raise gone(self.name)
            yield table_values(table[place], self.fields)

    def where(self, place: int, line: int) -> str:  # noqa: ARG002 - as the protocol has it
        """Name and number of the row, from 1."""
        return f"{self.name}:{line}"

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
        except Exception as error:  # noqa: BLE001 - whatever the hub, the network or a file has to say is told as ours
            given = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise DatasetError.one(self.name, given, _ACCEPTED) from None
        return table.select_columns(columns_wanted(self.name, table.column_names, self.fields))


def is_saved(folder: Path) -> bool:
    """Whether a folder was written by ``save_to_disk``."""
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


def _records(columns: Mapping[str, Sequence[Any]]) -> Iterator[Mapping[str, Any]]:
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))
