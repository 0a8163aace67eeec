"""How does a record stand in a line of the store? And what is wrong with a line that holds none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.stores.text import MAX_CHARS, MAX_WORDS, count_words

_OF_THE_WRITING = {"schema_version", "created_at", "stamp_signature"}


@dataclass(frozen=True, slots=True)
class Skipped:
    """How many lines a reading passed over, by reason."""

    unreadable: int = 0
    """No record of a schema known here."""
    over_long: int = 0
    """Longer than a lesson may be; such a line was edited by hand, or stored under a larger limit."""
    unverified: int = 0
    """The stamp does not hold: the record was changed, or its pack is not in force in this version."""
    repeated: int = 0
    """An experience id that an earlier line bears; the earlier one counts."""


def encode(record: ExperienceRecord) -> str:
    """The line of a record, without its newline."""
    return record.model_dump_json()


def parse(line: bytes) -> ExperienceRecord | Literal["unreadable", "over_long"]:
    """The record of a line, or why there is none."""
    try:
        return ExperienceRecord.model_validate_json(line)
    except ValidationError:
        return "over_long" if _is_over_long(line) else "unreadable"


def text_in(line: bytes, name: str) -> str:
    """A text field of a line, also of one that holds no record; empty for none."""
    try:
        value = json.loads(line)[name]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return value if isinstance(value, str) else ""


def same_content(one: ExperienceRecord, other: ExperienceRecord) -> bool:
    """Whether two records say the same, whenever and by which version they were written."""
    return one.model_dump(exclude=_OF_THE_WRITING) == other.model_dump(exclude=_OF_THE_WRITING)


def _is_over_long(line: bytes) -> bool:
    summary = text_in(line, "summary32")
    return count_words(summary) > MAX_WORDS or len(summary) > MAX_CHARS
