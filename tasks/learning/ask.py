"""Ask the learning model one structured question: template and JSON out, checked JSON back, repaired when invalid.

No syntax is mended here: no trailing comma is dropped, no missing brace guessed; the error goes back to the model. What the
answers mean is for reflection and curation, which also screen lessons here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Generic, Literal, TypeVar, get_args, get_origin

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from tfgrpo.prompt_packs.models import TEMPLATE_FIELDS, TemplateRole, render_template
from tfgrpo.prompt_packs.safety import Prompts, Rejection, screen_lesson
from tfgrpo.rewarders.gt import read_column
from tfgrpo.rewarders.judge.model import corrected
from tfgrpo.rewarders.text.answers import fenced_blocks
from tfgrpo.rewarders.text.spelling import plain
from tfgrpo.stores.errors import BudgetRefused, ModelCallError, RepairExhausted, TfgrpoError
from tfgrpo.stores.experiences.store import MAX_CAUSE_WORDS, Polarity
from tfgrpo.stores.json_values import UNIQUE, canonical_json, derive_seed, load_json
from tfgrpo.stores.ledger import Usage
from tfgrpo.stores.outcomes import Failed
from tfgrpo.stores.packaged import packaged_yaml
from tfgrpo.stores.runs import CallKey
from tfgrpo.stores.text import MAX_CHARS, count_words
from tfgrpo.tasks.models.base import AnswerSchema, ChatReply, ChatRequest, Message
from tfgrpo.tasks.runtime.runtime import FATAL, Runtime, model_key

_OPENING = re.compile(r"[ \t]*(```)[^\n`]*")
_CLOSING = re.compile(r"[ \t]*(```)[ \t]*")
# Reasoning that the server left in the answer.
_REASONING = re.compile(r"\A<think>.*?</think>", re.DOTALL)
_ENTRY = re.compile(r"\s*,?\s*\{")
_MAX_REASON = 300
# Of every learning call: some freedom of wording, little of judgement.
TEMPERATURE = 0.3
# Ends the reason of a lesson that was refused in its shorter wording.
AFTER_SHORTENING: Final = ", after shortening"
_MAX_CHARS_TO_SHORTEN = 4_000
_NEGATED: Final = re.compile(r"\W*(?:do\s+not|don['\u2019]?t|never|avoid|refrain\s+from)\b", re.IGNORECASE)
# Distinct answers that may be labels: there are sets of 150 intents.
_MOST_SPELLINGS: Final = 200
# Items that a label has at least: with fewer, to name it gives them away.
_SHARED: Final = 3
NEGATED: Final = "an avoid text names the mistake itself, and this one begins with a negation"


def parse_answer(text: str, schema: Mapping[str, Any]) -> Any:
    """Return the JSON value of a reply, bare or in one fenced block, valid under the JSON schema; ``null`` is never valid.

    Raises ``ValueError`` with a reason that the model can act on.
    """
    text = _without_reasoning(text)
    if not text.startswith(("{", "[")):
        blocks = [text[slice(*each)] for each in fenced_blocks(text, _OPENING, _CLOSING)]
        if len(blocks) > 1:
            raise ValueError(f"the answer holds {len(blocks)} fenced blocks, one JSON value was asked for")
        text = blocks[0] if blocks else text
    try:
        value = load_json(text, UNIQUE)
    except ValueError as error:
        raise ValueError(f"the answer is no JSON: {error}" if text.strip() else "the answer is empty") from None
    if value is None:
        raise ValueError("the answer is null")
    fault = best_match(Draft202012Validator(schema).iter_errors(value))
    if fault is not None:
        raise ValueError(f"at {fault.json_path}: {fault.message}"[:_MAX_REASON])
    return value


def complete_entries(text: str, name: str) -> dict[str, Any] | None:
    """Return the object ``{..., name: [...]}`` of a text that was cut within that list of objects, with complete ones only.

    None when there is no such list or no complete entry.
    """
    stripped = _without_reasoning(text)
    opening = re.match(rf'(?:```[^\n]*\n)?\s*(\{{.*?)"{re.escape(name)}"\s*:\s*\[', stripped, re.DOTALL)
    if opening is None:
        return None
    entries: list[Any] = []
    at = opening.end()
    while (entry := _ENTRY.match(stripped, at)) is not None:
        try:
            value, at = UNIQUE.raw_decode(stripped, entry.end() - 1)
        except (ValueError, RecursionError):
            break
        entries.append(value)
    try:
        before: dict[str, Any] = UNIQUE.decode(f'{opening[1]}"{name}": null}}')
    except (ValueError, RecursionError):
        return None
    return before | {name: entries} if entries else None


def _without_reasoning(text: str) -> str:
    return _REASONING.sub("", text.strip().lstrip("\ufeff")).strip()


class Answer(BaseModel):
    """Base of the answers: frozen and strict. Unknown keys are ignored: models like to add remarks."""

    model_config = ConfigDict(frozen=True, strict=True)


AnswerT = TypeVar("AnswerT", bound=Answer)


class LessonAnswer(Answer):
    """One lesson as the reflecting model words it."""

    polarity: Polarity
    text: str


class JudgementAnswer(Answer):
    """What a lesson in the prompts, by its label, did to the attempts."""

    lesson: str
    judgement: Literal["helped", "misled", "unused"]


class ReflectionAnswer(Answer):
    """Answer of reflection on one contrast."""

    first_difference: str
    cause: str
    judgements: list[JudgementAnswer]
    lessons: list[LessonAnswer]

    @field_validator("first_difference", "cause")
    @classmethod
    def _is_short(cls, value: str) -> str:
        if (words := count_words(value)) > MAX_CAUSE_WORDS:
            raise ValueError(f"{words} words; at most {MAX_CAUSE_WORDS}")
        return value

    @field_validator("judgements")
    @classmethod
    def _name_each_lesson_once(cls, value: list[JudgementAnswer], info: ValidationInfo) -> list[JudgementAnswer]:
        labels = [each.lesson for each in value]
        unknown = [label for label in labels if label not in (info.context or ())]
        if unknown or len(set(labels)) < len(labels):
            raise ValueError(f"no lesson in force is {unknown[0][:80]!r}" if unknown else "a lesson is judged twice")
        return value


class RecurringLesson(Answer):
    """One lesson that the causes of several groups call for, which are named by their labels."""

    groups: list[str]
    polarity: Polarity
    text: str


class RecurringAnswer(Answer):
    """Answer to what recurs in the causes of a batch."""

    lessons: list[RecurringLesson]


class ClassAnswer(Answer):
    """What becomes of some proposals, or of known lessons that say the same. Keys that do not apply may be absent."""

    class_: Literal["confirms", "contradicts", "new", "useless", "merge"] = Field(alias="class")
    proposals: list[str] = []
    targets: list[str] = []
    polarity: Literal["do", "avoid", ""] = ""
    text: str = ""


class CurationAnswer(Answer):
    """Answer of curation of one batch."""

    answers: list[ClassAnswer]


class SecondAnswer(Answer):
    """Answer of the second reading of a batch's new lessons, by their labels."""

    refused: list[str]


