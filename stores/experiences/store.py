"""The experiences of a task, ``experiences.jsonl``: strict, frozen, signed records, and the append-only store of them.

A signature binds a record to the pack it was learned for: a digest of pack stamp, manifest timestamp and content. The store
never rewrites a line, never decides what is learned, and never returns unstamped or over-long lessons.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import to_jsonable_python

from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.errors import CorruptFile, RecordRejected
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.files.lines import LineFile, lines_of
from tfgrpo.stores.json_values import canonical_json, sha256_hex
from tfgrpo.stores.text import MAX_CHARS, MAX_WORDS, check_identifier, count_words

Operation: TypeAlias = Literal["add", "modify", "merge"]
Polarity: TypeAlias = Literal["do", "avoid"]
Identifier: TypeAlias = Annotated[str, AfterValidator(check_identifier)]
_OF_THE_WRITING = {"created_at", "stamp_signature"}
MAX_CAUSE_WORDS: Final = 60
_T = TypeVar("_T")
STRICT: Final = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
"""No coercion, unknown keys refused, no NaN or infinity."""
_ID_DIGITS = 16
# Jaccard index from which two lessons count as one.
_SAME: Final = 0.6
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_NEGATIONS = frozenset({"not", "never", "no", "none", "nor", "neither", "without", "cannot", "unless", "except"})
# With "do" among them, "don't" and "do not" differ little enough for a short lesson to count as the same.
_STOP_WORD_LIST = (
    "a an any and are as at be been being by do each for from has have if in into is it its of on or so that the their "
    "them then these this those to was were when which while will with you your"
)
_STOP_WORDS = frozenset(_STOP_WORD_LIST.split())


def read_lines_as(read: Callable[[str | bytes], _T], path: Path, lines: Iterable[str | bytes], what: str) -> Iterator[_T]:
    """Yield what ``read`` makes of every line. Raises ``CorruptFile`` with the number of a line that is not ``what``."""
    for number, line in enumerate(lines, start=1):
        try:
            yield read(line)
        except ValidationError as error:
            raise CorruptFile(f"{path}: line {number} is not {what}: {error.errors()[0]['msg']}") from error


class Strict(BaseModel):
    """Frozen, no coercion, unknown keys refused, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, **STRICT)


class Reward(Strict):
    """Reward of the evidence for a lesson."""

    gt_score: float
    """Weighted total reward of the best rollout behind the lesson: in its groups, and in those of its targets."""
    relative_rank: float = Field(ge=0.0, le=1.0)
    """Rank of that rollout in its group: 1 is best, ties share the mean rank."""


class ToolStat(Strict):
    """Use of one tool in the rollouts behind the lesson, summed."""

    tool: str = Field(min_length=1)
    tokens: int = Field(ge=0)
    latency_ms: float = Field(ge=0.0)
    cost_usd: float | None = Field(default=None, ge=0.0)
    """None when the price is unknown; never zero for unknown."""


class ExperienceRecord(Strict):
    """One stamped lesson.

    ``add`` supersedes no record, ``modify`` exactly one, whose wording it changes, ``merge`` at least two.
    """

    schema_version: Literal[1] = 1
    experience_id: str
    run_id: Identifier
    task_id: Identifier
    domain: str = Field(min_length=1)
    pack_id: Identifier
    tags: tuple[str, ...] = ()
    epoch: int = Field(ge=1)
    batch: int = Field(ge=0)
    group_id: str
    operation: Operation
    supersedes: tuple[str, ...] = ()
    summary32: str
    cause: str | None = None
    """Why it holds, as the reflection put it, in at most 60 words. Never in a prompt of an actor."""
    polarity: Polarity
    reward: Reward
    tool_stats: tuple[ToolStat, ...] = ()
    evidence: tuple[str, ...] = ()
    stamp_signature: str = Field(pattern=r"^([0-9a-f]{64})?$")
    """Hex SHA-256, see ``sign_record``. Empty means unstamped: such a record is refused by the store."""
    created_at: AwareDatetime

    @model_validator(mode="after")
    def _text_and_targets_fit_the_operation(self) -> Self:
        if not self.summary32.strip():
            raise ValueError("summary32 has no words")
        sizes = (
            ("summary32", count_words(self.summary32), "words", MAX_WORDS),
            ("summary32", len(self.summary32), "characters", MAX_CHARS),
            ("cause", count_words(self.cause or ""), "words", MAX_CAUSE_WORDS),
        )
        for name, size, unit, most in sizes:
            if size > most:
                raise ValueError(f"{name} has {size} {unit}; at most {most}")
        targets = len(self.supersedes)
        if not {"add": targets == 0, "modify": targets == 1, "merge": targets >= 2}[self.operation]:
            raise ValueError(f"{self.operation} cannot supersede {targets} records")
        return self


