"""Screen the lessons of a file and make stamped records of those that may be stored, on a person's authority.

They have no evidence here: reward 0 and no group. What they are worth is measured like that of any other lesson.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.safety import Rejection, screen_lesson
from tfgrpo.prompt_packs.stamps import pack_stamp
from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.experiences.record import ExperienceRecord, Reward, stamp_record
from tfgrpo.tasks.exports.lessons.forms import ExportedLesson
from tfgrpo.tasks.learning.similarity import lesson_words, same_lesson

_ID_DIGITS: Final = 24


@dataclass(frozen=True, slots=True)
class Screened:
    """One lesson of a file and the result of its screening."""

    lesson: ExportedLesson
    text: str = ""
    """As it would be stored; empty when it is refused."""
    reason: str = ""
    """Why it is refused."""
    known: ExperienceRecord | None = None
    """The lesson of the task that says the same, perhaps in other words."""
    opposite: ExperienceRecord | None = None
    """The lesson of the task that says the same in the other direction."""


def screen_lessons(
    lessons: Sequence[ExportedLesson], pack: LoadedPack, in_store: Iterable[ExperienceRecord]
) -> tuple[Screened, ...]:
    """Screen every lesson by the rules of the pack. ``in_store``: records with valid stamps."""
    in_store = tuple(in_store)
    reworded = {name for record in in_store for name in record.supersedes}
    newest = [record for record in in_store if record.experience_id not in reworded]
    live = [(record, lesson_words(record.summary32)) for record in newest]
    seen: set[tuple[str, str]] = set()

    def screen(lesson: ExportedLesson) -> Screened:
        result = screen_lesson(lesson.text, max_words=pack.max_words)
        if isinstance(result, Rejection):
            return Screened(lesson, reason=result.reason)
        if (lesson.polarity, result.text) in seen:
            return Screened(lesson, reason="it is in the file twice")
        seen.add((lesson.polarity, result.text))
        words = lesson_words(result.text)
        like = [record for record, other in live if same_lesson(words, other)]
        like.sort(key=lambda record: record.summary32 != result.text)
        same = next((record for record in like if record.polarity == lesson.polarity), None)
        opposite = next((record for record in like if record.polarity != lesson.polarity), None)
        return Screened(lesson, result.text, known=same, opposite=opposite)

    return tuple(map(screen, lessons))


def record_of(entry: Screened, pack: LoadedPack, task_id: str, run_id: str, clock: Clock) -> ExperienceRecord:
    """Return the stamped record of a lesson that is new to the task; ``run_id`` names the import."""
    stamp = pack_stamp(pack)
    content: dict[str, Any] = {
        "task": task_id,
        "polarity": entry.lesson.polarity,
        "text": entry.text,
        "stamp": [stamp.stamp, stamp.stamped_at],
    }
    record = ExperienceRecord(
        experience_id=f"exp-{sha256_hex(canonical_json(content))[:_ID_DIGITS]}",
        run_id=run_id,
        task_id=task_id,
        domain=pack.manifest.domain,
        pack_id=pack.manifest.id,
        tags=pack.manifest.tags,
        epoch=1,
        batch=0,
        group_id="",
        operation="add",
        summary32=entry.text,
        polarity=entry.lesson.polarity,
        reward=Reward(gt_score=0.0, relative_rank=0.0),
        stamp_signature="",
        created_at=clock(),
    )
    return stamp_record(record, stamp)
