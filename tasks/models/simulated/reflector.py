"""The reflecting role from learning rules 4 on: name the first difference and its cause, judge the lessons in force.

It knows what the transcripts show, never which lesson is right.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from tfgrpo.stores.experiences.record import Polarity
from tfgrpo.stores.frozen_json import json_of
from tfgrpo.tasks.models.simulated.worlds.data import Pitfall
from tfgrpo.tasks.models.simulated.worlds.lexicon import Lexicon

MISJUDGED: Final = 0.05
"""Judgements that take helped for misled, or misled for helped: as many as lessons that state the opposite."""
_MOST_NAMED: Final = 3
_TAIL_CHARS: Final = 300


class LessonInForce(BaseModel):
    """A lesson that the attempts were given."""

    model_config = ConfigDict(frozen=True)

    lesson: str
    polarity: Polarity
    text: str


class _Context(BaseModel):
    lessons_in_force: list[LessonInForce]


def lessons_in_force(system_text: str) -> list[LessonInForce] | None:
    """Return the lessons at the end of a system message; None for a request of the older form, which has no such list."""
    for line in system_text.splitlines():
        if line.startswith('{"lessons_in_force":'):
            try:
                return _Context.model_validate(json_of(line)).lessons_in_force
            except ValidationError:
                return None
    return None


def judged(
    lexicon: Lexicon, lessons: Iterable[LessonInForce], differing: Sequence[tuple[Pitfall, bool]], rng: random.Random
) -> dict[str, Any]:
    """Return the first difference, its cause and the judgements.

    ``differing``: the pitfalls that separate the attempts, and whether those that avoided them fared better. A lesson on
    one of them helped if it points the same way, and misled otherwise; one on no pitfall at all was not used.
    """
    right = {pitfall.name: better for pitfall, better in differing}
    named = ", ".join(name.replace("_", " ") for name in list(right)[:_MOST_NAMED])
    judgements = []
    for lesson in lessons:
        stances = lexicon.stances(lesson.polarity, lesson.text)
        agrees = [(stance > 0) is right[name] for name, stance in stances.items() if name in right]
        if agrees:
            helped = all(agrees) is not (rng.random() < MISJUDGED)
            judgements.append({"lesson": lesson.lesson, "judgement": "helped" if helped else "misled"})
        elif not stances:
            judgements.append({"lesson": lesson.lesson, "judgement": "unused"})
    return {
        "first_difference": f"SIMULATED: they part at {named}."
        if named
        else "SIMULATED: nothing shown separates them.",
        "cause": f"SIMULATED: what decided was {named}." if named else "",
        "judgements": judgements,
    }


def digest(pitfalls: Iterable[Pitfall], transcript: str) -> dict[str, Any]:
    """Return what an attempt shows of every pitfall, and its end."""
    text = " ".join(transcript.split())
    phrases = (phrase for pitfall in pitfalls for phrase in (*pitfall.shown_avoided, *pitfall.shown_hit))
    shown = [phrase for phrase in phrases if phrase in text]
    return {"digest": f"SIMULATED digest of {len(transcript)} characters. {'; '.join(shown)}. … {text[-_TAIL_CHARS:]}"}
