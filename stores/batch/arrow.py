"""Write groups as Parquet files and read them back, one row per group (extra ``parquet``).

The columns are the fields of a group, its rollouts a list of structs. Values without a fixed type (prompts, completions,
metadata) are JSON text. Files stream, and are replaced atomically.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import chain, islice
from pathlib import Path
from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from tfgrpo.stores.batch.shapes import RolloutGroup, check_groups, parse_group
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.stores.errors import DatasetError, Problem, RecordRejected, SettingsError
from tfgrpo.stores.files.atomic import replacing
from tfgrpo.stores.frozen_json import to_builtins

_VERSION: Final = {b"tfgrpo.experience_batch": b"2"}
_JSON: Final = frozenset({"state", "bare_state", "completion", "reward_parts", "metadata"})
_EXTRA: Final = "the extra: pip install 'tfgrpo[parquet]'"
_AT_ONCE: Final = 1_000
"""Groups per write and read."""


def write_parquet(path: Path, groups: Iterable[RolloutGroup]) -> int:
    """Write a stream of groups as one Parquet file, atomically, 0600; return the number of rollouts written.

    Raises ``ShapeError`` and ``RecordRejected`` for groups that cannot be written, ``StoreError`` when the disk refuses,
    ``SettingsError`` without pyarrow.
    """
    written, stream = 0, iter(groups)

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal written
        while chunk := list(islice(stream, _AT_ONCE)):
            check_groups(chunk)
            written += sum(len(group.rollouts) for group in chunk)
            yield from map(_row, chunk)

    write_rows(path, rows(), _schema, _EXTRA)
    return written


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], schema_of: Callable[[Any], Any], accepted: str) -> None:
    """Replace a file by rows, 0600. ``schema_of`` takes the module pyarrow; ``accepted``: what is needed without it.

    Raises ``RecordRejected`` for a row that does not fit the schema, ``StoreError`` when the disk refuses, ``SettingsError``.
    """
    arrow, parquet = _pyarrow_or_refuse(accepted)
    stream, schema = iter(rows), schema_of(arrow)
    with replacing(path) as part, parquet.ParquetWriter(part, schema) as writer:
        while chunk := list(islice(stream, _AT_ONCE)):
            try:
                table = arrow.Table.from_pylist(chunk, schema=schema)
            except (arrow.ArrowException, OverflowError) as error:
                raise RecordRejected(f"{path}: a value that its column cannot hold: {error}") from error
            writer.write_table(table)


def read_parquet(path: Path) -> Iterator[RolloutGroup]:
    """Yield the groups of a file in bounded memory. Raises ``DatasetError`` for any other file."""
    arrow, parquet = _pyarrow_or_refuse(_EXTRA)
    if not path.exists():
        raise DatasetError.one(str(path), "no such file", "a Parquet file of rollout groups")
    try:
        with contextlib.closing(parquet.ParquetFile(path)) as file:
            if file.schema_arrow.metadata != _VERSION or file.schema_arrow.names != _schema(arrow).names:
                accepted = "rollout groups as tfgrpo writes them, schema version 2"
                raise DatasetError.one(str(path), f"the columns {', '.join(file.schema_arrow.names):.200}", accepted)
            rows = chain.from_iterable(batch.to_pylist() for batch in file.iter_batches(batch_size=_AT_ONCE))
            for number, row in enumerate(rows):
                source = f"{path}: group {number}"
                try:
                    group, faults = parse_group(json.dumps(_with_json(row, json.loads)))
                except (TypeError, ValueError) as error:
                    raise DatasetError.one(source, str(error)[:200], "columns of JSON text") from error
                if faults or group is None:
                    raise DatasetError(
                        [Problem(f"{source}: {name}", f"{value!r:.120}", fit) for _, name, fit, value in faults]
                    )
                yield group
    except (OSError, arrow.ArrowException) as error:
        raise DatasetError.one(str(path), " ".join(str(error).split())[:200], "a Parquet file") from error


def _pyarrow_or_refuse(accepted: str) -> tuple[Any, Any]:
    """Return the modules pyarrow and pyarrow.parquet. Raises ``SettingsError`` without them."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise SettingsError.one("pyarrow", "not installed", accepted) from error


def _schema(arrow: Any) -> Any:
    return arrow.schema(list(_type(arrow, RolloutGroup)), metadata=_VERSION)


def _type(arrow: Any, hint: Any) -> Any:
    """Return the type of a column; a JSON value is text."""
    kind = (
        next(each for each in (*get_args(hint), hint) if each is not NoneType) if NoneType in get_args(hint) else hint
    )
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return arrow.struct([(each.name, _type(arrow, hints[each.name])) for each in fields(kind)])
    if get_origin(kind) is tuple:
        return arrow.list_(_type(arrow, get_args(kind)[0]))
    kind = type(get_args(kind)[0]) if get_origin(kind) is Literal else kind
    return {int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}.get(kind, arrow.string())


def _row(group: RolloutGroup) -> dict[str, Any]:
    try:
        return _with_json(to_builtins(group), canonical_json)
    except ValueError as error:
        raise RecordRejected(f"group {group.id!r}: {error}") from error


def _with_json(row: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a row with its JSON values changed, from values to texts or back."""
    changed = {name: change(cell) if name in _JSON else cell for name, cell in row.items()}
    if "rollouts" in row:
        changed["rollouts"] = [_with_json(rollout, change) for rollout in row["rollouts"]]
    return changed
