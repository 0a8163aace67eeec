"""Read and write groups as JSONL: one line for the group, then one for each of its rollouts.

The canonical form: lossless, versioned, appended in whole groups, streamed one group at a time. NaN and infinity are
refused; a malformed line is an error, never skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tfgrpo.stores.batch.checks import check_groups
from tfgrpo.stores.batch.shapes import LogProbs, RolloutGroup, RolloutUsage, Sampling
from tfgrpo.stores.batch.texts import TextStore
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.stores.errors import CorruptFile, DatasetError, Problem, RecordRejected, ShapeError
from tfgrpo.stores.files.atomic import append_lines, read_lines

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SCHEMA_VERSION: Final = 1
_SHOWN: Final = 120
_AT_ONCE: Final = 1_000
_UNKNOWN: Final = "unexpected_keyword_argument"
_ALWAYS: Final = frozenset({"state", "completion"})
"""Fields that are written whatever they hold."""


def append_groups(path: Path, groups: Iterable[RolloutGroup], *, texts: TextStore | None = None) -> int:
    """Append groups, each whole or not at all; the number of rollouts written. ``groups`` is read as it is written.

    Raises ``ShapeError`` for a group whose values do not fit together, ``RecordRejected`` for what is no JSON (NaN too),
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
    """The groups of a file, one at a time, in bounded memory.

    Raises ``DatasetError`` for a file that does not exist and for a line that is no group or rollout of a known schema,
    naming it, and ``CorruptFile`` for a group that lacks rollouts and for texts that are lost.
    """
    if not path.exists():
        raise DatasetError.one(str(path), "no such file", "a JSONL file of rollout groups")
    yield from groups_of_lines(read_lines(path), source=str(path), texts=texts)


def lines_of_group(group: RolloutGroup, texts: TextStore | None = None) -> list[str]:
    """The lines of one group, checked. Raises ``ShapeError`` and ``RecordRejected``."""
    check_groups([group])
    head = {
        "kind": "group",
        "schema_version": SCHEMA_VERSION,
        **_plain(group, texts, without="rollouts"),
        "size": len(group.rollouts),
    }
    rows = (head, *({"kind": "rollout", **_plain(rollout, texts)} for rollout in group.rollouts))
    try:
        lines = [canonical_json(row) for row in rows]
        for line in lines:
            line.encode()  # lone surrogates are JSON, and no line of a file
        return lines
    except ValueError as error:
        raise RecordRejected(f"group {group.id!r}: {error}") from error


def groups_of_lines(lines: Iterable[str], *, source: str, texts: TextStore | None = None) -> Iterator[RolloutGroup]:
    """The groups that some lines hold. Raises what ``read_groups`` raises, with ``source`` in the text."""
    numbered = enumerate(lines, start=1)
    for number, line in numbered:
        where = f"{source}:{number}"
        head = _object(line, where, texts)
        if head.pop("kind", None) != "group":
            raise DatasetError.one(where, f"{line:.{_SHOWN}}", "a line that begins a group")
        version = head.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise DatasetError.one(f"{where}: schema_version", repr(version), str(SCHEMA_VERSION))
        size = head.pop("size", None)
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise DatasetError.one(f"{where}: size", repr(size), "the number of rollouts that follow")
        rollouts: list[dict[str, Any]] = []
        for _ in range(size):
            follower = next(numbered, None)
            if follower is None:
                raise CorruptFile(f"{source}: the last group has {len(rollouts)} of its {size} rollouts")
            rollouts.append(_rollout(follower[1], f"{source}:{follower[0]}", texts))
        group = _group({**head, "rollouts": rollouts}, source, number)
        try:
            check_groups([group])
        except ShapeError as error:
            raise DatasetError(
                [Problem(where, str(problem), problem.expected) for problem in error.problems]
            ) from error
        yield group


def _rollout(line: str, where: str, texts: TextStore | None) -> dict[str, Any]:
    value = _object(line, where, texts)
    if value.pop("kind", None) != "rollout":
        raise DatasetError.one(where, f"{line:.{_SHOWN}}", "a rollout of the group before it")
    return value


def _object(line: str, where: str, texts: TextStore | None) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise DatasetError.one(where, f"{line:.{_SHOWN}}", "a JSON object")
    if texts is None:
        return value
    back: dict[str, Any] = {key: texts.back(inner) for key, inner in value.items()}
    return back


def _plain(value: Any, texts: TextStore | None, *, without: str = "") -> dict[str, Any]:
    """A shape as a JSON object; fields that say nothing (None, empty) are left out."""
    plain: dict[str, Any] = {}
    for field in fields(value):
        inner = getattr(value, field.name)
        silent = inner is None or (isinstance(inner, Mapping) and not inner)
        if field.name == without or (silent and field.name not in _ALWAYS):
            continue
        if isinstance(inner, LogProbs | Sampling | RolloutUsage):
            inner = _plain(inner, None)
            if not inner:
                continue
        plain[field.name] = inner if texts is None else texts.away(inner)
    return plain


def _group(value: Mapping[str, Any], source: str, number: int) -> RolloutGroup:
    """The group of an object; what is wrong with one of its rollouts is told with the line of that rollout."""
    from pydantic import ValidationError  # noqa: PLC0415 - only for reading

    try:
        # As JSON, because strict reading takes a list for a tuple there and nowhere else.
        return _reader().validate_json(json.dumps(value))
    except ValidationError as error:
        problems = []
        for fault in error.errors(include_url=False, include_context=False):
            place = [str(step) for step in fault["loc"]]
            line = number
            if place[0] == "rollouts" and len(place) > 1:
                line, place = number + 1 + int(place[1]), place[2:]
            where = ": ".join(filter(None, (f"{source}:{line}", ".".join(place))))
            accepted = "no field of this name" if fault["type"] == _UNKNOWN else fault["msg"].lower()
            problems.append(Problem(where, f"{fault.get('input')!r:.{_SHOWN}}", accepted))
        raise DatasetError(problems) from error


@cache
def _reader() -> TypeAdapter[RolloutGroup]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - only for reading

    return TypeAdapter(RolloutGroup)