def support_of(record: ExperienceRecord) -> int:
    """Return how many groups showed a lesson. The id of a rollout is that of its group, a slash and a number."""
    return len({rollout.rpartition("/")[0] or rollout for rollout in record.evidence})


@dataclass(frozen=True, slots=True)
class PackStamp:
    """Stamp of a pack in its manifest."""

    pack_id: str
    stamp: str
    stamped_at: str


def sign_record(record_fields: Mapping[str, Any], pack: PackStamp) -> str:
    """Return the hex SHA-256 of the pack's stamp, the manifest's timestamp and the record without its signature."""
    content = {key: value for key, value in record_fields.items() if key != "stamp_signature"}
    return sha256_hex(canonical_json({"stamp": pack.stamp, "stamped_at": pack.stamped_at, "record": content}))


def stamp_record(record: ExperienceRecord, pack: PackStamp) -> ExperienceRecord:
    """Return the record with its signature under this pack."""
    return record.model_copy(update={"stamp_signature": sign_record(record.model_dump(mode="json"), pack)})


def is_signed_record(record_fields: Mapping[str, Any], pack: PackStamp) -> bool:
    """Return whether fields have their signature under this version of the pack; what is no JSON cannot have any."""
    try:
        return bool(record_fields.get("stamp_signature") == sign_record(record_fields, pack))
    except (TypeError, ValueError):
        # NaN, half a surrogate pair: edited by hand.
        return False


def signature_holds(record: ExperienceRecord, pack: PackStamp) -> bool:
    """Return whether the record was signed under exactly this version of this pack, and is unchanged."""
    return record.pack_id == pack.pack_id and is_signed_record(record.model_dump(mode="json"), pack)


@dataclass(frozen=True, slots=True)
class LessonWords:
    """What is compared of a lesson."""

    words: frozenset[str]
    negations: frozenset[str]
    numbers: tuple[str, ...]