class ShortenedAnswer(Answer):
    """A lesson in fewer words."""

    text: str


class DigestAnswer(Answer):
    """The steps of a long attempt in fewer words."""

    digest: str


def _schema_of(shape: Any) -> dict[str, Any]:
    """Return the JSON schema of a shape: strict endpoints want every key required and no other, which pydantic's is not."""
    if shape is str:
        return {"type": "string"}
    if get_origin(shape) is Literal:
        return {"type": "string", "enum": list(get_args(shape))}
    if get_origin(shape) is list:
        return {"type": "array", "items": _schema_of(get_args(shape)[0])}
    fields: dict[str, FieldInfo] = shape.model_fields
    properties = {field.alias or name: _schema_of(field.annotation) for name, field in fields.items()}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class Question(AnswerSchema, Generic[AnswerT]):
    """A kind of question to the learning model: schema and shape of its answer, and the template that instructs it."""

    template: TemplateRole
    shape: type[AnswerT]
    instruction: str = ""
    """In place of the template."""
    labels: tuple[str, ...] = ()
    """What the answer may name, where the shape checks it."""

    def read(self, text: str, *, cut: bool = False) -> AnswerT:
        """Read a reply; of the last list in one that was ``cut`` off at the token limit, the complete entries.

        Raises ``ValueError`` whose text names each missing or wrong key, for the model to correct.
        """
        entries = complete_entries(text, list(self.schema["properties"])[-1]) if cut else None
        value = entries or parse_answer(text, {"type": "object"})
        try:
            return self.shape.model_validate(value, context=self.labels)
        except ValidationError as error:
            details = error.errors()[:5]
            problems = [f"{'.'.join(map(str, each['loc'])) or 'answer'}: {each['msg']}" for each in details]
            raise ValueError("; ".join(problems)) from None


