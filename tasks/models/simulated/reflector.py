"""The reflecting role: say what separated attempts and what recurs, judge the lessons in force, condense one attempt.

It knows what the transcripts show, never which lesson is right.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, Field, ValidationError

from tfgrpo.stores.experiences.record import Polarity
from tfgrpo.tasks.models.simulated.worlds.data import Advice, Pitfall, advice_of, data_of
from tfgrpo.tasks.models.simulated.worlds.puzzle import World

USELESS: Final = tuple(advice_of(data_of("lessons")["useless"]))
RAMBLING: Final[str] = data_of("lessons")["rambling"]
RIGHT_SHARE = 0.85
"""Lessons that draw the conclusion that the transcripts suggest."""
USELESS_SHARE = 0.10
"""Lessons without effect; the rest state the opposite of the truth."""
MISJUDGED: Final = 0.05
"""Judgements that take helped for misled, or misled for helped: as many as lessons that state the opposite."""
_USELESS_WITHOUT_CONTRAST = 0.4
_RAMBLES = 0.02
_MOST_NAMED: Final = 3
_TAIL_CHARS: Final = 300
_DECIDED: Final = "SIMULATED: what decided was "
_NOT: Final = "no "
"""Before a pitfall that the better attempts hit."""
_RECURS: Final = 2
"""Groups in whose causes something has to be."""

Contrasts: TypeAlias = Sequence[tuple[Pitfall, bool]]
"""Pitfalls on which attempts differ, and whether those that avoided them fared better."""


class ShownAttempt(BaseModel, frozen=True):
    """One attempt in a reflection request."""

    label: str = ""
    reward: float
    transcript: str
    digest: str = ""
    """In place of what the transcript leaves out."""


class ReflectionAsk(BaseModel, frozen=True):
    """A request to say what separated attempts."""

    attempts: list[ShownAttempt] = Field(min_length=1)
    max_lessons: int = Field(ge=0)
    max_words: int = 32


class Cause(BaseModel, frozen=True):
    """Why the attempts of one group ended differently."""

    group: str
    cause: str


class RecurringAsk(BaseModel, frozen=True):
    """A request to say what recurs in the causes of a batch."""

    causes: list[Cause]
    max_lessons: int = Field(ge=0)


class LessonInForce(BaseModel, frozen=True):
    """A lesson that the attempts were given."""

    lesson: str
    polarity: Polarity
    text: str


class _Context(BaseModel):
    lessons_in_force: list[LessonInForce]


def reflect(
    world: World, ask: ReflectionAsk, rng: random.Random, system_text: str = "", *, misjudged: bool = False
) -> dict[str, Any]:
    """Return up to ``max_lessons`` lessons on what the better attempts shown did and the worse did not.

    From their transcripts alone: most lessons draw the conclusion that these suggest; some are useless, some are wrong.
    The answer also says what separates the attempts, and judges the lessons in force that the system text lists.
    ``misjudged``: the better attempts are taken for the worse.
    """
    differing = contrasts(world.pitfalls.values(), ask.attempts, misjudged=misjudged)
    shuffled = list(differing)
    rng.shuffle(shuffled)
    lessons = [_lesson(*contrast, rng) for contrast in shuffled[: ask.max_lessons]]
    if not differing and ask.max_lessons and rng.random() < _USELESS_WITHOUT_CONTRAST:
        lessons = [rng.choice(USELESS)]
    answer: dict[str, Any] = {"lessons": []}
    for lesson in lessons:
        rambling = f" {RAMBLING}" if rng.random() < _RAMBLES else ""
        answer["lessons"].append({"polarity": lesson.polarity, "text": lesson.text + rambling})
    return _judged(world, _lessons_in_force(system_text), differing, rng) | answer


def recurring(world: World, ask: RecurringAsk, rng: random.Random) -> dict[str, Any]:
    """Return up to ``max_lessons`` lessons on what the causes of at least two groups name, the most frequent first."""
    groups: dict[str, list[str]] = {}
    for each in ask.causes:
        for name in each.cause.removeprefix(_DECIDED).rstrip(".").split(", "):
            if each.group not in groups.setdefault(name, []):
                groups[name].append(each.group)
    lessons = []
    for name, labels in sorted(groups.items(), key=lambda one: (-len(one[1]), one[0])):
        pitfall = world.pitfalls.get(name.removeprefix(_NOT).replace(" ", "_"))
        if pitfall is not None and len(labels) >= _RECURS:
            lesson = _lesson(pitfall, not name.startswith(_NOT), rng)
            lessons.append({"groups": labels, "polarity": lesson.polarity, "text": lesson.text})
    return {"lessons": lessons[: ask.max_lessons]}


def contrasts(pitfalls: Iterable[Pitfall], attempts: Sequence[ShownAttempt], *, misjudged: bool = False) -> Contrasts:
    """Return the pitfalls that some attempts visibly avoided and others visibly hit, with different rewards."""
    texts = [(" ".join(f"{each.digest} {each.transcript}".split()), each.reward) for each in attempts]

    def rewards(phrases: Sequence[str]) -> list[float]:
        return [reward for text, reward in texts if any(phrase in text for phrase in phrases)]

    differing = []
    for pitfall in pitfalls:
        avoided, hit = rewards(pitfall.shown_avoided), rewards(pitfall.shown_hit)
        if avoided and hit and _mean(avoided) != _mean(hit):
            differing.append((pitfall, (_mean(avoided) > _mean(hit)) is not misjudged))
    return differing


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _lesson(pitfall: Pitfall, better: bool, rng: random.Random) -> Advice:
    point = rng.random()
    if RIGHT_SHARE <= point < RIGHT_SHARE + USELESS_SHARE:
        return rng.choice(USELESS)
    good = better is (point < RIGHT_SHARE)
    return rng.choice(pitfall.good_advice if good else pitfall.bad_advice)


def _lessons_in_force(system_text: str) -> list[LessonInForce]:
    """Return the lessons at the end of a system message."""
    listed = (line for line in system_text.splitlines() if line.startswith('{"lessons_in_force":'))
    with suppress(ValidationError):
        return _Context.model_validate_json(next(listed, "")).lessons_in_force
    return []


def _judged(world: World, lessons: Iterable[LessonInForce], differing: Contrasts, rng: random.Random) -> dict[str, Any]:
    """Return the first difference, its cause and the judgements.

    A lesson on a pitfall that separates the attempts helped if it points the same way, and misled otherwise; one on no
    pitfall at all was not used.
    """
    right: Mapping[str, bool] = {pitfall.name: better for pitfall, better in differing}
    named = ", ".join(name.replace("_", " ") for name in list(right)[:_MOST_NAMED])
    decided = ", ".join(
        ("" if better else _NOT) + name.replace("_", " ") for name, better in list(right.items())[:_MOST_NAMED]
    )
    judgements = []
    for lesson in lessons:
        stances = world.lexicon.stances(lesson.polarity, lesson.text)
        agrees = [(stance > 0) is right[name] for name, stance in stances.items() if name in right]
        if agrees:
            helped = all(agrees) is not (rng.random() < MISJUDGED)
            judgements.append({"lesson": lesson.lesson, "judgement": "helped" if helped else "misled"})
        elif not stances:
            judgements.append({"lesson": lesson.lesson, "judgement": "unused"})
    difference = f"they part at {named}." if named else "nothing shown separates them."
    return {
        "first_difference": f"SIMULATED: {difference}",
        "cause": f"{_DECIDED}{decided}." if decided else "",
        "judgements": judgements,
    }


def digest(pitfalls: Iterable[Pitfall], transcript: str) -> dict[str, Any]:
    """Return what an attempt shows of every pitfall, and its end."""
    text = " ".join(transcript.split())
    phrases = (phrase for pitfall in pitfalls for phrase in (*pitfall.shown_avoided, *pitfall.shown_hit))
    shown = [phrase for phrase in phrases if phrase in text]
    return {"digest": f"SIMULATED digest of {len(transcript)} characters. {'; '.join(shown)}. … {text[-_TAIL_CHARS:]}"}
