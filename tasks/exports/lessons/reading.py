"""Read the lessons of another agent's file, strictly, in one of the known forms; storing is decided later.

Every line that should be a lesson and is not is a problem, and all problems of a file are reported together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import starmap
from typing import Any, Final

from tfgrpo.stores.errors import DatasetError, Problem
from tfgrpo.stores.experiences.record import Polarity
from tfgrpo.tasks.exports.lessons.forms import BEGIN, END, SIMULATED, Lesson, LessonForm, LessonSet
from tfgrpo.tasks.models.replies import mapping_of

_LINE: Final = re.compile(r"[-*]\s+(do|avoid):\s+(\S.*)", re.IGNORECASE)
_BULLET: Final = re.compile(r"(?:-\s+)?\[([^\]]+)-(\d+)\]\s*helpful=(\d+)\s*harmful=(\d+)\s*::\s+(\S.*)")
_MISTAKES: Final = re.compile(r"mistake|avoid|pitfall", re.IGNORECASE)
_ACCEPTED: Final = "`- Do: …` or `- Avoid: …`"


def read_lessons(text: str, form: LessonForm, *, source: str) -> LessonSet:
    """Return the lessons of a file. Raise ``DatasetError`` with every invalid line, or for a file without lessons."""
    lessons = _READERS[form](text, source)
    if not lessons.lessons:
        raise DatasetError.one(source, "no lesson", f"lessons as `tfgrpo experiences export --to {form}` writes them")
    return lessons


def _text(text: str, source: str) -> LessonSet:
    return LessonSet(_valid(_lines(text.splitlines(), source)))


def _marked(text: str, source: str) -> LessonSet:
    """Read the bullets between the marks; the rest of the file belongs to others."""
    lines = text.splitlines()
    begins = [index for index, line in enumerate(lines) if line.strip().startswith(BEGIN)]
    ends = [index for index, line in enumerate(lines) if line.strip() == END]
    if len(begins) != 1 or len(ends) != 1 or begins[0] > ends[0]:
        given = f"{len(begins)} beginnings and {len(ends)} ends"
        raise DatasetError.one(source, given, f"one {BEGIN} … --> and one {END}")
    lessons = _valid(_lines(lines[begins[0] + 1 : ends[0]], source, first=begins[0] + 2, bullets=True))
    return LessonSet(lessons, simulated=SIMULATED in lines[begins[0]])


def _lines(lines: list[str], source: str, *, first: int = 1, bullets: bool = False) -> Iterator[Lesson | Problem]:
    """Yield the lesson, or the problem, of each line that is not blank; with ``bullets`` other text is passed over."""
    for number, line in enumerate(map(str.strip, lines), start=first):
        match = _LINE.fullmatch(line)
        if match is not None:
            yield Lesson(match[2], "avoid" if match[1].lower() == "avoid" else "do")
        elif line and (not bullets or line.startswith(("-", "*"))):
            yield Problem(f"{source}:{number}", repr(line[:80]), _ACCEPTED)


def _valid(read: Iterable[Lesson | Problem]) -> tuple[Lesson, ...]:
    """Return the lessons. Raise ``DatasetError`` with every problem."""
    known = list(read)
    problems = [each for each in known if isinstance(each, Problem)]
    if problems:
        raise DatasetError(problems)
    return tuple(each for each in known if isinstance(each, Lesson))


def _json(text: str, source: str) -> LessonSet:
    value = _object(text, source)
    entries = value.get("lessons", ())
    if not isinstance(entries, list):
        raise DatasetError.one(f"{source}: lessons", type(entries).__name__, "a list")

    def lesson(index: int, entry: object) -> Lesson | Problem:
        fields = mapping_of(entry)
        polarity, advice = fields.get("says"), fields.get("text")
        if polarity in ("do", "avoid") and isinstance(advice, str):
            return Lesson(advice, polarity)
        excerpt = json.dumps(entry, ensure_ascii=False)[:80]
        accepted = 'an object with "says" (do or avoid) and "text"'
        return Problem(f"{source}: lessons[{index}]", excerpt, accepted)

    return LessonSet(_valid(starmap(lesson, enumerate(entries))), simulated=value.get("simulated") is True)


def _dspy(text: str, source: str) -> LessonSet:
    """Read the instructions of a ``dspy.Predict``."""
    value = _object(text, source)
    instructions = mapping_of(value.get("signature")).get("instructions")
    if not isinstance(instructions, str):
        raise DatasetError.one(f"{source}: signature.instructions", "nothing", "the state of a dspy.Predict")
    lessons = _valid(_lines(instructions.splitlines(), f"{source}: instructions", bullets=True))
    origin = mapping_of(mapping_of(value.get("metadata")).get("tfgrpo"))
    return LessonSet(lessons, simulated=origin.get("simulated") is True)


def _playbook(text: str, source: str) -> LessonSet:
    """Read bullets in the order of their numbers; those below a heading about mistakes are to be avoided."""
    numbered: list[tuple[int, Lesson]] = []
    problems: list[Problem] = []
    polarity: Polarity = "do"
    simulated = False
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        match = _BULLET.fullmatch(line)
        if line.startswith("#"):
            polarity = "avoid" if _MISTAKES.search(line) else "do"
        elif line.startswith("<!--"):
            simulated = simulated or SIMULATED in line
        elif match is not None:
            numbered.append((int(match[2]), Lesson(match[5], polarity)))
        elif line:
            accepted = "[slug-00001] helpful=N harmful=N :: text"
            problems.append(Problem(f"{source}:{number}", repr(line[:80]), accepted))
    if problems:
        raise DatasetError(problems)
    ordered = sorted(numbered, key=lambda pair: pair[0])
    return LessonSet(tuple(lesson for _, lesson in ordered), simulated=simulated)


def _object(text: str, source: str) -> dict[str, Any]:
    defect = "no JSON object"
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        value, defect = None, f"no JSON at line {error.lineno}, column {error.colno} ({error.msg})"
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise DatasetError.one(source, defect, "one JSON object")
    return value


_READERS: Final[Mapping[LessonForm, Callable[[str, str], LessonSet]]] = {
    "text": _text,
    "json": _json,
    "skill-md": _marked,
    "agents-md": _marked,
    "dspy": _dspy,
    "ace-playbook": _playbook,
}