def _question(name: str, shape: type[AnswerT], template: TemplateRole = "reflect", instruction: str = "") -> Question[AnswerT]:
    return Question(f"tfgrpo_{name}", _schema_of(shape), template, shape, instruction)


_INSTRUCTIONS: Final[Mapping[str, str]] = packaged_yaml(__file__, "questions.yaml")
REFLECTION = _question("reflection", ReflectionAnswer)
CURATION = _question("curation", CurationAnswer, "curate")
SHORTENED = _question("shortened", ShortenedAnswer, "shorten")
DIGEST = _question("digest", DigestAnswer, instruction=_INSTRUCTIONS["digest"])
RECURRING = _question("recurring", RecurringAnswer, instruction=_INSTRUCTIONS["recurring"])
SECOND = _question("second_reading", SecondAnswer, "curate", _INSTRUCTIONS["second"])


@dataclass(slots=True)
class Spend:
    """What a learning step has used so far, and what stopped it."""

    calls: list[Usage] = field(default_factory=list)
    failure: Failed | None = None
    broken: list[Failed] = field(default_factory=list)
    """Calls without an answer, with the key under which that can be recorded."""
    budget_refused: str | None = None
    fatal: str | None = None

    @property
    def stopped(self) -> bool:
        """Whether no further call can be answered."""
        return self.budget_refused is not None or self.fatal is not None

    def note(self, error: TfgrpoError, call_key: str | None = None) -> None:
        """Note what stopped the step, or what ended a call, with its key if that is to be recorded."""
        if isinstance(error, BudgetRefused):
            self.budget_refused = str(error)
        elif isinstance(error, FATAL):
            self.fatal = f"{type(error).__name__}: {error}"
        else:
            self.failure = Failed(type(error).__name__, str(error), call_key)
            self.broken += [self.failure] if call_key else []

    @property
    def usage(self) -> Usage:
        """Return the sum over all answered calls."""
        return Usage.total(self.calls)


async def ask(
    question: Question[AnswerT],
    key: CallKey,
    payload: Mapping[str, Any],
    runtime: Runtime,
    spend: Spend,
    context: Mapping[str, Any] | None = None,
) -> AnswerT | None:
    """Return the answer, or None with a failure, a refused budget or the end of the run noted in ``spend``.

    A rejected reply is sent back with the reason and the schema. ``payload`` is sent as one JSON object in the user message,
    ``context`` as one at the end of the system message: what many questions have in common, so that providers can cache it.
    """
    instruction = question.instruction or _instruction(runtime, question.template, payload)
    instruction += "" if context is None else f"\n\n{canonical_json(context)}"
    call_keys: list[str] = []
    replies: list[ChatReply] = []

    async def fix(rejected: Sequence[tuple[str, str]]) -> str:
        attempt = replace(key, attempt=key.attempt + len(rejected))
        # Endpoints differ on a second system message, so the advice joins the first one.
        advice = f"\n\n{_instruction(runtime, 'repair', {})}" if rejected else ""
        messages = [Message("system", f"{instruction}{advice}"), Message("user", canonical_json(payload))]
        for text, reason in rejected:
            complaint = canonical_json({"error": reason, "schema": question.schema})
            messages += [Message("assistant", text), Message("user", complaint)]
        group, night_seed, models = key.group, runtime.context.settings.tfgrpo.night_seed, runtime.context.models
        request = ChatRequest(
            model=models.reflection_name,
            messages=tuple(messages),
            temperature=TEMPERATURE,
            max_tokens=models.roles["reflection"].max_tokens,
            seed=derive_seed(night_seed, key.role, group.epoch, group.batch, group.draw_id, key.turn, attempt.attempt),
            answer_schema=question,
        )
        call_keys.append(model_key(attempt, request))
        replies.append(await runtime.model.complete(request, attempt))
        spend.calls.append(replies[-1].used)
        return replies[-1].message.content or ""

    def read(text: str) -> AnswerT:
        cut = replies[-1].finish_reason == "length"
        try:
            answer = question.read(text, cut=cut)
        except ValueError as error:
            raise ValueError(f"{'the reply was cut off at the token limit; ' if cut else ''}{error}"[:_MAX_REASON]) from error
        lessons: Sequence[LessonAnswer | RecurringLesson] = getattr(answer, "lessons", ())
        negated = [number for number, each in enumerate(lessons) if is_negated(each.polarity, each.text)]
        # Of a repaired answer the other lessons count all the same.
        if len(replies) == 1 and negated:
            raise ValueError(f"lessons.{negated[0]}.text: {NEGATED}")
        return answer

    try:
        return await corrected(read, fix, runtime.context.settings.tfgrpo.MAX_REPAIRS + 1, question.name)
    except RepairExhausted as error:
        spend.note(error)
    except (BudgetRefused, *FATAL, ModelCallError) as error:
        spend.note(error, call_keys[-1])
    return None


