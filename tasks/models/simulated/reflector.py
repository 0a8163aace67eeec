"""The reflecting role: name what the better attempts did and the worse did not, from their transcripts alone.

It mostly draws the conclusion that the transcripts suggest; sometimes its lesson is useless, sometimes wrong.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from tfgrpo.tasks.models.simulated.worlds import Advice, Pitfall

RIGHT_SHARE = 0.85
"""Lessons that draw the conclusion that the transcripts suggest."""
USELESS_SHARE = 0.10
"""Lessons without effect; the rest state the opposite of the truth."""
_USELESS_WITHOUT_CONTRAST = 0.4
_RAMBLES = 0.02
USELESS: Final = (
    Advice("do", "Read the question slowly, and think before writing."),
    Advice("do", "Be careful and check the work twice."),
    Advice("do", "Lay the solution out neatly so that it is easy to follow."),
    Advice("do", "Use clear language and a friendly tone."),
    Advice("do", "Explain the approach in a few words at the beginning."),
    Advice("do", "Stay calm with long texts."),
    Advice("avoid", "Hasty work under time pressure."),
    Advice("avoid", "Messy layout that hides the reasoning."),
)
RAMBLING: Final = (
    "It also seems worth saying that whoever works on tasks of this kind will, now and again, be well advised to stop "
    "for a moment, look back over everything that has been written so far, and only then go on with whatever comes "
    "next in the plan."
)
"""Follows a few lessons and makes them too long."""


class ShownAttempt(BaseModel):
    """One attempt in a reflection request."""

    model_config = ConfigDict(frozen=True)

    label: str = ""
    reward: float
    transcript: str


class ReflectionAsk(BaseModel):
    """A reflection request."""

    model_config = ConfigDict(frozen=True)

    attempts: list[ShownAttempt] = Field(min_length=1)
    max_lessons: int = Field(default=2, ge=0)
    max_words: int = 32


class Contrast(NamedTuple):
    """A pitfall on which the attempts differ; ``right`` when those that avoided it fared better."""

    pitfall: Pitfall
    right: bool


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def contrasts(pitfalls: Sequence[Pitfall], attempts: Sequence[ShownAttempt]) -> list[Contrast]:
    """Return the pitfalls that some attempts visibly avoided and others visibly hit, with different rewards."""
    texts = [(" ".join(attempt.transcript.split()), attempt.reward) for attempt in attempts]

    def rewards(phrases: Sequence[str]) -> list[float]:
        return [reward for text, reward in texts if any(phrase in text for phrase in phrases)]

    differing = []
    for pitfall in pitfalls:
        avoided, hit = rewards(pitfall.shown_avoided), rewards(pitfall.shown_hit)
        if avoided and hit and _mean(avoided) != _mean(hit):
            differing.append(Contrast(pitfall, _mean(avoided) > _mean(hit)))
    return differing


def _lesson(contrast: Contrast, rng: random.Random) -> Advice:
    point = rng.random()
    if RIGHT_SHARE <= point < RIGHT_SHARE + USELESS_SHARE:
        return rng.choice(USELESS)
    good = contrast.right is (point < RIGHT_SHARE)
    return rng.choice(contrast.pitfall.good_advice if good else contrast.pitfall.bad_advice)


def reflect(pitfalls: Sequence[Pitfall], ask: ReflectionAsk, rng: random.Random) -> dict[str, Any]:
    """Return up to ``max_lessons`` lessons from the attempts shown."""
    differing = contrasts(pitfalls, ask.attempts)
    rng.shuffle(differing)
    lessons = [_lesson(contrast, rng) for contrast in differing[: ask.max_lessons]]
    if not differing and ask.max_lessons and rng.random() < _USELESS_WITHOUT_CONTRAST:
        lessons = [rng.choice(USELESS)]

    def rambling(text: str) -> str:
        return f"{text} {RAMBLING}" if rng.random() < _RAMBLES else text

    return {"lessons": [{"polarity": lesson.polarity, "text": rambling(lesson.text)} for lesson in lessons]}
