"""Write groups as Parquet files and read them back, one row per rollout (extra ``parquet``).

Values without a fixed type (prompts, completions, metadata) are columns of JSON text. Files are written and read in
chunks, so that their size does not matter, and replaced atomically.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

from tfgrpo.stores.batch.checks import check_groups
from tfgrpo.stores.batch.lines import groups_of_lines
from tfgrpo.stores.batch.shapes import Rollout, RolloutGroup
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.stores.errors import DatasetError, RecordRejected, SettingsError
from tfgrpo.stores.files.atomic import replacing

SCHEMA_VERSION: Final = b"1"
_VERSION_KEY: Final = b"tfgrpo.experience_batch"
_ROW_GROUP: Final = 1_000
"""Groups per write, and rollouts per read."""
_JSON: Final = "JSON"
"""A value as JSON text in a column of strings."""
_JSON_OR_NULL: Final = "JSON or null"
_Columns: TypeAlias = tuple[tuple[str, str, str, str], ...]

# Column, its type, and the field that it holds: of the record itself, or of the value in the record that is named first.
_GROUP: Final = (
    ("group_id", "string", "", "id"),
    ("state", _JSON, "", "state"),
    ("bare_state", _JSON_OR_NULL, "", "bare_state"),
    ("target_size", "int64", "", "target_size"),
    ("policy_version", "string", "", "policy_version"),
    ("experience_version", "string", "", "experience_version"),
    ("prompt_token_ids", "list<int64>", "", "prompt_token_ids"),
    ("group_metadata", _JSON, "", "metadata"),
)
_ROLLOUT: Final = (
    ("rollout_id", "string", "", "id"),
    ("index", "int64", "", "index"),
    ("completion", _JSON_OR_NULL, "", "completion"),
    ("status", "string", "", "status"),
    ("reward", "double", "", "reward"),
    ("reward_parts", _JSON, "", "reward_parts"),
    ("logprob_tokens", "list<double>", "logprob", "tokens"),
    ("logprob_token_ids", "list<int64>", "logprob", "token_ids"),
    ("logprob_total", "double", "logprob", "total"),
    ("logprob_count", "int64", "logprob", "count"),
    ("logprob_kind", "string", "logprob", "kind"),
    ("logprob_complete", "bool", "logprob", "complete"),
    ("logprob_mask", "list<int64>", "logprob", "mask"),
    ("model", "string", "sampling", "model"),
    ("temperature", "double", "sampling", "temperature"),
    ("top_p", "double", "sampling", "top_p"),
    ("seed", "int64", "sampling", "seed"),
    ("max_tokens", "int64", "sampling", "max_tokens"),
    ("finish_reason", "string", "sampling", "finish_reason"),
    ("prompt_tokens", "int64", "usage", "prompt_tokens"),
    ("completion_tokens", "int64", "usage", "completion_tokens"),
    ("reasoning_tokens", "int64", "usage", "reasoning_tokens"),
    ("cost_usd", "double", "usage", "cost_usd"),
    ("latency_s", "double", "", "latency_s"),
    ("error", "string", "", "error"),
    ("metadata", _JSON, "", "metadata"),
)
_PLACE: Final = "group_place"
"""Column with the number of the group in its file."""


def write_parquet(path: Path, groups: Iterable[RolloutGroup]) -> int:
    """Write a stream of groups as one Parquet file, atomically, 0600; return the number of rollouts written.

    Raises ``ShapeError`` and ``RecordRejected`` for groups that cannot be written, ``StoreError`` when the disk refuses,
    ``SettingsError`` without pyarrow.
    """
    arrow, parquet = _pyarrow()
    written, number = 0, 0
    stream = iter(groups)
    schema = _schema(arrow)
    with replacing(path) as part, parquet.ParquetWriter(part, schema) as writer:
        while chunk := list(islice(stream, _ROW_GROUP)):
            check_groups(chunk)
            rows = [row for place, group in enumerate(chunk, start=number) for row in _rows(group, place)]
            try:
                table = arrow.Table.from_pylist(rows, schema=schema)
            except (arrow.ArrowException, OverflowError) as error:
                raise RecordRejected(f"a value that its column cannot hold: {error}") from error
            writer.write_table(table)
            number += len(chunk)
            written += sum(len(group.rollouts) for group in chunk)
    return written


def read_parquet(path: Path) -> Iterator[RolloutGroup]:
    """Yield the groups of a file in bounded memory. Raises ``DatasetError`` for any other file."""
    arrow, parquet = _pyarrow()
    if not path.exists():
        raise DatasetError.one(str(path), "no such file", "a Parquet file of rollout groups")
    try:
        with contextlib.closing(parquet.ParquetFile(path)) as file:
            _check_schema(file.schema_arrow, str(path))
            rows = chain.from_iterable(batch.to_pylist() for batch in file.iter_batches(batch_size=_ROW_GROUP))
            for number, members in groupby(rows, key=itemgetter(_PLACE)):
                where = f"{path}: group {number}"
                # By way of the canonical lines, so that there is one reader and one set of checks.
                yield from groups_of_lines(_lines(list(members), where), source=where)
    except (OSError, arrow.ArrowException) as error:
        raise DatasetError.one(str(path), " ".join(str(error).split())[:200], "a Parquet file") from error


def _schema(arrow: Any) -> Any:
    kinds = {
        "int64": arrow.int64(),
        "double": arrow.float64(),
        "bool": arrow.bool_(),
        "list<int64>": arrow.list_(arrow.int64()),
        "list<double>": arrow.list_(arrow.float64()),
    }
    first, *others = [(name, kinds.get(kind, arrow.string())) for name, kind, *_ in (*_GROUP, *_ROLLOUT)]
    return arrow.schema([first, (_PLACE, arrow.int64()), *others], metadata={_VERSION_KEY: SCHEMA_VERSION})


def _rows(group: RolloutGroup, number: int) -> Iterator[dict[str, Any]]:
    shared = {_PLACE: number, **_cells(group, _GROUP)}
    if not group.rollouts:
        yield shared
    for rollout in group.rollouts:
        yield {**shared, **_cells(rollout, _ROLLOUT)}


def _cells(record: RolloutGroup | Rollout, columns: _Columns) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for name, kind, owner, field in columns:
        holder = getattr(record, owner) if owner else record
        value = None if holder is None else getattr(holder, field)
        if _is_json(kind, value):
            try:
                value = canonical_json(value)
            except ValueError as error:
                raise RecordRejected(f"{record.id!r}: {error}") from error
        cells[name] = float(value) if kind == "double" and value is not None else value
    return cells


def _is_json(kind: str, value: object) -> bool:
    return kind == _JSON or (kind == _JSON_OR_NULL and value is not None)


def _lines(rows: Sequence[dict[str, Any]], source: str) -> list[str]:
    """Return the canonical lines of a group."""
    members = [row for row in rows if row["rollout_id"] is not None]
    try:
        head = _fields(rows[0], _GROUP)
        lines = [{"kind": "group", "schema_version": 1, "size": len(members), **head}]
        for row in members:
            line = _fields(row, _ROLLOUT)
            logprob = None if line["logprob"]["kind"] is None else line["logprob"]
            lines.append({"kind": "rollout", "group_id": head["id"], **line, "logprob": logprob})
        return [json.dumps(line) for line in lines]
    except (TypeError, ValueError) as error:
        raise DatasetError.one(source, str(error)[:200], "columns of JSON text") from error


def _fields(row: dict[str, Any], columns: _Columns) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for name, kind, owner, field in columns:
        holder = record.setdefault(owner, {}) if owner else record
        holder[field] = json.loads(row[name]) if _is_json(kind, row[name]) else row[name]
    return record


def _check_schema(schema: Any, source: str) -> None:
    version = (schema.metadata or {}).get(_VERSION_KEY)
    missing = sorted({_PLACE, *(name for name, *_ in (*_GROUP, *_ROLLOUT))} - set(schema.names))
    if version != SCHEMA_VERSION or missing:
        received = f"without {', '.join(missing[:5])}" if missing else f"schema version {version!r}"
        raise DatasetError.one(
            source, received, f"rollout groups as tfgrpo writes them, schema version {SCHEMA_VERSION.decode()}"
        )


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise SettingsError.one("pyarrow", "not installed", "the extra: pip install 'tfgrpo[parquet]'") from None
