"""Hold the records of a JSON lines file, and say which can be graded but not served.

Every line is parsed once, to refuse what is not JSON. A record without a prompt is kept and reported.
"""

from __future__ import annotations

import json
from array import array
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tfgrpo.pipelines.problems import CappedProblems
from tfgrpo.stores.errors import DatasetError, Problem

_RARE: Final = ("NaN", "Infinity", "\\ud", "\\uD")
"""Texts in lines that are JSON for Python and for few other readers."""


@dataclass(frozen=True, slots=True)
class Records:
    """The records of one file by number from 0, without blank lines. What happens to the file later has no effect."""

    path: Path
    texts: Sequence[bytes]
    """Parsed on access: they take a third of the memory, and no grader can change what another one sees."""
    lines: Sequence[int]
    """Their lines, from 1."""
    malformed: dict[int, str]
    """Records that can be graded but not served, with the reason; they are never drawn."""

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> Any:
        return json.loads(self.texts[index])

    @property
    def servable(self) -> range | tuple[int, ...]:
        """Numbers of the records that can be drawn."""
        numbers = range(len(self))
        return tuple(number for number in numbers if number not in self.malformed) if self.malformed else numbers

    def where(self, index: int) -> str:
        """Return ``path:line`` of a record."""
        return f"{self.path}:{self.lines[index]}"


def read_records(path: Path, visit: Callable[[str, object], None] = lambda _where, _record: None) -> Records:
    """Read a file. Raise ``DatasetError`` if it is unreadable, and for every line that is not JSON.

    ``visit`` gets ``path:line`` and value of each line.
    """
    problems = CappedProblems()
    texts, lines, malformed = list[bytes](), array("I"), dict[int, str]()
    try:
        raw = path.read_bytes().removeprefix(BOM_UTF8)
    except OSError as error:
        given = error.strerror or type(error).__name__
        raise DatasetError.one(str(path), given, "a JSONL file that can be read") from None
    for number, line in enumerate(raw.split(b"\n"), start=1):
        try:
            text = line.decode().strip()
            record: Any = json.loads(text) if text else None
        except (ValueError, RecursionError) as error:
            problems.add(Problem(f"{path}:{number}", _no_json(error), "one JSON object on the line"))
            continue
        if text:
            if reason := unservable(record) or _unsendable(text, record):
                malformed[len(texts)] = reason
            visit(f"{path}:{number}", record)
            texts.append(text.encode())
            lines.append(number)
    if len(texts) == 1 and texts[0].startswith(b"["):
        problems.add(Problem(f"{path}:{lines[0]}", "a JSON array", "one JSON object on the line"))
    problems.raise_problems(DatasetError, str(path))
    return Records(path, texts, lines, malformed)


def unservable(record: object) -> str:
    """Return why a record cannot be shown to an actor; empty if it can."""
    if not isinstance(record, dict):
        return "no JSON object"
    for name, kind, needed in (("prompt", str, True), ("system_prompt", str, False), ("metadata", dict, False)):
        value = record.get(name)
        if not isinstance(value, kind) and (needed or value is not None):
            return f"no {name!r}" if value is None else f"{type(value).__name__} in {name!r}"
    return ""


def _no_json(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"no UTF-8 at byte {error.start}"
    if isinstance(error, json.JSONDecodeError):
        return f"no JSON: {error.msg} at column {error.colno}"
    return "JSON nested without end" if isinstance(error, RecursionError) else str(error)


def _unsendable(text: str, record: dict[str, Any]) -> str:
    """Return why a record is no JSON for other readers than Python; empty when it is."""
    if not any(rare in text for rare in _RARE):
        return ""
    try:
        served = [record.get(name) for name in ("prompt", "system_prompt", "metadata")]
        json.dumps(served, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        return "half a surrogate pair, which is no character"
    except ValueError:
        return "NaN or infinity, which is no JSON number"
    return ""
