"""Tell an agent of the user's own its item, and find its answer: its output, a file, a place in JSON, or a diff."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.settings.actor import ActorSettings
from tfgrpo.stores.errors import ActorError, Problem
from tfgrpo.stores.frozen_json import json_of
from tfgrpo.tasks.shapes import Frame

PlaceOfAnswer = Literal["stdout", "last_line", "file", "json", "diff", "text"]
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class AnswerPlace:
    """Where an answer is: what ``actor.answer`` says."""

    place: PlaceOfAnswer
    where: str = ""
    """Name of a file, or a JSON pointer (RFC 6901)."""

    def of_output(self, text: str) -> str:
        """Return the answer within a program's standard output. Raise ``ActorError`` if it is not there."""
        if self.place == "json":
            whole = json_of(text)
            last = (value for _, value in _objects(reversed(text.split("\n"))))
            return pointed(whole if whole is not None else next(last, None), self.where)
        stripped = text.strip()
        return stripped.rpartition("\n")[2].strip() if self.place == "last_line" else stripped

    def of_file(self, folder: Path, most: int) -> str:
        """Return the text of the file in a working folder. Raise ``ActorError`` without one, or for one that is too long."""
        path = folder / self.where
        if not path.resolve().is_relative_to(folder) or not path.is_file():
            raise ActorError(f"the command left no file {self.where!r} in its working folder (actor.answer)")
        if path.stat().st_size > most:
            raise ActorError(f"the file {self.where!r} has more than {most >> 20} MB")
        return path.read_text(encoding="utf-8", errors="replace").strip()


def item_json(item: Item) -> dict[str, Any]:
    """Return an item as an agent outside this process gets it: never with its answer."""
    shown = {"id": item.id, "prompt": item.prompt, "system_prompt": item.system_prompt}
    return {**shown, "metadata": item.metadata, "domain": item.domain}


def answer_place(text: str | None, kind: str) -> AnswerPlace:
    """Return the place for a command or an HTTP agent. Raise ``ValueError`` with what is accepted."""
    place, _, where = (text or ("stdout" if kind == "command" else "json:/answer")).partition(":")
    plain = {"stdout": "stdout", "last_line": "last_line", "diff": "diff"} if kind == "command" else {"text": "text"}
    if place == "json" and where.startswith("/"):
        return AnswerPlace("json", where)
    inside = PurePosixPath(where)
    if kind == "command" and place == "file" and inside.parts and not inside.is_absolute() and ".." not in inside.parts:
        return AnswerPlace("file", where)
    if where or place not in plain:
        files = ", file:NAME for a file in the working folder" if kind == "command" else ""
        raise ValueError(f"{', '.join(plain)}{files} or json:/POINTER")
    return AnswerPlace(plain[place])  # type: ignore[arg-type]  # one of the keys


def answer_problems(settings: ActorSettings, kind: str) -> Iterator[Problem]:
    """Yield what is wrong with ``actor.answer``."""
    try:
        answer_place(settings.answer, kind)
    except ValueError as error:
        yield Problem("actor.answer", repr(settings.answer), str(error))


def pointed(value: object, pointer: str) -> str:
    """Return what a JSON pointer points at: a text as it is, anything else as JSON. Raise ``ActorError`` for nothing."""
    if value is None:
        raise ActorError("the answer is no JSON, in which actor.answer has a place")
    found: Any = value
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and name in found:
            found = found[name]
        elif isinstance(found, Sequence) and not isinstance(found, str) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            names = ", ".join(map(repr, found)) if isinstance(found, Mapping) else type(found).__name__
            raise ActorError(
                f"nothing at {pointer} of the answer (actor.answer); there is: {names[:_SHOWN] or 'nothing'}"
            )
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def event_frames(text: str) -> tuple[Frame, ...]:
    """Return the lines of an output that are JSON objects as notes, without the last, which is the answer."""
    lines = list(_objects(text.split("\n")))[:-1]
    return tuple(Frame("note", str(value.get("type", "event")), line, None, None, 0.0) for line, value in lines)


def _objects(lines: Iterator[str] | Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in map(str.strip, lines):
        value = json_of(line) if line.startswith("{") else None
        if isinstance(value, dict):
            yield line, value
