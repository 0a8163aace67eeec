"""Screen the lessons of a file and make stamped records of those that may be stored, on a person's authority.

They have no evidence here: reward 0 and no group, so they rank behind lessons that were learned here. Storing activates
none of them; that takes the gate, or a promotion that a person asks for and that is recorded as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.safety import Rejection, screen_lesson
from tfgrpo.prompt_packs.stamps import pack_stamp
from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.experiences.record import ExperienceRecord, Reward, stamp_record
from tfgrpo.tasks.exports.lessons.forms import Lesson

_ID_DIGITS = 24
_RUN_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Screened:
    """One lesson of a file and the result of its screening."""

    lesson: Lesson
    text: str
    """As it would be stored; empty when it is rejected."""
    reason: str = ""
    known_as: str = ""
    """Id of the stored record with the same text."""


@dataclass(frozen=True, slots=True)
class Review:
    """Who approved which file."""

    import_id: str
    task_id: str
    reviewed_by: str
    file_digest: str


def review_of(task_id: str, reviewed_by: str, content: bytes) -> Review:
    """Return the review of a file; its id depends on content and reviewer, so that repeating an import stores no duplicate."""
    digest = sha256_hex(content)
    name = sha256_hex(canonical_json([task_id, reviewed_by, digest]))[:_RUN_DIGITS]
    return Review(f"import-{name}", task_id, reviewed_by, digest)


def screen_lessons(
    lessons: Sequence[Lesson], pack: LoadedPack, in_store: Iterable[ExperienceRecord]
) -> tuple[Screened, ...]:
    """Screen every lesson by the rules of the pack. ``in_store``: records with valid stamps."""
    known = {(record.polarity, record.summary32): record.experience_id for record in in_store if record.summary32}
    seen: set[tuple[str, str]] = set()

    def screen(lesson: Lesson) -> Screened:
        result = screen_lesson(lesson.text, max_words=pack.max_words, max_chars=pack.max_chars)
        if isinstance(result, Rejection):
            return Screened(lesson, "", result.reason)
        key = (lesson.polarity, result.text)
        if key in seen:
            return Screened(lesson, "", "it stands in the file twice")
        seen.add(key)
        return Screened(lesson, result.text, known_as=known.get(key, ""))

    return tuple(map(screen, lessons))


def records_of(screened: Sequence[Screened], pack: LoadedPack, review: Review, clock: Clock) -> list[ExperienceRecord]:
    """Return stamped records of the lessons that are accepted and new, in their order."""
    return [_record(entry, pack, review, clock) for entry in screened if entry.text and not entry.known_as]


def _record(entry: Screened, pack: LoadedPack, review: Review, clock: Clock) -> ExperienceRecord:
    stamp = pack_stamp(pack)
    content: dict[str, Any] = {
        "task": review.task_id,
        "import": review.import_id,
        "polarity": entry.lesson.polarity,
        "text": entry.text,
        "stamp": [stamp.stamp, stamp.stamped_at],
    }
    record = ExperienceRecord(
        experience_id=f"exp-{sha256_hex(canonical_json(content))[:_ID_DIGITS]}",
        run_id=review.import_id,
        task_id=review.task_id,
        domain=pack.manifest.domain,
        pack_id=pack.manifest.id,
        tags=pack.manifest.tags,
        epoch=1,
        batch=0,
        group_id=review.import_id,
        operation="add",
        summary32=entry.text,
        polarity=entry.lesson.polarity,
        reward=Reward(gt_score=0.0, relative_rank=0.0),
        stamp_signature="",
        created_at=clock(),
    )
    return stamp_record(record, stamp)
