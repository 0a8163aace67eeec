"""Render lessons in the forms that other agents read; read back the JSON form, screen it, and make stamped records of it.

Every form but plain text states the origin of the lessons. The caller decides which lessons may be exported or stored. Stored
ones have no evidence here, reward 0 and no group: what they are worth is measured like that of any other lesson.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from pydantic import BaseModel, Field, ValidationError

from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.safety import Rejection, screen_lesson
from tfgrpo.prompt_packs.stamps import pack_stamp
from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.errors import DatasetError, Problem
from tfgrpo.stores.experiences.record import ExperienceRecord, Polarity, Reward, stamp_record
from tfgrpo.tasks.learning.similarity import lesson_words, same_lesson

LessonForm: TypeAlias = Literal["text", "json", "skill-md", "agents-md"]
LESSON_FORMS: Final[tuple[LessonForm, ...]] = get_args(LessonForm)

SIMULATED: Final = "SIMULATED"
"""In every form but plain text when the lessons were learned with the simulated model."""
_ADVICE: Final = "Earlier attempts taught these lessons. Follow each of them that fits the task at hand."
_LONGEST_NAME: Final = 64
_ID_DIGITS: Final = 24


@dataclass(frozen=True, slots=True)
class ExportedLesson:
    """One lesson, without its record."""

    text: str
    polarity: Polarity
    id: str = ""
    groups_for: int = 0
    """Groups that taught or confirmed it."""
    groups_against: int = 0
    effect: Mapping[str, Any] | None = None
    """Effect on the reward as ``effect_json`` has it: in points with its interval, and the attempts behind it."""


@dataclass(frozen=True, slots=True)
class LessonSet:
    """Lessons in their order, and their origin."""

    lessons: tuple[ExportedLesson, ...]
    task_id: str = ""
    domain: str = ""
    pack_id: str = ""
    library_id: str = ""
    simulated: bool = False


def render_lessons(lessons: LessonSet, form: LessonForm) -> str:
    """Return the lessons as the text of a file, ending in a newline."""
    return _FORMS[form](lessons).rstrip("\n") + "\n"


def as_json(lessons: LessonSet) -> dict[str, Any]:
    """Return lessons and origin as one JSON object."""
    return {
        "schema_version": 1,
        "task_id": lessons.task_id,
        "domain": lessons.domain,
        "pack_id": lessons.pack_id,
        "library_id": lessons.library_id,
        "simulated": lessons.simulated,
        "lessons": [
            {
                "id": lesson.id,
                "says": lesson.polarity,
                "text": lesson.text,
                "groups_for": lesson.groups_for,
                "groups_against": lesson.groups_against,
                "effect": None if lesson.effect is None else dict(lesson.effect),
            }
            for lesson in lessons.lessons
        ],
    }


def _lines(lessons: LessonSet) -> str:
    return "\n".join(f"- {lesson.polarity.capitalize()}: {lesson.text}" for lesson in lessons.lessons)


def _skill(lessons: LessonSet) -> str:
    """``SKILL.md``: front matter with a name of lower-case letters, digits and hyphens, and a description, then the text."""
    words = re.sub("[^a-z0-9]+", "-", f"{lessons.task_id or lessons.domain}-lessons".lower())
    name = words.strip("-")[:_LONGEST_NAME].strip("-")
    about = lessons.domain or lessons.task_id or "these"
    description = f"Lessons learned on {about} tasks by comparing attempts. Use when working on {about} tasks."
    front = f"name: {json.dumps(name)}\ndescription: {json.dumps(description, ensure_ascii=False)}"
    return f"---\n{front}\n---\n\n# Lessons: {about}\n\n{_block(lessons)}"


def _block(lessons: LessonSet) -> str:
    """Return the lessons between marks, so that a later export can replace them in a file of others."""
    facts = [("task", lessons.task_id), ("pack", lessons.pack_id), ("library", lessons.library_id)]
    origin = [f"{name}:{value}" for name, value in facts if value] + [SIMULATED] * lessons.simulated
    begin = " ".join(["<!-- tfgrpo lessons begin", *origin, "-->"])
    return f"{begin}\n\n{_ADVICE}\n\n{_lines(lessons)}\n\n<!-- tfgrpo lessons end -->"


_FORMS: Final[Mapping[LessonForm, Callable[[LessonSet], str]]] = {
    "text": _lines,
    "json": lambda lessons: json.dumps(as_json(lessons), indent=2, ensure_ascii=False),
    "skill-md": _skill,
    "agents-md": lambda lessons: f"## Lessons from earlier attempts\n\n{_block(lessons)}",
}


class _Lesson(BaseModel):
    says: Polarity
    text: str


class _File(BaseModel):
    lessons: list[_Lesson] = Field(min_length=1)
    pack_id: str = ""
    simulated: bool = False


def read_lessons(text: str, *, source: str) -> LessonSet:
    """Return the lessons of a file of ``as_json``. Raise ``DatasetError`` with every invalid one, or for a file without any."""
    try:
        file = _File.model_validate_json(text, strict=True)
    except ValidationError as error:
        problems = []
        for fault in error.errors(include_url=False):
            place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in fault["loc"])
            accepted = f"lessons as `tfgrpo experiences export --to json` writes them: {fault['msg']}"
            problems.append(Problem(f"{source}: {place[1:]}".rstrip(": "), f"{fault['input']!r:.80}", accepted))
        raise DatasetError(problems) from error
    lessons = tuple(ExportedLesson(lesson.text, lesson.says) for lesson in file.lessons)
    return LessonSet(lessons, pack_id=file.pack_id, simulated=file.simulated)


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


def imported_record(entry: Screened, pack: LoadedPack, task_id: str, run_id: str, clock: Clock) -> ExperienceRecord:
    """Return the stamped record of a lesson that is new to the task; ``run_id`` names the import."""
    stamp = pack_stamp(pack)
    content = {
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
