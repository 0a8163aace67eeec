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
from tfgrpo.stores.experiences.library import Library, fold
from tfgrpo.stores.experiences.record import ExperienceRecord, Operation, Reward, stamp_record
from tfgrpo.tasks.exports.lessons.forms import Lesson
from tfgrpo.tasks.learning.similarity import lesson_words, same_lesson

_ID_DIGITS = 24
_RUN_DIGITS = 12
_OPERATIONS: tuple[Operation, ...] = ("add", "modify", "merge")
"""By the number of lessons that are superseded."""


@dataclass(frozen=True, slots=True)
class Screened:
    """One lesson of a file and the result of its screening."""

    lesson: Lesson
    text: str
    """As it would be stored; empty when it is rejected."""
    reason: str = ""
    known_as: str = ""
    """Id of the stored record with the same text."""
    conflicts: tuple[ExperienceRecord, ...] = ()
    """Lessons of the task that say the same in other words, or in the other direction."""

    @property
    def conflict(self) -> str:
        """What it conflicts with, for people; empty without a conflict."""
        kinds = {True: "nearly the same as", False: "the opposite of"}
        own = self.lesson.polarity
        return "; ".join(
            f"{kinds[each.polarity == own]} {each.experience_id}, {each.polarity}: {each.summary32}"
            for each in self.conflicts
        )


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
    stored = list(in_store)
    known = {(record.polarity, record.summary32): record.experience_id for record in stored if record.summary32}
    live = [(record, lesson_words(record.summary32)) for record in fold(Library(()), stored).entries]
    seen: set[tuple[str, str]] = set()

    def screen(lesson: Lesson) -> Screened:
        result = screen_lesson(lesson.text, max_words=pack.max_words, max_chars=pack.max_chars)
        if isinstance(result, Rejection):
            return Screened(lesson, "", result.reason)
        key = (lesson.polarity, result.text)
        if key in seen:
            return Screened(lesson, "", "it stands in the file twice")
        seen.add(key)
        words, known_as = lesson_words(result.text), known.get(key, "")
        like = () if known_as else tuple(record for record, other in live if same_lesson(words, other))
        return Screened(lesson, result.text, known_as=known_as, conflicts=like)

    return tuple(map(screen, lessons))


def records_of(
    screened: Sequence[Screened], pack: LoadedPack, review: Review, clock: Clock, *, theirs: bool = False
) -> list[ExperienceRecord]:
    """Return stamped records of the lessons that are accepted and new, in their order.

    ``theirs``: a lesson in conflict supersedes those of the task; else it is left out.
    """
    fresh = (entry for entry in screened if entry.text and not entry.known_as)
    return [_record(entry, pack, review, clock) for entry in fresh if theirs or not entry.conflicts]


def _record(entry: Screened, pack: LoadedPack, review: Review, clock: Clock) -> ExperienceRecord:
    stamp = pack_stamp(pack)
    content: dict[str, Any] = {
        "task": review.task_id,
        "import": review.import_id,
        "polarity": entry.lesson.polarity,
        "text": entry.text,
        "stamp": [stamp.stamp, stamp.stamped_at],
    }
    targets = tuple(each.experience_id for each in entry.conflicts)
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
        operation=_OPERATIONS[min(len(targets), 2)],
        supersedes=targets,
        summary32=entry.text,
        polarity=entry.lesson.polarity,
        reward=Reward(gt_score=0.0, relative_rank=0.0),
        stamp_signature="",
        created_at=clock(),
    )
    return stamp_record(record, stamp)
