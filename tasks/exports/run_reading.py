"""What groups did a run bring? Each read off the run's own files, one at a time, with its prompt and its whole answers.

Only accepted batches count: attempts without a line in ``groups.jsonl`` are of a batch that was never finished. Whatever the
size of the run, memory holds one group and a small index cache.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, Final

from tfgrpo.stores.batch.shapes import RolloutGroup
from tfgrpo.stores.errors import CorruptFile, SettingsError
from tfgrpo.stores.files.atomic import read_lines
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.group_key import GroupKey
from tfgrpo.stores.runs.journal import attempt_name
from tfgrpo.stores.runs.manifest import ManifestFile
from tfgrpo.tasks.exports.attempts import attempt_of_key
from tfgrpo.tasks.exports.line_index import LineIndex
from tfgrpo.tasks.exports.rollout_rows import RunFacts, group_of_rows

Row = Mapping[str, Any]


@dataclass(slots=True)
class Unfinished:
    """What was passed over because its batch was never accepted."""

    groups: int = 0
    rollouts: int = 0


def facts_of_run(run: RunPaths) -> RunFacts:
    """What holds for every group of a run. Raises ``SettingsError`` for a run that cannot be exported."""
    manifest = ManifestFile(run.manifest).read()
    problem = _unusable(run, manifest)
    if problem:
        raise SettingsError.one("RUN", f"{run.root.name} ({problem})", "a run with accepted batches")
    return RunFacts.of_manifest(manifest)


def groups_of_run(run: RunPaths, facts: RunFacts, unfinished: Unfinished) -> Iterator[RolloutGroup]:
    """The groups in the order in which they were recorded. Raises ``CorruptFile`` for files that do not fit together."""
    # Attempts are looked at first: what is appended meanwhile is not seen, and what they refer to was written before them.
    rows = _rows(run.rollouts)
    first = list(islice(rows, 1))
    with ExitStack() as stack:
        journal = stack.enter_context(LineIndex(run.journal, attempt_of_key))
        items = stack.enter_context(LineIndex(run.items, lambda line: _text(line, "item_id")))
        prompts = stack.enter_context(LineIndex(run.prompts, lambda line: _text(line, "digest")))
        heads = _Heads(run.groups)
        for group_id, members in groupby(chain(first, rows), key=lambda row: row["group_id"]):
            rollouts = list(members)
            head = heads.take(group_id)
            if head is None:
                unfinished.groups += 1
                unfinished.rollouts += len(rollouts)
                continue
            try:
                prompt = _one(prompts, "digest", rollouts[0]["prompt_digest"])
                item = _one(items, "item_id", head["item_id"])
                key = GroupKey.of_row(head)
                lines = journal.lines([attempt_name(key, row["index"]) for row in rollouts])
                group = group_of_rows(head, rollouts, item, prompt, lines, facts)
            except (KeyError, TypeError) as error:
                raise CorruptFile(f"group {group_id!r}: a line about it lacks {error}") from error
            yield group


_KEPT: Final = ("group_id", "item_id", "draw", "epoch", "phase", "arm", "batch", "rollouts")


class _Heads:
    """Lines of ``groups.jsonl``, which has the groups in the order of ``rollouts.jsonl``; what comes early waits."""

    def __init__(self, path: Path) -> None:
        self._rows = _rows(path)
        self._early: dict[str, Row] = {}

    def take(self, group_id: str) -> Row | None:
        if group_id in self._early:
            return self._early.pop(group_id)
        for row in self._rows:
            if row["group_id"] == group_id:
                return row
            self._early[row["group_id"]] = {name: row[name] for name in _KEPT if name in row}
        return None


def _unusable(run: RunPaths, manifest: Row) -> str:
    if not manifest:
        return "it has no manifest"
    if not {"settings", "run_id", "model", "pack"} <= set(manifest):
        return "its manifest lacks settings"
    if not run.groups.is_file() or not run.rollouts.is_file():
        return "no batch of it was finished"
    if not run.items.is_file():
        return "it was recorded by a version that did not keep what was asked: it has no items.jsonl"
    return ""


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(read_lines(path), start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise CorruptFile(f"{path}: line {number} is no JSON") from error
        if not isinstance(row, dict) or not isinstance(row.get("group_id"), str):
            raise CorruptFile(f"{path}: line {number} names no group")
        yield row


def _text(line: bytes, name: str) -> str | None:
    try:
        value = json.loads(line)[name]
    except (ValueError, KeyError, TypeError):
        return None
    return value if isinstance(value, str) else None


def _one(index: LineIndex, name: str, key: str) -> Row:
    candidates: Sequence[bytes] = index.lines([key]).get(key, ())
    for line in candidates:
        row: Row = json.loads(line)
        if row[name] == key:
            return row
    raise CorruptFile(f"{index.path}: has no line about {key!r}, which a group refers to")
