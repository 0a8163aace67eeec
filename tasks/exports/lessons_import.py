"""May these lessons of a file be stored here? Screened like any other, then stamped for the pack in force by a person's word.

They come without evidence: reward 0 and no group, so they rank behind whatever was learned here. Storing puts nothing into
force; that takes the gate, or a promotion that a person asks for and that is recorded as such.
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
from tfgrpo.stores.experiences.record import ExperienceRecord, Reward
from tfgrpo.stores.experiences.signing import stamp_record
from tfgrpo.tasks.exports.lessons import Lesson

_ID_DIGITS = 24
_RUN_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Screened:
    """One lesson of a file and what was found."""

    lesson: Lesson
    text: str
    """As it would be stored; empty when it may not be."""
    reason: str = ""
    """Why it may not be stored, or ``known``."""
    known_as: str = ""
    """Id of the record that says the same already under the stamp in force."""


@dataclass(frozen=True, slots=True)
class Review:
    """Who let lessons in, from where."""

    import_id: str
    task_id: str
    reviewed_by: str
    file_digest: str


def review_of(task_id: str, reviewed_by: str, content: bytes) -> Review:
    """Name an import by what was read and by whom, so that repeating it stores nothing twice."""
    digest = sha256_hex(content)
    name = sha256_hex(canonical_json([task_id, reviewed_by, digest]))[:_RUN_DIGITS]
    return Review(f"import-{name}", task_id, reviewed_by, digest)


def screen_lessons(
    lessons: Sequence[Lesson], pack: LoadedPack, in_store: Iterable[ExperienceRecord]
) -> tuple[Screened, ...]:
    """Judge every lesson by the rules of the pack. ``in_store``: records whose stamps hold."""
    known = {(record.polarity, record.summary32): record.experience_id for record in in_store if record.summary32}
    seen: set[tuple[str, str]] = set()
    screened: list[Screened] = []
    for lesson in lessons:
        judged = screen_lesson(lesson.text, max_words=pack.max_words, max_chars=pack.max_chars)
        if isinstance(judged, Rejection):
            screened.append(Screened(lesson, "", judged.reason))
            continue
        key = (lesson.polarity, judged.text)
        if key in seen:
            screened.append(Screened(lesson, "", "it stands in the file twice"))
        elif key in known:
            screened.append(Screened(lesson, judged.text, known_as=known[key]))
        else:
            screened.append(Screened(lesson, judged.text))
        seen.add(key)
    return tuple(screened)


def records_of(screened: Sequence[Screened], pack: LoadedPack, review: Review, clock: Clock) -> list[ExperienceRecord]:
    """Stamped records of the lessons that are new, in their order."""
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
