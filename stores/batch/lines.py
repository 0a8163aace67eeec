"""Read and write groups in files: as JSONL, one line for the group, then one for each of its rollouts, or as Parquet.

JSONL is the canonical form: lossless, versioned, appended in whole groups, streamed one group at a time. NaN and
infinity are refused; a malformed line is an error, never skipped. A window holds the latest groups; its file keeps all.
In Parquet files, one row per group, the columns are the fields of a group, its rollouts a list of structs, and values
without a fixed type (prompts, completions, metadata) are JSON text; they stream, and are replaced atomically.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import chain, islice
from pathlib import Path
from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from tfgrpo.stores.batch.batch import ExperienceBatch
from tfgrpo.stores.batch.shapes import RolloutGroup, check_groups, check_sizes, parse_group, without_latency
from tfgrpo.stores.errors import CorruptFile, DatasetError, Problem, RecordRejected, SettingsError, ShapeError, ShapeProblem
from tfgrpo.stores.files.atomic import append_lines, read_lines, replace_text, replacing
from tfgrpo.stores.json_values import canonical_json, json_of, sha256_hex, to_builtins
from tfgrpo.stores.numeric import is_count

BATCH_SCHEMA: Final = 1
_SHOWN: Final = 120
_AT_ONCE: Final = 1_000
# Fields that are written even when they are None or empty.
_ALWAYS: Final = frozenset({"state", "completion"})
_REFERENCE: Final = "$text"
_VERSION: Final = {b"tfgrpo.experience_batch": b"%d" % BATCH_SCHEMA}
_JSON: Final = frozenset({"state", "bare_state", "completion", "reward_parts", "metadata"})
_EXTRA: Final = "the extra: pip install 'tfgrpo[parquet]'"


@dataclass(frozen=True, slots=True)
class TextStore:
    """Texts of more than ``limit`` characters, each stored once in a folder, in a file named by its SHA-256.

    A prompt that a thousand rollouts share is then on disk once.
    """

    path: Path
    limit: int = 20_000

    def externalize(self, value: Any) -> Any:
        """Return the value with every long text replaced by a reference, once the text is on disk.

        Raises ``RecordRejected`` for a value that contains such a reference already, ``StoreError`` when the disk refuses.
        """
        if isinstance(value, str) and len(value) > self.limit:
            digest = sha256_hex(value.encode("utf-8", "surrogatepass"))
            path = self.path / f"{digest}.txt"
            if not path.exists():
                replace_text(path, value)
            return {_REFERENCE: digest}
        if isinstance(value, Mapping) and _REFERENCE in value:
            raise RecordRejected(f"an object with the key {_REFERENCE!r} looks like a reference to a text")
        return _map_inside(value, self.externalize)

    def restore(self, value: Any) -> Any:
        """Return the value with every reference replaced by its text. Raises ``CorruptFile`` for a lost or changed one."""
        if not isinstance(value, Mapping) or set(value) != {_REFERENCE}:
            return _map_inside(value, self.restore)
        path = self.path / f"{value[_REFERENCE]}.txt"
        try:
            # Bytes, because reading as text would fold line ends.
            text = path.read_bytes().decode("utf-8")
        except (OSError, ValueError) as error:
            raise CorruptFile(f"{path}: the text that a rollout refers to cannot be read") from error
        if sha256_hex(text) != value[_REFERENCE]:
            raise CorruptFile(f"{path}: the text was changed after it was written")
        return text


def _map_inside(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: change(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [change(inner) for inner in value]
    return value


def append_groups(path: Path, groups: Iterable[RolloutGroup], *, texts: TextStore | None = None) -> int:
    """Append groups, each whole or not at all, streaming; return the number of rollouts written.

    Raises ``ShapeError`` for a group whose values do not fit together, ``RecordRejected`` for values outside JSON (NaN too),
    ``StoreError`` when the disk refuses. What was appended before that stays.
    """
    written = 0
    lines: list[str] = []
    for group in groups:
        lines.extend(lines_of_group(group, texts))
        written += len(group.rollouts)
        if len(lines) >= _AT_ONCE:
            append_lines(path, lines)
            lines = []
    append_lines(path, lines)
    return written


def read_groups(path: Path, *, texts: TextStore | None = None) -> Iterator[RolloutGroup]:
    """Yield the groups of a file in bounded memory.

    Raises ``DatasetError`` for a missing file and, with its number, for a line that is not a group or rollout of a known
    schema, and ``CorruptFile`` for a group that lacks rollouts and for texts that are lost.
    """
    if not path.exists():
        raise DatasetError.one(str(path), "no such file", "a JSONL file of rollout groups")
    numbered = enumerate(read_lines(path), start=1)
    for number, line in numbered:
        where = f"{path}:{number}"
        head = _object(line, where, texts, "group", "a line that begins a group")
        version = head.pop("schema_version", None)
        if version != BATCH_SCHEMA:
            raise DatasetError.one(f"{where}: schema_version", repr(version), str(BATCH_SCHEMA))
        size = head.pop("size", None)
        if not is_count(size):
            raise DatasetError.one(f"{where}: size", repr(size), "the number of rollouts that follow")
        rollouts = [
            _object(follower, f"{path}:{at}", texts, "rollout", "a rollout of the group before it")
            for at, follower in islice(numbered, size)
        ]
        if len(rollouts) < size:
            raise CorruptFile(f"{path}: the last group has {len(rollouts)} of its {size} rollouts")
        # As JSON, because strict reading takes a list for a tuple there and nowhere else.
        group, faults = parse_group(json.dumps({**head, "rollouts": rollouts}))
        if faults or group is None:
            problems = []
            for index, field, expected, received in faults:
                at = number if index is None else number + 1 + index
                problems.append(Problem(f"{path}:{at}: {field}".removesuffix(": "), f"{received!r:.{_SHOWN}}", expected))
            raise DatasetError(problems)
        yield group


def lines_of_group(group: RolloutGroup, texts: TextStore | None = None) -> list[str]:
    """Return the lines of one group, checked. Raises ``ShapeError`` and ``RecordRejected``."""
    check_groups([group])
    head = _object_of(replace(group, rollouts=()), texts)
    del head["rollouts"]
    head.update(kind="group", schema_version=BATCH_SCHEMA, size=len(group.rollouts))
    try:
        rows = (head, *({"kind": "rollout", **_object_of(rollout, texts)} for rollout in group.rollouts))
        lines = [canonical_json(row) for row in rows]
        # Lone surrogates are JSON, but cannot be encoded.
        "".join(lines).encode()
        return lines
    except ValueError as error:
        raise RecordRejected(f"group {group.id!r}: {error}") from error


def _object(line: str, where: str, texts: TextStore | None, kind: str, expected: str) -> dict[str, Any]:
    value = json_of(line)
    if not isinstance(value, dict) or value.pop("kind", None) != kind:
        raise DatasetError.one(where, f"{line:.{_SHOWN}}", expected if isinstance(value, dict) else "a JSON object")
    return value if texts is None else {key: texts.restore(inner) for key, inner in value.items()}


def _object_of(value: Any, texts: TextStore | None) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for field in fields(value):
        inner = getattr(value, field.name)
        if is_dataclass(inner):
            inner = _object_of(inner, None)
        if field.name in _ALWAYS or (inner is not None and inner != {}):
            content[field.name] = inner if texts is None else texts.externalize(inner)
    return content


class ExperienceWindow:
    """The latest ``size`` groups, oldest first, each appended to the file ``path`` before it enters. Safe for threads.

    Raises ``ShapeError`` for a size below 1.
    """

    def __init__(self, size: int, *, path: Path | None = None, texts: TextStore | None = None) -> None:
        check_sizes(size=size)
        self._size, self._path, self._texts = size, path, texts
        self._lock = threading.Lock()
        self._groups: OrderedDict[str, RolloutGroup] = OrderedDict()

    def append(self, group: RolloutGroup) -> None:
        """Add a group. Raises what ``extend`` raises."""
        self.extend([group])

    def extend(self, groups: Iterable[RolloutGroup]) -> None:
        """Add groups in order, all or none; skip those that are in the window.

        Raises ``ShapeError`` for groups whose values do not fit together, and for one with the id of a different group
        of the window; ``RecordRejected`` for values outside JSON, ``StoreError`` when the disk refuses.
        """
        offered = list(groups)
        check_groups(offered)
        with self._lock:
            problems = [
                ShapeProblem("group id", "one that no other group of the window has", repr(group.id), f"index {number}")
                for number, group in enumerate(offered)
                if (held := self._groups.get(group.id)) and without_latency(held) != without_latency(group)
            ]
            if problems:
                raise ShapeError(problems)
            fresh = [group for group in offered if group.id not in self._groups]
            if self._path is not None:
                append_lines(self._path, [line for group in fresh for line in lines_of_group(group, self._texts)])
            self._groups.update((group.id, group) for group in fresh)
            while len(self._groups) > self._size:
                self._groups.popitem(last=False)

    def window(self, count: int | None = None) -> ExperienceBatch:
        """Return the latest ``count`` groups, or all, as a batch. Raises ``ShapeError`` for a count below 1."""
        if count is not None:
            check_sizes(count=count)
        groups = tuple(self)
        return ExperienceBatch(groups if count is None else groups[-count:])

    def clear(self) -> None:
        """Remove every group from the window; the file stays."""
        with self._lock:
            self._groups.clear()

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[RolloutGroup]:
        with self._lock:
            return iter(tuple(self._groups.values()))


def latest_groups(path: Path, count: int, *, texts: TextStore | None = None) -> ExperienceBatch:
    """Return the latest ``count`` groups of a file as a batch; of a group that was appended again the latest counts.

    Reads the file once, in the memory of ``count`` groups. Raises ``ShapeError`` for a count below 1, and what
    ``read_groups`` raises.
    """
    check_sizes(count=count)
    latest: OrderedDict[str, RolloutGroup] = OrderedDict()
    for group in read_groups(path, texts=texts):
        latest[group.id] = group
        latest.move_to_end(group.id)
        if len(latest) > count:
            latest.popitem(last=False)
    return ExperienceBatch(tuple(latest.values()))


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
            for group in chunk:
                written += len(group.rollouts)
                try:
                    yield _with_json(to_builtins(group), canonical_json)
                except ValueError as error:
                    raise RecordRejected(f"group {group.id!r}: {error}") from error

    write_rows(path, rows(), _schema, _EXTRA)
    return written


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], schema_of: Callable[[Any], Any], accepted: str) -> None:
    """Replace a file by rows as Parquet, 0600. ``schema_of`` takes the module pyarrow; ``accepted``: what is needed without it.

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
                accepted = f"rollout groups as tfgrpo writes them, schema version {BATCH_SCHEMA}"
                raise DatasetError.one(str(path), f"the columns {', '.join(file.schema_arrow.names):.200}", accepted)
            rows = chain.from_iterable(batch.to_pylist() for batch in file.iter_batches(batch_size=_AT_ONCE))
            for number, row in enumerate(rows):
                source = f"{path}: group {number}"
                try:
                    group, faults = parse_group(json.dumps(_with_json(row, json.loads)))
                except (TypeError, ValueError) as error:
                    raise DatasetError.one(source, str(error)[:200], "columns of JSON text") from error
                if faults or group is None:
                    raise DatasetError([Problem(f"{source}: {name}", f"{value!r:.120}", fit) for _, name, fit, value in faults])
                yield group
    except (OSError, arrow.ArrowException) as error:
        raise DatasetError.one(str(path), " ".join(str(error).split())[:200], "a Parquet file") from error


def _pyarrow_or_refuse(accepted: str) -> tuple[Any, Any]:
    """Raise ``SettingsError`` without them."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise SettingsError.one("pyarrow", "not installed", accepted) from error


def _schema(arrow: Any) -> Any:
    return arrow.schema(list(_type(arrow, RolloutGroup)), metadata=_VERSION)


def _type(arrow: Any, hint: Any) -> Any:
    """Return the type of a column; a JSON value is text."""
    kind = next(each for each in (*get_args(hint), hint) if each is not NoneType) if NoneType in get_args(hint) else hint
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return arrow.struct([(each.name, _type(arrow, hints[each.name])) for each in fields(kind)])
    if get_origin(kind) is tuple:
        return arrow.list_(_type(arrow, get_args(kind)[0]))
    kind = type(get_args(kind)[0]) if get_origin(kind) is Literal else kind
    return {int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}.get(kind, arrow.string())


def _with_json(row: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    changed = {name: change(cell) if name in _JSON else cell for name, cell in row.items()}
    if "rollouts" in row:
        changed["rollouts"] = [_with_json(rollout, change) for rollout in row["rollouts"]]
    return changed