def is_negated(polarity: str, text: str) -> bool:
    """Return whether an *avoid* text starts with a negation: read after "Avoid:", it says the opposite."""
    return polarity == "avoid" and _NEGATED.match(text) is not None


def _instruction(runtime: Runtime, role: TemplateRole, payload: Mapping[str, Any]) -> str:
    values = {"max_chars": MAX_CHARS, "max_words": runtime.pack.max_words, **payload}
    return render_template(runtime.pack.templates[role], **{name: values[name] for name in TEMPLATE_FIELDS[role]})


def shared_labels(answers: Iterable[str]) -> frozenset[str]:
    """Return, in plain spelling, the labels among the reference answers of all items that several items share."""
    counts, shared = Counter(answers), Counter[str]()
    # Labels are few, and to read a hundred thousand references takes seconds: as many of each tell the same.
    few = {answer: min(count, _MOST_SPELLINGS) for answer, count in counts.items() if len(counts) <= _MOST_SPELLINGS}
    for answer, count in few.items():
        shared[plain(answer)] += count
    labels = map(plain, read_column([*Counter(few).elements()], _MOST_SPELLINGS).labels)
    return frozenset(label for label in labels if shared[label] >= _SHARED)


async def screen_or_shorten(
    text: str,
    *,
    polarity: Polarity,
    answers: Sequence[str],
    prompts: Prompts | None = None,
    key: CallKey,
    runtime: Runtime,
    spend: Spend,
) -> str | Rejection:
    """Return the lesson as it may be stored, or why it may not; ``key`` is that of the call that shortens."""
    max_words = runtime.pack.max_words
    own = [answer for answer in answers if plain(answer) not in runtime.context.labels]
    screen = partial(screen_lesson, answers=own, prompts=prompts, max_words=max_words)
    screened = screen(text)
    if is_negated(polarity, text):
        screened = Rejection(NEGATED, "negated")
    # By the model and once, never by cutting: half a sentence of advice can say the opposite of the whole.
    if isinstance(screened, Rejection) and screened.rule == "long":
        payload = {"text": text[:_MAX_CHARS_TO_SHORTEN], "max_words": max_words, "max_chars": MAX_CHARS}
        failure = spend.failure
        shorter = await ask(SHORTENED, key, payload, runtime, spend)
        spend.failure = failure  # a failure to shorten costs one lesson; it is no failure of the step
        if shorter is None:
            screened = replace(screened, reason=f"{screened.reason}; it could not be shortened")
        else:
            screened = screen(shorter.text)
            if isinstance(screened, Rejection):
                screened = replace(screened, reason=f"{screened.reason}{AFTER_SHORTENING}")
    if isinstance(screened, Rejection):
        runtime.telemetry.record("guardrail", rule=f"lesson-{screened.rule}")
    return screened
