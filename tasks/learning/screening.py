"""Screen the text of a lesson; one that is too long is shortened by the model once.

A lesson is never cut: half a sentence of advice can say the opposite of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tfgrpo.prompt_packs.safety import Rejection, ScreenedLesson, screen_lesson
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.tasks.learning.ask import Question, Spend, ask
from tfgrpo.tasks.learning.replies import SHORTENED, ShortenedAnswer
from tfgrpo.tasks.runtime.runtime import Runtime

_MAX_CHARS_TO_SHORTEN = 4_000


async def screen_or_shorten(
    text: str, *, answers: Sequence[str], key: CallKey, runtime: Runtime, spend: Spend
) -> ScreenedLesson | Rejection:
    """Return the lesson as it may be stored, or why it may not; ``key`` is that of the call that shortens."""
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
        runtime.telemetry.record_guardrail(rule=f"lesson-{screened.rule}")
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
