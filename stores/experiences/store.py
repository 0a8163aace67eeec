"""The append-only experience store of a task, ``experiences.jsonl``.

It stores stamped records in whole batches and returns the best that are in force. It never rewrites a line, never
decides what is learned, and never returns unstamped or over-long lessons.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.errors import RecordRejected
from tfgrpo.stores.experiences.record import ExperienceRecord, PackStamp, same_content, signature_holds, support_of
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.files.lines import LineFile, lines_of
from tfgrpo.stores.text import MAX_WORDS, count_words

_ID_DIGITS = 16


class _Fold(NamedTuple):
    """What a file holds, as long as it is the same."""

    seen: tuple[int, int, int] | None
    records: tuple[ExperienceRecord, ...]
    lost: tuple[int, ...]
    """Numbers of the lines without a record."""
    ranked: dict[str, list[ExperienceRecord]]
    """By domain: the records in force, the most valuable first."""


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
        self._file = LineFile(path, "experience_id")
        self._batches = LineFile(TaskPaths(path.parent).batches, "batch_id")
        self._fold = _Fold(None, (), (), {})

    def record_batch(self, records: Sequence[ExperienceRecord], manifest_path: Path) -> int:
        """Store all records or none, durably, and return how many were new.

        A record that is stored with the same content is skipped, so a resumed run may repeat its batches.
        ``manifest_path`` is recorded as the origin of the batch, from the directory of the task on: that may be moved.

        Raises ``RecordRejected`` when a record is unstamped, stamped for another version of its pack, changed since, too
        long, of an epoch outside the run, or has the id of a different record; the store is then unchanged. Raises
        ``StoreError`` when the disk refuses; the records are then stored whole or not at all.
        """
        offered = self._checked(records)
        if not offered:
            return 0
        with self._file:  # among threads too
            self._file.catch_up()
            for name, record in offered.items():
                body = self._file.body(name)
                stored = body and _parsed(body)
                if body and not (stored and same_content(stored, record) and self.verify_stamp(stored)):
                    raise RecordRejected(f"experience {name!r} is stored already with another content")
            fresh = self._file.add((record.model_dump(mode="json") for record in records), fsync=True)
        # Also when nothing is fresh: a run that was killed in between writes its batch when it is resumed.
        self._batches.add([self._batch(list(offered), manifest_path)])
        return fresh

    def fetch_top(
        self, domain: str, limit: int, min_reward: float | None = None, *, tags: Iterable[str] = ()
    ) -> list[ExperienceRecord]:
        """Return at most ``limit`` experiences in force of a domain, with all ``tags`` and this ``gt_score``, the best first.

        Only records with a valid stamp take part, also in superseding others. Best is: shown by most groups, then the
        higher reward, then the higher rank, then the smaller id. ``gt_score`` is the specification's name for the weighted
        total reward of the best rollout behind a lesson, from any rewarders.
        """
        if limit < 0:
            raise ValueError(f"limit {limit} must not be negative")
        if min_reward is not None and math.isnan(min_reward):
            raise ValueError("min_reward is not a number")
        fold, wanted = self._read(), set(tags)
        if domain not in fold.ranked:
            fold.ranked[domain] = self._in_force(fold.records, domain)
        tagged = [each for each in fold.ranked[domain] if wanted <= set(each.tags)]
        return [each for each in tagged if min_reward is None or each.reward.gt_score >= min_reward][:limit]

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
        """Return the whole history in file order, without checking stamps, and without damaged lines."""
        return iter(self._read().records)

    def problems(self) -> list[str]:
        """Return a sentence for each damaged line, else for the records that were stored and are missing."""
        if damaged := [f"{self.path.name}: line {number} is damaged" for number in self._read().lost]:
            return damaged
        batches = (json.loads(line.body) for line in lines_of(self._batches.path) if line.length)
        stored = {name for batch in batches for name in batch.get("experience_ids", ())}
        lost = sorted(stored.difference(record.experience_id for record in self.records()))
        return [f"{self.path.name}: lacks {', '.join(lost)}, stored by {self._batches.path.name}"] if lost else []

    def _read(self) -> _Fold:
        seen = None
        if self.path.exists():
            status = self.path.stat()
            seen = status.st_ino, status.st_size, status.st_mtime_ns
        if seen != self._fold.seen:
            read = [(line, _parsed(line.body) if line.length else None) for line in lines_of(self.path)]
            records = tuple(record for _, record in read if record is not None)
            lost = tuple(line.number for line, record in read if record is None and line.data.strip())
            self._fold = _Fold(seen, records, lost, {})
        return self._fold

    def _in_force(self, records: Iterable[ExperienceRecord], domain: str) -> list[ExperienceRecord]:
        """Return the records of a domain in force, the most valuable first."""
        verified: dict[str, ExperienceRecord] = {}
        for record in records:
            if record.domain == domain and self.verify_stamp(record):
                verified.setdefault(record.experience_id, record)
        superseded = {name for record in verified.values() for name in record.supersedes}
        live = [record for name, record in verified.items() if name not in superseded]
        live.sort(
            key=lambda one: (-support_of(one), -one.reward.gt_score, -one.reward.relative_rank, one.experience_id)
        )
        return [record for record in live if count_words(record.summary32) <= self._max_words]

    def _batch(self, ids: list[str], manifest_path: Path) -> dict[str, Any]:
        """Return the line of a batch in ``batches.jsonl``, which leads from experiences to the manifest of their run."""
        task = self.path.parent
        inside = manifest_path.relative_to(task) if manifest_path.is_relative_to(task) else manifest_path
        return {
            "schema_version": 1,
            "batch_id": sha256_hex(canonical_json(ids))[:_ID_DIGITS],
            "experience_ids": ids,
            "count": len(ids),
            "manifest_path": str(inside),
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


@lru_cache(maxsize=1 << 15)
def _parsed(body: bytes) -> ExperienceRecord | None:
    """Return the record in a line; None for another object. A file that grew is read anew, not parsed anew."""
    try:
        return ExperienceRecord.model_validate_json(body)
    except ValidationError:
        return None
