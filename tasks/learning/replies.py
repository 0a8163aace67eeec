"""The questions to the learning model: schemas of their answers, and the strict reader of a reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tfgrpo.prompt_packs.models import TemplateRole
from tfgrpo.stores.experiences.record import Polarity
from tfgrpo.tasks.models.base import AnswerSchema
from tfgrpo.tasks.models.structured import complete_entries, parse_answer


class Answer(BaseModel):
    """Base of the answers: frozen, strict, no unknown keys."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


AnswerT = TypeVar("AnswerT", bound=Answer)


class LessonAnswer(Answer):
    """One lesson as the reflecting model words it."""

    polarity: Polarity
    text: str


class LessonsAnswer(Answer):
    """Answer of reflection on one group."""

    lessons: list[LessonAnswer]


class OperationAnswer(Answer):
    """One change to the library. Keys that do not apply may be empty or absent: a ``delete`` needs no text."""

    op: Literal["add", "modify", "merge", "delete", "keep"]
    targets: list[str] = []
    sources: list[str] = Field(default=[], alias="from")
    polarity: Literal["do", "avoid", ""] = ""
    text: str = ""


class OperationsAnswer(Answer):
    """Answer of curation of one batch."""

    operations: list[OperationAnswer]


class ShortenedAnswer(Answer):
    """A lesson in fewer words."""

    text: str


# Not generated from the classes above: request digests, and with them the keys of old journals, depend on every word.
def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _array(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_STRING = {"type": "string"}
_OPERATION = _object(
    op={"type": "string", "enum": ["add", "modify", "merge", "delete", "keep"]},
    targets=_array(_STRING),
    **{"from": _array(_STRING)},
    polarity={"type": "string", "enum": ["do", "avoid", ""]},
    text=_STRING,
)
_LESSON = _object(polarity={"type": "string", "enum": ["do", "avoid"]}, text=_STRING)

_ANY_OBJECT = {"type": "object"}


@dataclass(frozen=True, slots=True)
class Question(AnswerSchema, Generic[AnswerT]):
    """A kind of question to the learning model: schema and shape of its answer, and the template that instructs it."""

    template: TemplateRole
    shape: type[AnswerT]

    def read(self, text: str, *, cut: bool = False) -> AnswerT:
        """Read a reply strictly: keys that do not apply to an operation may be missing, unknown keys are errors.

        Of a list in a reply that was ``cut`` off at the token limit, the complete entries are read. Raises ``ValueError``
        whose text names each offending key, for the model to correct.
        """
        entries = complete_entries(text, next(iter(self.schema["properties"]))) if cut else None
        value = entries or parse_answer(text, AnswerSchema(self.name, _ANY_OBJECT))
        try:
            return self.shape.model_validate(value)
        except ValidationError as error:
            details = error.errors()[:5]
            problems = [f"{'.'.join(map(str, each['loc'])) or 'answer'}: {each['msg']}" for each in details]
            raise ValueError("; ".join(problems)) from None


LESSONS = Question("tfgrpo_lessons", _object(lessons=_array(_LESSON)), "reflect", LessonsAnswer)
OPERATIONS = Question("tfgrpo_operations", _object(operations=_array(_OPERATION)), "curate", OperationsAnswer)
SHORTENED = Question("tfgrpo_shortened", _object(text=_STRING), "shorten", ShortenedAnswer)
