"""What shape must the learning model's answers have? Three JSON schemas and their strict readers.

It reads one reply into typed data or says in a sentence what is wrong with it; asking again is ``tfgrpo.tasks.learning.ask``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tfgrpo.stores.experiences.record import Polarity
from tfgrpo.tasks.models.base import AnswerSchema
from tfgrpo.tasks.models.structured import complete_entries, parse_answer

OperationName: TypeAlias = Literal["add", "modify", "merge", "delete", "keep"]


class Answer(BaseModel):
    """Base of the answers: frozen, strict, no unknown keys."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


AnswerT = TypeVar("AnswerT", bound=Answer)


class LessonAnswer(Answer):
    """One lesson as the reflecting model words it."""

    polarity: Polarity
    text: str


class LessonsAnswer(Answer):
    """What reflection on one group brings."""

    lessons: list[LessonAnswer]


class OperationAnswer(Answer):
    """One change to the library. Keys that do not apply may be empty or absent: a ``delete`` needs no text."""

    op: OperationName
    targets: list[str] = []
    sources: list[str] = Field(default=[], alias="from")
    polarity: Literal["do", "avoid", ""] = ""
    text: str = ""


class OperationsAnswer(Answer):
    """What curation of one batch brings."""

    operations: list[OperationAnswer]


class ShortenedAnswer(Answer):
    """A lesson in fewer words."""

    text: str


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _listing(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    return _object({name: {"type": "array", "items": dict(entry)}})


_STRING = {"type": "string"}
_LABELS = {"type": "array", "items": _STRING}
_POLARITY = {"type": "string", "enum": ["do", "avoid"]}
_OPERATION = _object(
    {
        "op": {"type": "string", "enum": ["add", "modify", "merge", "delete", "keep"]},
        "targets": _LABELS,
        "from": _LABELS,
        "polarity": {"type": "string", "enum": ["do", "avoid", ""]},
        "text": _STRING,
    }
)

LESSONS = AnswerSchema("tfgrpo_lessons", _listing("lessons", _object({"polarity": _POLARITY, "text": _STRING})))
OPERATIONS = AnswerSchema("tfgrpo_operations", _listing("operations", _OPERATION))
SHORTENED = AnswerSchema("tfgrpo_shortened", _object({"text": _STRING}))


_ANY_OBJECT = {"type": "object"}


def read_answer(shape: type[AnswerT], schema: AnswerSchema, text: str, *, cut: bool = False) -> AnswerT:
    """Read a reply strictly. Keys that do not apply to an operation may be missing; nothing may be added.

    Of a list in a reply that was ``cut`` off at the token limit, the complete entries are read. Raises ``ValueError``
    whose text names each offending key, fit to be sent back to the model.
    """
    entries = complete_entries(text, next(iter(schema.schema["properties"]))) if cut else None
    value = entries or parse_answer(text, AnswerSchema(schema.name, _ANY_OBJECT))
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        found = [f"{'.'.join(map(str, part['loc'])) or 'answer'}: {part['msg']}" for part in error.errors()[:5]]
        raise ValueError("; ".join(found)) from None
