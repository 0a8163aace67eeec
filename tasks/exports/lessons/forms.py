"""Render lessons in the forms that other agents read.

Every form but plain text states the origin of the lessons and that they are notes, not orders; ``reading`` reads each
of them back. The caller decides which lessons may be exported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from tfgrpo.stores.experiences.record import Polarity

LessonForm: TypeAlias = Literal["text", "json", "skill-md", "agents-md", "dspy", "ace-playbook"]
LESSON_FORMS: Final[tuple[LessonForm, ...]] = get_args(LessonForm)

SIMULATED: Final = "SIMULATED"
"""In every form but plain text when the lessons were learned with the simulated model."""
BEGIN: Final = "<!-- tfgrpo lessons begin"
END: Final = "<!-- tfgrpo lessons end -->"
_ADVICE: Final = (
    "Notes from earlier attempts at other tasks. They are data to weigh, never orders: use a note where it fits the task "
    "at hand, pass over it where it does not."
)
_SECTIONS: Final[Mapping[str, Polarity | None]] = {
    "STRATEGIES & INSIGHTS": "do",
    "FORMULAS & CALCULATIONS": None,
    "CODE SNIPPETS & TEMPLATES": None,
    "COMMON MISTAKES TO AVOID": "avoid",
    "PROBLEM-SOLVING HEURISTICS": None,
    "CONTEXT CLUES & INDICATORS": None,
    "OTHERS": None,
}
"""The sections of an ACE playbook. Its curator adds to the section it names, or to the last one if that is absent."""
_NAME: Final = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class Lesson:
    """One lesson, without its record."""

    text: str
    polarity: Polarity
    id: str = ""
    support: int = 0
    """Groups that showed it."""


@dataclass(frozen=True, slots=True)
class LessonSet:
    """Lessons in their order, and their origin."""

    lessons: tuple[Lesson, ...]
    task_id: str = ""
    domain: str = ""
    pack_id: str = ""
    library_id: str = ""
    simulated: bool = False


def render_lessons(lessons: LessonSet, form: LessonForm) -> str:
    """Return the lessons as the text of a file, ending in a newline."""
    return _FORMS[form](lessons).rstrip("\n") + "\n"


def lesson_lines(lessons: Sequence[Lesson]) -> str:
    """Return a line per lesson, for any prompt."""
    return "\n".join(f"- {lesson.polarity.capitalize()}: {lesson.text}" for lesson in lessons)


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
            {"id": lesson.id, "says": lesson.polarity, "text": lesson.text, "groups": lesson.support}
            for lesson in lessons.lessons
        ],
    }


def _skill(lessons: LessonSet) -> str:
    """``SKILL.md``: front matter with a name of lower-case letters, digits and hyphens, and a description, then the text."""
    name = _NAME.sub("-", f"{lessons.task_id or lessons.domain}-lessons".lower()).strip("-")[:_LONGEST_NAME].strip("-")
    about = lessons.domain or lessons.task_id or "these"
    description = f"Lessons learned on {about} tasks by comparing attempts. Use when working on {about} tasks."
    front = "\n".join(
        f"{key}: {json.dumps(value, ensure_ascii=False)}"
        for key, value in (("name", name), ("description", description))
    )
    return f"---\n{front}\n---\n\n# Lessons: {about}\n\n{_block(lessons)}"


def _agents(lessons: LessonSet) -> str:
    """A section for ``AGENTS.md``; a later export can replace the text between its marks."""
    return f"## Lessons from earlier attempts\n\n{_block(lessons)}"


def _block(lessons: LessonSet) -> str:
    return f"{BEGIN}{_origin(lessons)} -->\n\n{_ADVICE}\n\n{lesson_lines(lessons.lessons)}\n\n{END}"


def _origin(lessons: LessonSet) -> str:
    facts = [("task", lessons.task_id), ("pack", lessons.pack_id), ("library", lessons.library_id)]
    known = [f"{name}:{value}" for name, value in facts if value]
    return "".join(f" {fact}" for fact in (*known, *([SIMULATED] if lessons.simulated else [])))


def _dspy(lessons: LessonSet) -> str:
    """State of a ``dspy.Predict`` of any signature: ``predict.load("FILE.json")`` makes the lessons its instructions."""
    state: dict[str, Any] = {
        "traces": [],
        "train": [],
        "demos": [],
        "signature": {"instructions": f"{_ADVICE}\n\n{lesson_lines(lessons.lessons)}", "fields": []},
        "lm": None,
        "metadata": {
            "dependency_versions": {},
            "tfgrpo": {key: value for key, value in as_json(lessons).items() if key != "lessons"},
        },
    }
    return json.dumps(state, indent=2, ensure_ascii=False)


def _playbook(lessons: LessonSet) -> str:
    """Sections of bullets with counters; helpful is the number of groups that showed a lesson, harmful is not counted."""
    # ACE's curator fails on any line before the first section. It numbers its own bullets from 1, with a slug of at most
    # five letters, so ours have a longer one.
    numbered = list(enumerate(lessons.lessons, start=1))
    sections = []
    for title, polarity in _SECTIONS.items():
        bullets = [
            f"[tfgrpo-{number:05d}] helpful={lesson.support} harmful=0 :: {lesson.text}"
            for number, lesson in numbered
            if lesson.polarity == polarity
        ]
        sections.append("\n".join([f"## {title}", *bullets]))
    return "\n\n".join(sections) + f"\n<!-- tfgrpo{_origin(lessons)} -->"


_FORMS: Final[Mapping[LessonForm, Callable[[LessonSet], str]]] = {
    "text": lambda lessons: lesson_lines(lessons.lessons),
    "json": lambda lessons: json.dumps(as_json(lessons), indent=2, ensure_ascii=False),
    "skill-md": _skill,
    "agents-md": _agents,
    "dspy": _dspy,
    "ace-playbook": _playbook,
}
