"""Render lessons in the forms that other agents read; read back the JSON form, screen it, and make stamped records of it.

Every form but plain text states the origin of the lessons. Those that are stored have no evidence here, reward 0 and no group:
what they are worth is measured like that of any other lesson.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from pydantic import BaseModel, ValidationError

from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.safety import Rejection, screen_lesson
from tfgrpo.prompt_packs.stamps import pack_stamp
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.errors import DatasetError, Problem
from tfgrpo.stores.experiences.store import ExperienceRecord, Polarity, Reward, lesson_words, same_lesson, stamp_record
from tfgrpo.stores.json_values import canonical_json, sha256_hex

LessonForm: TypeAlias = Literal["text", "json", "skill-md", "agents-md"]
LESSON_FORMS: Final[tuple[LessonForm, ...]] = get_args(LessonForm)

# In every form but plain text when the lessons were learned with the simulated model.
SIMULATED: Final = "SIMULATED"
_ADVICE: Final = "Earlier attempts taught these lessons. Follow each of them that fits the task at hand."


class ExportedLesson(BaseModel, frozen=True):
    """One lesson, without its record."""

    id: str = ""
    says: Polarity
    text: str
    groups_for: int = 0
    groups_against: int = 0
    effect: Mapping[str, Any] | None = None
    """Effect on the reward as ``effect_json`` has it: in points with its interval, and the attempts behind it."""


class LessonSet(BaseModel, frozen=True):
    """Lessons in their order, and their origin."""

    schema_version: Literal[1] = 1
    task_id: str = ""
    domain: str = ""
    pack_id: str = ""
    library_id: str = ""
    simulated: bool = False
    lessons: tuple[ExportedLesson, ...]


def render_lessons(lessons: LessonSet, form: LessonForm) -> str:
    """Return the lessons as the text of a file, ending in a newline."""
    return _FORMS[form](lessons).rstrip("\n") + "\n"


def _lines(lessons: LessonSet) -> str:
    return "\n".join(f"- {lesson.says.capitalize()}: {lesson.text}" for lesson in lessons.lessons)


def _skill(lessons: LessonSet) -> str:
    # A name in SKILL.md has at most 64 lower-case letters, digits and hyphens.
    words = re.sub("[^a-z0-9]+", "-", f"{lessons.task_id or lessons.domain}-lessons".lower())
    name = words.strip("-")[:64].strip("-")
    about = lessons.domain or lessons.task_id or "these"
    description = f"Lessons learned on {about} tasks by comparing attempts. Use when working on {about} tasks."
    front = f"name: {json.dumps(name)}\ndescription: {json.dumps(description, ensure_ascii=False)}"
    return f"---\n{front}\n---\n\n# Lessons: {about}\n\n{_block(lessons)}"


def _block(lessons: LessonSet) -> str:
    # Between marks, so that a later export can replace them in a file of others.
    facts = [("task", lessons.task_id), ("pack", lessons.pack_id), ("library", lessons.library_id)]
    origin = [f"{name}:{value}" for name, value in facts if value] + [SIMULATED] * lessons.simulated
    begin = " ".join(["<!-- tfgrpo lessons begin", *origin, "-->"])
    return f"{begin}\n\n{_ADVICE}\n\n{_lines(lessons)}\n\n<!-- tfgrpo lessons end -->"


_FORMS: Final[Mapping[LessonForm, Callable[[LessonSet], str]]] = {
    "text": _lines,
    "json": lambda lessons: lessons.model_dump_json(indent=2),
    "skill-md": _skill,
    "agents-md": lambda lessons: f"## Lessons from earlier attempts\n\n{_block(lessons)}",
}


def read_lessons(text: str, *, source: str) -> LessonSet:
    """Return the lessons of a file in the JSON form. Raise ``DatasetError`` with every invalid one, or without any."""
    try:
        lessons = LessonSet.model_validate_json(text, strict=True)
    except ValidationError as error:
        problems = []
        for fault in error.errors(include_url=False):
            path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in fault["loc"])
            accepted = f"lessons as `tfgrpo experiences export --to json` writes them: {fault['msg']}"
            problems.append(Problem(f"{source}: {path[1:]}".rstrip(": "), f"{fault['input']!r:.80}", accepted))
        raise DatasetError(problems) from error
    if not lessons.lessons:
        raise DatasetError.one(source, "no lesson", "lessons as `tfgrpo experiences export --to json` writes them")
    return lessons


@dataclass(frozen=True, slots=True)
class Screened:
    """One lesson of a file and the result of its screening."""

    lesson: ExportedLesson
    text: str = ""
    """As it would be stored; empty when it is refused, for a reason."""
    reason: str = ""
    known: ExperienceRecord | None = None
    """The lesson of the task that says the same, perhaps in other words."""
    opposite: ExperienceRecord | None = None


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
        text = screen_lesson(lesson.text, max_words=pack.max_words)
        if isinstance(text, Rejection):
            return Screened(lesson, reason=text.reason)
        if (lesson.says, text) in seen:
            return Screened(lesson, reason="it is in the file twice")
        seen.add((lesson.says, text))
        words = lesson_words(text)
        like = [record for record, other in live if same_lesson(words, other)]
        like.sort(key=lambda record: record.summary32 != text)
        same = next((record for record in like if record.polarity == lesson.says), None)
        opposite = next((record for record in like if record.polarity != lesson.says), None)
        return Screened(lesson, text, known=same, opposite=opposite)

    return tuple(map(screen, lessons))


def imported_record(entry: Screened, pack: LoadedPack, task_id: str, run_id: str, clock: Clock) -> ExperienceRecord:
    """Return the stamped record of a lesson that is new to the task; ``run_id`` names the import."""
    stamp = pack_stamp(pack)
    content = {"task": task_id, "polarity": entry.lesson.says, "text": entry.text, "stamp": [stamp.stamp, stamp.stamped_at]}
    record = ExperienceRecord(
        experience_id=f"exp-{sha256_hex(canonical_json(content))[:24]}",
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
        polarity=entry.lesson.says,
        reward=Reward(gt_score=0.0, relative_rank=0.0),
        stamp_signature="",
        created_at=clock(),
    )
    return stamp_record(record, stamp)
