"""What is a source of rows? Something that can be read through once, and looked into again at the places it named.

Sources know nothing of items, and hold no rows.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from pydantic_core import to_jsonable_python

from tfgrpo.pipelines.datasets.item_fields import shown_names
from tfgrpo.pipelines.datasets.rows import Row, strict_json
from tfgrpo.pipelines.settings.data import FieldMap
from tfgrpo.stores.errors import DatasetError, Problem

UTF16: Final = "text in UTF-16"


class RowSource(Protocol):
    """Rows with named values."""

    @property
    def name(self) -> str:
        """What messages call it: a path, or ``hf:name#split``."""
        ...

    def rows(self) -> Iterator[Row | Problem]:
        """Every row in order, or what is wrong with it. Raises ``DatasetError`` when nothing can be read at all."""
        ...

    def values_at(self, places: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        """The values of some rows, in the order asked for. Raises ``DatasetError`` when a place holds no row any more."""
        ...

    def where(self, place: int, line: int) -> str:
        """What messages call a row: ``path:line``."""
        ...


def first_part(name: str, columns: Iterable[str]) -> str:
    """The column that a field is in: the one of that name, else the one that its dotted name begins with."""
    return name if name in columns else name.partition(".")[0]


def field_names(fields: FieldMap) -> tuple[str, ...]:
    """Names of the fields as they are mapped, without one that is made up."""
    return tuple(name for name in fields.model_dump().values() if name is not None)


def columns_wanted(name: str, columns: Sequence[str], fields: FieldMap) -> list[str]:
    """The columns of a table that hold fields. Raises ``DatasetError`` when a required one is not there."""
    required = [each for each in (fields.id, fields.prompt) if each is not None]
    missing = [each for each in required if first_part(each, columns) not in columns]
    if missing:
        raise DatasetError(
            [
                Problem(
                    name,
                    f"no column {each!r} among {shown_names(columns)}",
                    f"a column {each!r}, {fields.otherwise(each)}",
                )
                for each in missing
            ]
        )
    wanted = {first_part(each, columns) for each in field_names(fields)}
    return [column for column in columns if column in wanted]


def table_values(row: Mapping[str, Any], fields: FieldMap) -> dict[str, Any]:
    """Values of a table's row as JSON has them: dates as text, metadata that is text parsed. Raises ``ValueError``."""
    values: dict[str, Any] = to_jsonable_python(dict(row), fallback=str, bytes_mode="base64")
    metadata = values.get(fields.metadata)
    if isinstance(metadata, str):
        values[fields.metadata] = strict_json(metadata)
    return values


def gone(where: str) -> DatasetError:
    """What is raised when a place does not hold what was read there before."""
    return DatasetError([Problem(where, "another row than when the run began", "a dataset that nobody writes into")])


def other_encoding(mark: bytes) -> str:
    """What a file is that begins with these four bytes; empty for UTF-8, with or without a byte order mark."""
    if mark in {codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE}:
        return "text in UTF-32"
    if mark.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return UTF16
    return "no text, or UTF-16 without a byte order mark" if b"\0" in mark else ""


def looked_at(name: str) -> str:
    """Where a path that is not there was looked for, behind what a message says of it; empty where its name tells."""
    path = Path(name)
    return "" if path.is_absolute() else f" at {path.absolute()}"
