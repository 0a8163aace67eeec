"""The append-only experience store of a task, ``experiences.jsonl``.

It stores stamped records in whole batches and returns the best that are in force. It never rewrites a line, never
decides what is learned, and never returns unstamped or over-long lessons.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.errors import RecordRejected, StoreError
from tfgrpo.stores.experiences.record import (
    ExperienceRecord,
    PackStamp,
    Skipped,
    parse,
    same_content,
    signature_holds,
    support_of,
    text_in,
)
from tfgrpo.stores.files.atomic import KeyedJsonl
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.files.line_file import Line, LineReader, disk, exclusively, whole_until
from tfgrpo.stores.text import MAX_WORDS, count_words

_ID_DIGITS = 16


class _Lines:
    """The lines of a store in memory: read on where the file grew, read anew where it was changed otherwise."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.clear()

    def clear(self) -> None:
        """Forget all lines."""
        self.read: list[tuple[str, ExperienceRecord | Literal["unreadable", "over_long"]]] = []
        """Id and record of each line, in file order; in place of a record why there is none."""
        self.first: dict[str, ExperienceRecord | Literal["unreadable", "over_long"]] = {}
        """By id: what the first line with it holds."""
        self.valid: list[bool] = []
        """Whether the stamp of each is valid, for the first of them; the others are not checked yet."""
        self.ranked: dict[str, tuple[list[ExperienceRecord], Skipped]] = {}
        """By domain: records in force, the most valuable first, and what was skipped for them."""
        self._end, self._last = 0, Line(0, b"")
        self._seen = (0, 0, 0)

    def follow(self, end: int) -> None:
        """Read the lines before byte ``end`` that were appended since the last time."""
        with disk(self._path, "cannot be read"), self._path.open("rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            seen = (status.st_ino, status.st_size, status.st_mtime_ns)
            if seen != self._seen and not self._fits(file.fileno(), seen):
                self.clear()
            if self._end < end:
                self.ranked.clear()
                reader = LineReader.of_fd(self._path, file.fileno(), start=self._end)
                for self._last in reader.unread(end):
                    record = parse(self._last.data)
                    name = (
                        text_in(self._last.data, "experience_id") if isinstance(record, str) else record.experience_id
                    )
                    self.read.append((name, record))
                    self.first.setdefault(name, record)
                    self._end = reader.end
            self._seen = seen

    def _fits(self, fd: int, seen: tuple[int, int, int]) -> bool:
        """Whether the file is the one that was read, and at most grew."""
        if seen[0] != self._seen[0] or seen[1] <= self._seen[1]:  # of the same size: changed in place
            return False
        last = self._last.data + b"\n"
        return os.pread(fd, len(last), self._last.offset) == last


class ExperienceStore:
    """The experiences of one task, for any number of threads and processes at once.

    ``approved``: packs in force by id; records are stored and returned only under the stamp of one of them, and with
    ``task_id`` only those of that task. ``max_words`` may lower the limit of 32. ``epochs``: the last epoch of the run,
    records of later ones are refused.
    """

    def __init__(
        self,
        path: Path,
        *,
        approved: Mapping[str, PackStamp],
        task_id: str | None = None,
        max_words: int = MAX_WORDS,
        epochs: int | None = None,
        clock: Clock = utc_now,
    ) -> None:
        if not 1 <= max_words <= MAX_WORDS:
            raise ValueError(f"max_words is {max_words}; accepted: 1 to {MAX_WORDS}")
        self.path = path
        self._approved = dict(approved)
        self._task_id = task_id
        self._max_words = max_words
        self._epochs = epochs
        self._clock = clock
        self._turn = threading.Lock()
        self._lines = _Lines(path)
        self._batches = KeyedJsonl(TaskPaths(path.parent).batches, lambda row: str(row["batch_id"]))
        self.skipped = Skipped()
        """Lines that the last reading skipped."""

    def record_batch(self, records: Sequence[ExperienceRecord], manifest_path: Path) -> int:
        """Store all records or none, durably, and return how many were new.

        A record that is stored with the same content is skipped, so a resumed run may repeat its batches.
        ``manifest_path`` is recorded as the origin of the batch.

        Raises ``RecordRejected`` when a record is unstamped, stamped for another version of its pack, changed since, too
        long, of an epoch outside the run, or has the id of a different record; ``StoreError`` when the disk refuses. The
        store is then unchanged.
        """
        offered = self._checked(records)
        if not offered:
            return 0
        with exclusively(self.path) as file:  # among threads too
            before = file.size()
            fresh = [record.model_dump_json() for record in self._new(offered, before)]
            try:
                if fresh:
                    file.append_lines(fresh, fsync=True)
                # Also when nothing is fresh: a run that was killed in between writes its batch when it is resumed.
                self._batches.append([self._batch(list(offered), manifest_path)])
            except StoreError:
                file.truncate(before)
                raise
        return len(fresh)

    def fetch_top(
        self,
        domain: str,
        limit: int,
        min_reward: float | None = None,
        *,
        tags: Iterable[str] = (),
        max_per_group: int | None = None,
    ) -> list[ExperienceRecord]:
        """Return at most ``limit`` experiences in force of a domain, the best first.

        Only records with a valid stamp take part, also in superseding others. A record must have all ``tags`` and a
        ``gt_score`` of at least ``min_reward``; one group contributes at most ``max_per_group``. Best is: shown by most
        groups, then the higher reward, then the higher rank, then the smaller id. ``gt_score`` is the specification's
        name for the weighted total reward of the best rollout behind a lesson, from any rewarders.
        """
        _check_request(limit, min_reward, max_per_group)
        wanted = set(tags)
        with self._reading() as lines:
            if domain not in lines.ranked:
                lines.ranked[domain] = self._in_force(lines, domain)
            ranked, self.skipped = lines.ranked[domain]
        rewarded = (each for each in ranked if min_reward is None or each.reward.gt_score >= min_reward)
        tagged = (record for record in rewarded if wanted <= set(record.tags))
        return list(islice(_capped(tagged, max_per_group), limit))

    def verify_stamp(self, record: ExperienceRecord) -> bool:
        """Return whether the record is of this task, stamped under the pack version in force, and unchanged."""
        pack = self._approved.get(record.pack_id)
        return pack is not None and self.owns(record) and signature_holds(record, pack)

    def owns(self, record: ExperienceRecord) -> bool:
        """Return whether the record is of this task; every record is without a ``task_id``."""
        return self._task_id in (None, record.task_id)

    def find(self, ids: Iterable[str]) -> list[ExperienceRecord]:
        """Return all records with these ids, in file order, without checking stamps."""
        wanted = set(ids)
        return [record for record in self.records() if record.experience_id in wanted]

    def find_by_prefix(self, prefix: str, *, limit: int) -> list[ExperienceRecord]:
        """Return at most ``limit`` records with ids that start with ``prefix``, by id."""
        matches = (record for record in self.records() if record.experience_id.startswith(prefix))
        return sorted(matches, key=lambda record: record.experience_id)[:limit]

    def records(self) -> Iterator[ExperienceRecord]:
        """Return the whole history in file order, without checking stamps. Unreadable lines are counted."""
        with self._reading() as lines:
            read = [record for _, record in lines.read]
        self.skipped = Skipped(**Counter[str](record for record in read if isinstance(record, str)))
        return (record for record in read if not isinstance(record, str))

    @contextlib.contextmanager
    def _reading(self, end: int | None = None) -> Iterator[_Lines]:
        """Lock the lines among threads, up to date. ``end``: size of the file, from a caller with its lock."""
        if end is None:
            # Before the lock of the lines, for which a thread waits that writes and has the lock of the file.
            end = whole_until(self.path) if self.path.exists() else 0
        with self._turn:
            if end:
                self._lines.follow(end)
            else:
                self._lines.clear()
            yield self._lines

    def _in_force(self, lines: _Lines, domain: str) -> tuple[list[ExperienceRecord], Skipped]:
        """Return the records of a domain in force, the most valuable first, and what was skipped for them."""
        unchecked = lines.read[len(lines.valid) :]
        lines.valid += [isinstance(record, ExperienceRecord) and self.verify_stamp(record) for _, record in unchecked]
        skipped: Counter[str] = Counter()
        verified: dict[str, ExperienceRecord] = {}
        for (name, record), valid in zip(lines.read, lines.valid, strict=True):
            if isinstance(record, str):
                skipped[record] += 1
            elif record.domain != domain:
                continue
            elif not valid:
                skipped["unverified"] += 1
            elif name in verified:
                skipped["repeated"] += 1
            else:
                verified[name] = record
        superseded = {name for record in verified.values() for name in record.supersedes}
        live = [record for name, record in verified.items() if name not in superseded]
        short = [record for record in live if count_words(record.summary32) <= self._max_words]
        skipped["over_long"] += len(live) - len(short)
        return sorted(short, key=_value_order), Skipped(**skipped)

    def _batch(self, ids: list[str], manifest_path: Path) -> dict[str, Any]:
        """Return the line of a batch in ``batches.jsonl``, which leads from experiences to the manifest of their run."""
        return {
            "schema_version": 1,
            "batch_id": sha256_hex(canonical_json(ids))[:_ID_DIGITS],
            "experience_ids": ids,
            "count": len(ids),
            "manifest_path": str(manifest_path),
            "at": to_jsonable_python(self._clock()),
        }

    def _checked(self, records: Sequence[ExperienceRecord]) -> dict[str, ExperienceRecord]:
        offered: dict[str, ExperienceRecord] = {}
        for record in records:
            problem = self._problem(record)
            if record.experience_id in offered:
                problem = "its id occurs twice in the batch"
            if problem is not None:
                raise RecordRejected(f"experience {record.experience_id!r} is not stored: {problem}")
            offered[record.experience_id] = record
        return offered

    def _problem(self, record: ExperienceRecord) -> str | None:
        try:
            # A copy may have been changed without validation.
            ExperienceRecord.model_validate(record.model_dump(warnings=False))
        except ValidationError as error:
            return error.errors()[0]["msg"]
        if count_words(record.summary32) > self._max_words:
            return f"it has {count_words(record.summary32)} words; at most {self._max_words}"
        if self._epochs is not None and record.epoch > self._epochs:
            return f"it is of epoch {record.epoch}, the run has {self._epochs}"
        return self._stamp_problem(record)

    def _stamp_problem(self, record: ExperienceRecord) -> str | None:
        if not record.stamp_signature:
            return "it is unstamped"
        if not self.owns(record):
            return f"it is of task {record.task_id!r}"
        if record.pack_id not in self._approved:
            return f"its pack {record.pack_id!r} is not approved"
        if not self.verify_stamp(record):
            return f"its stamp does not hold under the version of {record.pack_id!r} in force"
        return None

    def _new(self, offered: Mapping[str, ExperienceRecord], size: int) -> list[ExperienceRecord]:
        """Return the records that are not stored yet. Raises ``RecordRejected`` for an id with another content."""
        with self._reading(size) as lines:
            stored = {name: lines.first.get(name) for name in offered}
        for name, earlier in stored.items():
            if earlier is None:
                continue
            if isinstance(earlier, str) or not (same_content(earlier, offered[name]) and self.verify_stamp(earlier)):
                raise RecordRejected(f"experience {name!r} is stored already with another content")
        return [record for name, record in offered.items() if stored[name] is None]


def _value_order(record: ExperienceRecord) -> tuple[int, float, float, str]:
    """Sort by support, reward and rank, the most valuable first; ties by id."""
    return -support_of(record), -record.reward.gt_score, -record.reward.relative_rank, record.experience_id


def _check_request(limit: int, min_reward: float | None, max_per_group: int | None) -> None:
    """Raise ``ValueError`` for an invalid limit."""
    if limit < 0 or (max_per_group is not None and max_per_group < 1):
        raise ValueError(f"limit {limit} must not be negative, max_per_group {max_per_group} must be at least 1")
    if min_reward is not None and math.isnan(min_reward):
        raise ValueError("min_reward is not a number")


def _capped(ranked: Iterable[ExperienceRecord], max_per_group: int | None) -> Iterator[ExperienceRecord]:
    """Yield the records, of each source group only the first ``max_per_group``; all for None."""
    taken: Counter[str] = Counter()
    for record in ranked:
        if max_per_group is None or taken[record.group_id] < max_per_group:
            taken[record.group_id] += 1
            yield record
