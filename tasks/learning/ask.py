"""Ask the learning model one structured question: template and JSON out, checked JSON back, repaired when invalid.

Counts what the asking cost; what the answers mean is for reflection and curation, which also screen lessons here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic

from tfgrpo.prompt_packs.models import TEMPLATE_FIELDS, TemplateRole, render_template
from tfgrpo.prompt_packs.safety import Rejection, ScreenedLesson, screen_lesson
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.stores.errors import BudgetRefused, ModelCallError, RepairExhausted
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.stores.seeds import derive_seed
from tfgrpo.stores.usage import Usage
from tfgrpo.tasks.actors.recorded import model_key
from tfgrpo.tasks.learning.replies import SHORTENED, AnswerT, ShortenedAnswer, read_answer
from tfgrpo.tasks.models.base import AnswerSchema, ChatReply, ChatRequest, Message
from tfgrpo.tasks.models.structured import repair
from tfgrpo.tasks.runtime.runtime import FATAL, Runtime
from tfgrpo.tasks.shapes import ReflectionFailure

TEMPERATURE = 0.3
"""Of every learning call: some freedom of wording, little of judgement."""


@dataclass(frozen=True, slots=True)
class Question(Generic[AnswerT]):
    """One structured question to the learning model."""

    key: CallKey
    template: TemplateRole
    """The pack's template that instructs the model."""
    payload: Mapping[str, Any]
    """Sent as one JSON object in the user message."""
    schema: AnswerSchema
    shape: type[AnswerT]


@dataclass(slots=True)
class Spend:
    """What a learning step has used so far, and what stopped it."""

    calls: list[Usage] = field(default_factory=list)
    """Usage of each answered call."""
    failure: ReflectionFailure | None = None
    broken: list[ReflectionFailure] = field(default_factory=list)
    """Calls without an answer, with the key under which that can be recorded."""
    budget_refused: str | None = None
    fatal: str | None = None

    @property
    def usage(self) -> Usage:
        """Return the sum over all answered calls."""
        return Usage.total(self.calls)

    def absorb(self, other: Spend) -> None:
        """Count what a subordinate question used, without its ``failure``."""
        self.calls.extend(other.calls)
        self.broken.extend(other.broken)
        self.budget_refused = self.budget_refused or other.budget_refused
        self.fatal = self.fatal or other.fatal


async def ask(question: Question[AnswerT], runtime: Runtime, spend: Spend) -> AnswerT | None:
    """Return the answer, or None with a failure, a refused budget or the end of the run noted in ``spend``."""
    call_keys: list[str] = []
    try:
        return await _ask(question, runtime, spend, call_keys)
    except BudgetRefused as error:
        spend.budget_refused = str(error)
    except FATAL as error:
        spend.fatal = f"{type(error).__name__}: {error}"
    except ModelCallError as error:
        spend.failure = ReflectionFailure(type(error).__name__, str(error), call_keys[-1])
        spend.broken.append(spend.failure)
    except RepairExhausted as error:
        spend.failure = ReflectionFailure(type(error).__name__, str(error))
    return None


async def _ask(question: Question[AnswerT], runtime: Runtime, spend: Spend, call_keys: list[str]) -> AnswerT:
    settings = runtime.context.settings
    run_seed = settings.tfgrpo.seed_of("train")
    finish_reason = ""

    async def once(messages: tuple[Message, ...]) -> ChatReply:
        nonlocal finish_reason
        key = replace(question.key, attempt=question.key.attempt + len(call_keys))
        group = key.group
        request = ChatRequest(
            model=runtime.context.learning_model,
            messages=_with_repair_advice(messages, runtime) if call_keys else messages,
            temperature=TEMPERATURE,
            max_tokens=settings.model.learner_max_tokens,
            seed=derive_seed(run_seed, key.role, group.epoch, group.batch, group.draw_id, key.turn, key.attempt),
            answer_schema=question.schema,
        )
        call_keys.append(model_key(key, request))
        reply = await runtime.model.complete(request, key)
        spend.calls.append(reply.used)
        finish_reason = reply.finish_reason
        return reply

    def read(text: str) -> AnswerT:
        cut = finish_reason == "length" and runtime.context.rules > 1
        return read_answer(question.shape, question.schema, text, cut=cut)

    opening = (
        Message("system", _instruction(runtime, question.template, question.payload)),
        Message("user", canonical_json(question.payload)),
    )
    return await repair(read, once, opening, question.schema, settings.tfgrpo.max_repairs + 1)


def _with_repair_advice(messages: tuple[Message, ...], runtime: Runtime) -> tuple[Message, ...]:
    """Endpoints differ on a second system message, so the advice joins the first one."""
    first, *rest = messages
    return (replace(first, content=f"{first.content}\n\n{_instruction(runtime, 'repair', {})}"), *rest)


def _instruction(runtime: Runtime, role: TemplateRole, payload: Mapping[str, Any]) -> str:
    """A template of the pack with the limits in force, which the payload states too."""
    values = {"max_chars": runtime.max_chars, "max_words": runtime.max_words, **payload}
    return render_template(runtime.pack.templates[role], **{name: values[name] for name in TEMPLATE_FIELDS[role]})


_MAX_CHARS_TO_SHORTEN = 4_000


async def screen_or_shorten(
    text: str, *, answers: Sequence[str], key: CallKey, runtime: Runtime, spend: Spend
) -> ScreenedLesson | Rejection:
    """Return the lesson as it may be stored, or why it may not; ``key`` is that of the call that shortens.

    A long lesson is shortened by the model once, never cut: half a sentence of advice can say the opposite of the whole.
    """
    screened = _screen(text, answers, runtime)
    if isinstance(screened, Rejection) and screened.rule == "long":
        shorter = await _shortened(text, key, runtime, spend)
        if shorter is None:
            screened = replace(screened, reason=f"{screened.reason}; it could not be shortened")
        else:
            screened = _screen(shorter, answers, runtime)
            if isinstance(screened, Rejection):
                screened = replace(screened, reason=f"{screened.reason}, after shortening")
    if isinstance(screened, Rejection):
        runtime.telemetry.record("guardrail", rule=f"lesson-{screened.rule}")
    return screened


def _screen(text: str, answers: Sequence[str], runtime: Runtime) -> ScreenedLesson | Rejection:
    return screen_lesson(text, answers=answers, max_words=runtime.max_words, max_chars=runtime.max_chars)


async def _shortened(text: str, key: CallKey, runtime: Runtime, spend: Spend) -> str | None:
    payload = {"text": text[:_MAX_CHARS_TO_SHORTEN], "max_words": runtime.max_words, "max_chars": runtime.max_chars}
    # A failure to shorten costs one lesson; it is no failure of the step.
    own = Spend()
    answer = await ask(Question(key, "shorten", payload, SHORTENED, ShortenedAnswer), runtime, own)
    spend.absorb(own)
    return answer.text if answer is not None else None
