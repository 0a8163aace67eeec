"""What separated the good attempts from the bad? The reflecting role, which reads the transcripts it is given, no more.

It looks for steps that say how a pitfall went, and names what the better attempts did and the worse did not. Mostly.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from tfgrpo.tasks.models.simulated.roles.useless import RAMBLING, USELESS
from tfgrpo.tasks.models.simulated.worlds.pitfalls.pitfall import Advice, Pitfall

RIGHT_SHARE = 0.85
"""Lessons that draw the conclusion the transcripts suggest."""
USELESS_SHARE = 0.10
"""Lessons that help nobody; the rest says the opposite of the truth."""
_TALKS_ANYWAY = 0.4
_RAMBLES = 0.02


class ShownAttempt(BaseModel):
    """One attempt as the reflecting role sees it."""

    model_config = ConfigDict(frozen=True)

    label: str = ""
    reward: float
    transcript: str


class ReflectionAsk(BaseModel):
    """What the reflecting role is asked."""

    model_config = ConfigDict(frozen=True)

    attempts: list[ShownAttempt] = Field(min_length=1)
    max_lessons: int = Field(default=2, ge=0)
    max_words: int = 32


class Contrast(NamedTuple):
    """A pitfall on which the attempts differ; ``right`` when those that avoided it fared better."""

    pitfall: Pitfall
    right: bool


def _shows(transcript: str, phrases: Sequence[str]) -> bool:
    return any(phrase in transcript for phrase in phrases)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def contrasts(pitfalls: Sequence[Pitfall], attempts: Sequence[ShownAttempt]) -> list[Contrast]:
    """The pitfalls that some attempts visibly avoided and others visibly hit, with different rewards."""
    read = [(" ".join(attempt.transcript.split()), attempt.reward) for attempt in attempts]
    found = []
    for pitfall in pitfalls:
        avoided = [reward for text, reward in read if _shows(text, pitfall.shown_avoided)]
        hit = [reward for text, reward in read if _shows(text, pitfall.shown_hit)]
        if avoided and hit and _mean(avoided) != _mean(hit):
            found.append(Contrast(pitfall, _mean(avoided) > _mean(hit)))
    return found


def _lesson(contrast: Contrast, rng: random.Random) -> Advice:
    point = rng.random()
    if RIGHT_SHARE <= point < RIGHT_SHARE + USELESS_SHARE:
        return rng.choice(USELESS)
    sound = contrast.right is (point < RIGHT_SHARE)
    return rng.choice(contrast.pitfall.good_advice if sound else contrast.pitfall.bad_advice)


def reflect(pitfalls: Sequence[Pitfall], ask: ReflectionAsk, rng: random.Random) -> dict[str, Any]:
    """Up to ``max_lessons`` lessons from the attempts shown."""
    found = contrasts(pitfalls, ask.attempts)
    rng.shuffle(found)
    lessons = [_lesson(contrast, rng) for contrast in found[: ask.max_lessons]]
    if not found and ask.max_lessons and rng.random() < _TALKS_ANYWAY:
        lessons = [rng.choice(USELESS)]
    return {"lessons": [{"polarity": lesson.polarity, "text": _with_rambling(lesson.text, rng)} for lesson in lessons]}


def _with_rambling(text: str, rng: random.Random) -> str:
    return f"{text} {RAMBLING}" if rng.random() < _RAMBLES else text