def lesson_words(text: str) -> LessonWords:
    """Return the words, negations and numbers of a lesson."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    words = frozenset(_WORD.findall(folded))
    negations = _NEGATIONS.intersection("not" if word.endswith("n't") else word for word in words)
    return LessonWords((words - _STOP_WORDS) or words, negations, tuple(sorted(_NUMBER.findall(folded))))


def same_lesson(first: LessonWords, second: LessonWords) -> bool:
    """Return whether two lessons say the same, without asking a model. Symmetric and reflexive.

    They do when the Jaccard index of their sets of content words reaches a threshold, unless they differ in their negations
    or numbers. Text without spaces between words compares as a whole.
    """
    if first.negations != second.negations or first.numbers != second.numbers:
        return False
    either = len(first.words | second.words)
    return first == second if not either else len(first.words & second.words) / either >= _SAME


class _Fold(NamedTuple):
    """The content of a file, as long as it is the same."""

    seen: tuple[int, int, int] | None
    records: tuple[ExperienceRecord, ...]
    lost: tuple[int, ...]
    """Numbers of the lines without a record."""
    ranked: dict[str, list[ExperienceRecord]]
    """By domain, the most valuable first."""


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

    @property
    def damage(self) -> list[str]:
        """Warnings that name the damaged lines that this store moved away before it wrote."""
        return [file.warning for file in (self._file, self._batches) if file.warning is not None]

    def record_batch(self, records: Sequence[ExperienceRecord], manifest_path: Path) -> int:
        """Store all records or none, durably, and return how many were new.

        A record that is stored with the same content is skipped, so a resumed run may repeat its batches.
        ``manifest_path`` is recorded as the origin of the batch, from the directory of the task on: that may be moved.

        Raises ``RecordRejected`` when a record is unstamped, stamped for another version of its pack, changed since, too
        long, of an epoch outside the run, or has the id of a different record; the store is then unchanged. Raises
        ``StoreError`` when the disk refuses; the records are then stored whole or not at all.
        """
        offered: dict[str, ExperienceRecord] = {}
        for record in records:
            problem = "its id occurs twice in the batch" if record.experience_id in offered else self._problem(record)
            if problem is not None:
                raise RecordRejected(f"experience {record.experience_id!r} is not stored: {problem}")
            offered[record.experience_id] = record
        if not offered:
            return 0
        with self._file:
            self._file.catch_up()
            for name, record in offered.items():
                body = self._file.body(name)
                stored = body and _parsed(body)
                # Equal but for when they were written.
                same = stored and record.model_dump(exclude=_OF_THE_WRITING) == stored.model_dump(exclude=_OF_THE_WRITING)
                if body and not (stored and same and self.verify_stamp(stored)):
                    raise RecordRejected(f"experience {name!r} is stored already with another content")
            fresh = self._file.add((record.model_dump(mode="json") for record in records), fsync=True)
        task, ids = self.path.parent, list(offered)
        batch = {
            "schema_version": 1,
            "batch_id": sha256_hex(canonical_json(ids))[:_ID_DIGITS],
            "experience_ids": ids,
            "count": len(ids),
            "manifest_path": str(manifest_path.relative_to(task) if manifest_path.is_relative_to(task) else manifest_path),
            "at": to_jsonable_python(self._clock()),
        }
        # Also when nothing is fresh: a run that was killed in between writes its batch when it is resumed.
        self._batches.add([batch])
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
            verified: dict[str, ExperienceRecord] = {}
            for record in fold.records:
                if record.domain == domain and self.verify_stamp(record):
                    verified.setdefault(record.experience_id, record)
            superseded = {name for record in verified.values() for name in record.supersedes}
            live = [record for name, record in verified.items() if name not in superseded]
            live.sort(key=lambda one: (-support_of(one), -one.reward.gt_score, -one.reward.relative_rank, one.experience_id))
            fold.ranked[domain] = [record for record in live if count_words(record.summary32) <= self._max_words]
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

    def _problem(self, record: ExperienceRecord) -> str | None:
        try:
            # A copy may have been changed without validation.
            ExperienceRecord.model_validate(record.model_dump(warnings=False))
        except ValidationError as error:
            return error.errors()[0]["msg"]
        words, pack = count_words(record.summary32), record.pack_id
        problems = {
            f"it has {words} words; at most {self._max_words}": words > self._max_words,
            f"it is of epoch {record.epoch}, the run has {self._epochs}": record.epoch > (self._epochs or record.epoch),
            "it is unstamped": not record.stamp_signature,
            f"it is of task {record.task_id!r}": not self.owns(record),
            f"its pack {pack!r} is not approved": pack not in self._approved,
            f"its stamp does not hold under the version of {pack!r} in force": not self.verify_stamp(record),
        }
        return next((problem for problem, holds in problems.items() if holds), None)


@lru_cache(maxsize=1 << 15)
def _parsed(body: bytes) -> ExperienceRecord | None:
    """Return the record in a line; None for another object. A file that grew is read anew, not parsed anew."""
    try:
        return ExperienceRecord.model_validate_json(body)
    except ValidationError:
        return None
