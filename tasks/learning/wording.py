"""May this wording be stored? Safety screen and limits; too long a lesson is shortened by the model once, or refused.

A lesson is never cut: half a sentence of advice can say the opposite of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfgrpo.prompt_packs.safety import Rejection, ScreenedLesson, screen_lesson
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.tasks.learning.ask import Question, Spend, ask
from tfgrpo.tasks.learning.replies import SHORTENED, ShortenedAnswer
from tfgrpo.tasks.runtime.runtime import Runtime

_MOST_TO_SHORTEN = 4_000


@dataclass(frozen=True, slots=True)
class Wording:
    """A text that may be stored, or the reason why there is none."""

    text: str
    reason: str = ""
    """Empty when accepted."""

    @property
    def accepted(self) -> bool:
        """Whether the text may be stored."""
        return not self.reason


async def accept_wording(text: str, *, answers: Sequence[str], key: CallKey, runtime: Runtime, spend: Spend) -> Wording:
    """Screen a lesson; ``key`` is the call that shortening takes if it comes to that."""
    verdict = _screen(text, answers, runtime)
    if isinstance(verdict, Rejection) and verdict.rule == "long":
        shorter = await _shortened(text, key, runtime, spend)
        if shorter is None:
            return _refused(text, verdict, runtime, "; it could not be shortened")
        verdict = _screen(shorter, answers, runtime)
        if isinstance(verdict, Rejection):
            return _refused(text, verdict, runtime, ", after shortening")
    return _refused(text, verdict, runtime) if isinstance(verdict, Rejection) else Wording(verdict.text)


def _refused(text: str, verdict: Rejection, runtime: Runtime, remark: str = "") -> Wording:
    runtime.telemetry.record_guardrail(rule=f"lesson-{verdict.rule}")
    return Wording(text, verdict.reason + remark)


def _screen(text: str, answers: Sequence[str], runtime: Runtime) -> ScreenedLesson | Rejection:
    return screen_lesson(text, answers=answers, max_words=runtime.max_words, max_chars=runtime.max_chars)


async def _shortened(text: str, key: CallKey, runtime: Runtime, spend: Spend) -> str | None:
    payload = {"text": text[:_MOST_TO_SHORTEN], "max_words": runtime.max_words, "max_chars": runtime.max_chars}
    # A failure to shorten costs one lesson; it is no failure of the step.
    aside = Spend()
    answer = await ask(Question(key, "shorten", payload, SHORTENED, ShortenedAnswer), runtime, aside)
    spend.absorb(aside)
    return answer.text if answer is not None else None
