"""Read the lessons of another agent's file, strictly, in one of the known forms; storing is decided later.

Every line that should be a lesson and is not is a problem, and all problems of a file are reported together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tfgrpo.stores.errors import DatasetError, Problem
from tfgrpo.stores.experiences.record import Polarity
from tfgrpo.tasks.exports.lessons.forms import BEGIN, END, SIMULATED, Lesson, LessonForm, LessonSet

_LINE: Final = re.compile(r"[-*]\s+(do|avoid):\s+(\S.*)", re.IGNORECASE)
_BULLET: Final = re.compile(r"(?:-\s+)?\[([^\]]+)-(\d+)\]\s*helpful=(\d+)\s*harmful=(\d+)\s*::\s+(\S.*)")
_MISTAKES: Final = re.compile(r"mistake|avoid|pitfall", re.IGNORECASE)
_ACCEPTED: Final = "`- Do: …` or `- Avoid: …`"


def read_lessons(text: str, form: LessonForm, *, source: str) -> LessonSet:
    """Return the lessons of a file. Raise ``DatasetError`` with every invalid line, or for a file without lessons."""
    problems: list[Problem] = []
    lessons = _READERS[form](text, source, problems)
    if not problems and not lessons.lessons:
        problems.append(Problem(source, "no lesson", f"lessons as `tfgrpo experiences export --to {form}` writes them"))
    if problems:
        raise DatasetError(problems)
    return lessons


def _text(text: str, source: str, problems: list[Problem]) -> LessonSet:
    return LessonSet(_lines(text.splitlines(), 1, source, problems))


def _marked(text: str, source: str, problems: list[Problem]) -> LessonSet:
    """Read the lines between the marks; the rest of the file belongs to others."""
    lines = text.splitlines()
    begins = [index for index, line in enumerate(lines) if line.strip().startswith(BEGIN)]
    ends = [index for index, line in enumerate(lines) if line.strip() == END]
    if len(begins) != 1 or len(ends) != 1 or begins[0] > ends[0]:
        problems.append(
            Problem(source, f"{len(begins)} beginnings and {len(ends)} ends", f"one {BEGIN} … --> and one {END}")
        )
        return LessonSet(())
    bullets = [line if line.lstrip().startswith(("-", "*")) else "" for line in lines[begins[0] + 1 : ends[0]]]
    lessons = _lines(bullets, begins[0] + 2, source, problems)
    return LessonSet(lessons, simulated=SIMULATED in lines[begins[0]])


def _lines(lines: list[str], first: int, source: str, problems: list[Problem]) -> tuple[Lesson, ...]:
    lessons: list[Lesson] = []
    for number, line in enumerate(lines, start=first):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            problems.append(Problem(f"{source}:{number}", repr(line.strip()[:80]), _ACCEPTED))
        else:
            lessons.append(Lesson(match[2], "avoid" if match[1].lower() == "avoid" else "do"))
    return tuple(lessons)


def _json(text: str, source: str, problems: list[Problem]) -> LessonSet:
    value = _object(text, source, problems)
    if problems:
        return LessonSet(())
    entries = value.get("lessons", ())
    if not isinstance(entries, list):
        problems.append(Problem(f"{source}: lessons", type(entries).__name__, "a list"))
        return LessonSet(())
    lessons: list[Lesson] = []
    for index, entry in enumerate(entries):
        polarity, advice = (entry.get("says"), entry.get("text")) if isinstance(entry, Mapping) else (None, None)
        if polarity not in ("do", "avoid") or not isinstance(advice, str):
            excerpt = json.dumps(entry, ensure_ascii=False)[:80]
            problems.append(
                Problem(f"{source}: lessons[{index}]", excerpt, 'an object with "says" (do or avoid) and "text"')
            )
        else:
            lessons.append(Lesson(advice, polarity))
    return LessonSet(tuple(lessons), simulated=value.get("simulated") is True)


def _dspy(text: str, source: str, problems: list[Problem]) -> LessonSet:
    """Read the instructions of a ``dspy.Predict``."""
    value = _object(text, source, problems)
    if problems:
        return LessonSet(())
    signature = value.get("signature")
    instructions = signature.get("instructions") if isinstance(signature, Mapping) else None
    if not isinstance(instructions, str):
        problems.append(Problem(f"{source}: signature.instructions", "nothing", "the state of a dspy.Predict"))
        return LessonSet(())
    bullets = [line if line.lstrip().startswith(("-", "*")) else "" for line in instructions.splitlines()]
    lessons = _lines(bullets, 1, f"{source}: instructions", problems)
    metadata = value.get("metadata")
    origin = metadata.get("tfgrpo") if isinstance(metadata, Mapping) else None
    return LessonSet(lessons, simulated=isinstance(origin, Mapping) and origin.get("simulated") is True)


def _playbook(text: str, source: str, problems: list[Problem]) -> LessonSet:
    """Read bullets in the order of their numbers; those below a heading about mistakes are to be avoided."""
    numbered: list[tuple[int, Lesson]] = []
    polarity: Polarity = "do"
    simulated = False
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped.startswith("#"):
            polarity = "avoid" if _MISTAKES.search(stripped) else "do"
        elif stripped.startswith("<!--"):
            simulated = simulated or SIMULATED in stripped
        elif stripped:
            match = _BULLET.fullmatch(stripped)
            if match is None:
                accepted = "[slug-00001] helpful=N harmful=N :: text"
                problems.append(Problem(f"{source}:{number}", repr(stripped[:80]), accepted))
            else:
                numbered.append((int(match[2]), Lesson(match[5], polarity)))
    ordered = sorted(numbered, key=lambda pair: pair[0])
    return LessonSet(tuple(lesson for _, lesson in ordered), simulated=simulated)


def _object(text: str, source: str, problems: list[Problem]) -> dict[str, Any]:
    defect = "no JSON object"
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        value, defect = None, f"no JSON at line {error.lineno}, column {error.colno} ({error.msg})"
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    problems.append(Problem(source, defect, "one JSON object"))
    return {}


_READERS: Final[Mapping[LessonForm, Callable[[str, str, list[Problem]], LessonSet]]] = {
    "text": _text,
    "json": _json,
    "skill-md": _marked,
    "agents-md": _marked,
    "dspy": _dspy,
    "ace-playbook": _playbook,
}
