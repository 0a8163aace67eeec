"""Convert groups to Arrow tables and Parquet files and back, one row per rollout (extra ``parquet``).

Values without a fixed type (prompts, completions, metadata) are columns of JSON text. Files are written and read in
chunks, so that their size does not matter, and replaced atomically.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, Final

from tfgrpo.stores.batch.checks import check_groups
from tfgrpo.stores.batch.lines import groups_of_lines
from tfgrpo.stores.batch.shapes import Rollout, RolloutGroup
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.stores.errors import DatasetError, RecordRejected, SettingsError, StoreError
from tfgrpo.stores.frozen_json import Json

SCHEMA_VERSION: Final = b"1"
_VERSION_KEY: Final = b"tfgrpo.experience_batch"
_ROW_GROUP: Final = 1_000
"""Groups per write, and rollouts per read."""

_GROUP: Final = {
    "group_id": "string",
    "group_place": "int64",
    "state": "string",
    "bare_state": "string",
    "target_size": "int64",
    "policy_version": "string",
    "experience_version": "string",
    "prompt_token_ids": "list<int64>",
    "group_metadata": "string",
}
_ROLLOUT: Final = {
    "rollout_id": "string",
    "index": "int64",
    "completion": "string",
    "status": "string",
    "reward": "double",
    "reward_parts": "string",
    "logprob_tokens": "list<double>",
    "logprob_token_ids": "list<int64>",
    "logprob_total": "double",
    "logprob_count": "int64",
    "logprob_kind": "string",
    "logprob_complete": "bool",
    "logprob_mask": "list<int64>",
    "model": "string",
    "temperature": "double",
    "top_p": "double",
    "seed": "int64",
    "max_tokens": "int64",
    "finish_reason": "string",
    "prompt_tokens": "int64",
    "completion_tokens": "int64",
    "reasoning_tokens": "int64",
    "cost_usd": "double",
    "latency_s": "double",
    "error": "string",
    "metadata": "string",
}
_LOGPROB: Final = ("tokens", "token_ids", "total", "count", "kind", "complete", "mask")
_SAMPLING: Final = ("model", "temperature", "top_p", "seed", "max_tokens", "finish_reason")
_USAGE: Final = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cost_usd")
_SAME_IN_GROUP: Final = ("target_size", "policy_version", "experience_version", "prompt_token_ids")
_SAME_IN_ROLLOUT: Final = ("index", "status", "latency_s", "error")
"""Columns with the name and value of the field."""


def to_table(groups: Sequence[RolloutGroup]) -> Any:
    """Return a ``pyarrow.Table`` with one row per rollout, in order; a group without rollouts has one row.

    Raises ``ShapeError`` for groups whose values do not fit together, ``SettingsError`` without pyarrow.
    """
    arrow = _load("pyarrow")
    check_groups(groups)
    return _table(arrow, groups, 0)


def from_table(table: Any) -> tuple[RolloutGroup, ...]:
    """Return the groups of a table of ``to_table``. Raises ``DatasetError`` for any other table."""
    _check_schema(table.schema, "table")
    return tuple(_groups_of_rows(iter(table.to_pylist()), "table"))


def write_parquet(path: Path, groups: Iterable[RolloutGroup]) -> int:
    """Write a stream of groups as one Parquet file, atomically, 0600; return the number of rollouts written.

    Raises ``ShapeError`` and ``RecordRejected`` for groups that cannot be written, ``StoreError`` when the disk refuses,
    ``SettingsError`` without pyarrow.
    """
    arrow, parquet = _load("pyarrow"), _load("pyarrow.parquet")
    written, number = 0, 0
    stream = iter(groups)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        part = Path(name)
        try:
            with parquet.ParquetWriter(name, _schema(arrow)) as writer:
                while chunk := list(islice(stream, _ROW_GROUP)):
                    check_groups(chunk)
                    writer.write_table(_table(arrow, chunk, number))
                    number += len(chunk)
                    written += sum(len(group.rollouts) for group in chunk)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error}") from error
    return written


def read_parquet(path: Path) -> Iterator[RolloutGroup]:
    """Yield the groups of a file in bounded memory. Raises ``DatasetError`` for any other file."""
    arrow, parquet = _load("pyarrow"), _load("pyarrow.parquet")
    if not path.exists():
        raise DatasetError.one(str(path), "no such file", "a Parquet file of rollout groups")
    try:
        with contextlib.closing(parquet.ParquetFile(path)) as file:
            _check_schema(file.schema_arrow, str(path))
            rows = chain.from_iterable(batch.to_pylist() for batch in file.iter_batches(batch_size=_ROW_GROUP))
            yield from _groups_of_rows(rows, str(path))
    except (OSError, arrow.ArrowException) as error:
        raise DatasetError.one(str(path), " ".join(str(error).split())[:200], "a Parquet file") from error


def _table(arrow: Any, groups: Sequence[RolloutGroup], first: int) -> Any:
    rows = [row for number, group in enumerate(groups, start=first) for row in _rows(group, number)]
    try:
        return arrow.Table.from_pylist(rows, schema=_schema(arrow))
    except (arrow.ArrowException, OverflowError) as error:
        raise RecordRejected(f"a value that its column cannot hold: {error}") from error


def _schema(arrow: Any) -> Any:
    kinds = {
        "string": arrow.string(),
        "int64": arrow.int64(),
        "double": arrow.float64(),
        "bool": arrow.bool_(),
        "list<int64>": arrow.list_(arrow.int64()),
        "list<double>": arrow.list_(arrow.float64()),
    }
    return arrow.schema(
        [arrow.field(name, kinds[kind]) for name, kind in {**_GROUP, **_ROLLOUT}.items()],
        metadata={_VERSION_KEY: SCHEMA_VERSION},
    )


def _rows(group: RolloutGroup, number: int) -> Iterator[dict[str, Any]]:
    shared = {
        "group_id": group.id,
        "group_place": number,
        "state": _json(group.state, group.id),
        "bare_state": None if group.bare_state is None else _json(group.bare_state, group.id),
        "group_metadata": _json(group.metadata, group.id),
        **{name: getattr(group, name) for name in _SAME_IN_GROUP},
    }
    if not group.rollouts:
        yield shared
    for rollout in group.rollouts:
        yield {**shared, **_row(rollout)}


def _row(rollout: Rollout) -> dict[str, Any]:
    logprob = rollout.logprob
    return {
        "rollout_id": rollout.id,
        "completion": None if rollout.completion is None else _json(rollout.completion, rollout.id),
        "reward": None if rollout.reward is None else float(rollout.reward),
        "reward_parts": _json(rollout.reward_parts, rollout.id),
        "metadata": _json(rollout.metadata, rollout.id),
        **({} if logprob is None else {f"logprob_{name}": getattr(logprob, name) for name in _LOGPROB}),
        **{name: getattr(rollout.sampling, name) for name in _SAMPLING},
        **{name: getattr(rollout.usage, name) for name in _USAGE},
        **{name: getattr(rollout, name) for name in _SAME_IN_ROLLOUT},
    }


def _json(value: Json, name: str) -> str:
    try:
        return canonical_json(value)
    except ValueError as error:
        raise RecordRejected(f"{name!r}: {error}") from error


def _groups_of_rows(rows: Iterator[dict[str, Any]], source: str) -> Iterator[RolloutGroup]:
    """Go by way of the canonical lines, so that there is one reader and one set of checks."""
    for number, members in groupby(rows, key=lambda row: row["group_place"]):
        whole = list(members)
        try:
            lines = [json.dumps(line) for line in _lines(whole)]
        except (TypeError, ValueError) as error:
            raise DatasetError.one(f"{source}: group {number}", str(error)[:200], "columns of JSON text") from error
        yield from groups_of_lines(lines, source=f"{source}: group {number}")


def _lines(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    first = rows[0]
    rollouts = [row for row in rows if row["rollout_id"] is not None]
    head = {
        "kind": "group",
        "schema_version": 1,
        "size": len(rollouts),
        "id": first["group_id"],
        "state": json.loads(first["state"]),
        "bare_state": None if first["bare_state"] is None else json.loads(first["bare_state"]),
        "metadata": json.loads(first["group_metadata"]),
    }
    yield {**head, **{name: first[name] for name in _SAME_IN_GROUP}}
    for row in rollouts:
        yield _line(row)


def _line(row: dict[str, Any]) -> dict[str, Any]:
    logprob = {name: row[f"logprob_{name}"] for name in _LOGPROB}
    return {
        "kind": "rollout",
        "id": row["rollout_id"],
        "group_id": row["group_id"],
        "completion": None if row["completion"] is None else json.loads(row["completion"]),
        "reward": row["reward"],
        "reward_parts": json.loads(row["reward_parts"]),
        "logprob": None if logprob["kind"] is None else logprob,
        "sampling": {name: row[name] for name in _SAMPLING},
        "usage": {name: row[name] for name in _USAGE},
        "metadata": json.loads(row["metadata"]),
        **{name: row[name] for name in _SAME_IN_ROLLOUT},
    }


def _check_schema(schema: Any, source: str) -> None:
    version = (schema.metadata or {}).get(_VERSION_KEY)
    missing = sorted({*_GROUP, *_ROLLOUT} - set(schema.names))
    if version != SCHEMA_VERSION or missing:
        received = f"without {', '.join(missing[:5])}" if missing else f"schema version {version!r}"
        raise DatasetError.one(
            source, received, f"rollout groups as tfgrpo writes them, schema version {SCHEMA_VERSION.decode()}"
        )


def _load(name: str) -> Any:
    with contextlib.suppress(ImportError):
        return importlib.import_module(name)
    raise SettingsError.one("pyarrow", "not installed", "the extra: pip install 'tfgrpo[parquet]'")
