"""Render lessons in the forms that other agents read, and read back the JSON form, strictly.

Every form but plain text states the origin of the lessons. The caller decides which lessons may be exported or stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from tfgrpo.stores.errors import DatasetError, Problem
from tfgrpo.stores.experiences.record import Polarity
from tfgrpo.stores.frozen_json import mapping_of

LessonForm: TypeAlias = Literal["text", "json", "skill-md", "agents-md", "dspy", "ace-playbook"]
LESSON_FORMS: Final[tuple[LessonForm, ...]] = get_args(LessonForm)

SIMULATED: Final = "SIMULATED"
"""In every form but plain text when the lessons were learned with the simulated model."""
BEGIN: Final = "<!-- tfgrpo lessons begin"
END: Final = "<!-- tfgrpo lessons end -->"
_ADVICE: Final = "Earlier attempts taught these lessons. Follow each of them that fits the task at hand."
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


def lesson_lines(lessons: Sequence[ExportedLesson]) -> str:
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


def _skill(lessons: LessonSet) -> str:
    """``SKILL.md``: front matter with a name of lower-case letters, digits and hyphens, and a description, then the text."""
    name = _NAME.sub("-", f"{lessons.task_id or lessons.domain}-lessons".lower()).strip("-")[:_LONGEST_NAME].strip("-")
    about = lessons.domain or lessons.task_id or "these"
    description = f"Lessons learned on {about} tasks by comparing attempts. Use when working on {about} tasks."
    front = f"name: {json.dumps(name)}\ndescription: {json.dumps(description, ensure_ascii=False)}"
    return f"---\n{front}\n---\n\n# Lessons: {about}\n\n{_block(lessons)}"


def _block(lessons: LessonSet) -> str:
    """Return the lessons between marks, so that a later export can replace them in a file of others."""
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
    """Sections of bullets with counters: the groups for and against a lesson."""
    # ACE's curator fails on any line before the first section. It numbers its own bullets from 1, with a slug of at most
    # five letters, so ours have a longer one.
    numbered = list(enumerate(lessons.lessons, start=1))
    sections = []
    for title, polarity in _SECTIONS.items():
        bullets = [
            f"[tfgrpo-{number:05d}] helpful={lesson.groups_for} harmful={lesson.groups_against} :: {lesson.text}"
            for number, lesson in numbered
            if lesson.polarity == polarity
        ]
        sections.append("\n".join([f"## {title}", *bullets]))
    return "\n\n".join(sections) + f"\n<!-- tfgrpo{_origin(lessons)} -->"


_FORMS: Final[Mapping[LessonForm, Callable[[LessonSet], str]]] = {
    "text": lambda lessons: lesson_lines(lessons.lessons),
    "json": lambda lessons: json.dumps(as_json(lessons), indent=2, ensure_ascii=False),
    "skill-md": _skill,
    "agents-md": lambda lessons: f"## Lessons from earlier attempts\n\n{_block(lessons)}",
    "dspy": _dspy,
    "ace-playbook": _playbook,
}


def read_lessons(text: str, *, source: str) -> LessonSet:
    """Return the lessons of a file of ``as_json``. Raise ``DatasetError`` with every invalid one, or for a file without any."""
    value = json_object(text, source)
    entries = value.get("lessons", ())
    if not isinstance(entries, list):
        raise DatasetError.one(f"{source}: lessons", type(entries).__name__, "a list")
    lessons: list[ExportedLesson] = []
    problems: list[Problem] = []
    for index, entry in enumerate(entries):
        fields = mapping_of(entry)
        polarity, advice = fields.get("says"), fields.get("text")
        if polarity in ("do", "avoid") and isinstance(advice, str):
            lessons.append(ExportedLesson(advice, polarity))
        else:
            excerpt = json.dumps(entry, ensure_ascii=False)[:80]
            accepted = 'an object with "says" (do or avoid) and "text"'
            problems.append(Problem(f"{source}: lessons[{index}]", excerpt, accepted))
    if problems:
        raise DatasetError(problems)
    if not lessons:
        raise DatasetError.one(source, "no lesson", "lessons as `tfgrpo experiences export --to json` writes them")
    pack = value.get("pack_id")
    return LessonSet(
        tuple(lessons), pack_id=pack if isinstance(pack, str) else "", simulated=value.get("simulated") is True
    )


def json_object(text: str | bytes, source: str) -> dict[str, Any]:
    """Return a file's JSON object. Raise ``DatasetError`` with the place of its first fault."""
    defect = "no JSON object"
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        value, defect = None, f"no JSON at line {error.lineno}, column {error.colno} ({error.msg})"
    except (ValueError, RecursionError):  # no UTF-8, or nested too deeply
        value = None
    if not isinstance(value, dict):
        raise DatasetError.one(source, defect, "one JSON object")
    return value
