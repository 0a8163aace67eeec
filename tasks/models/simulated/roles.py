"""Recognise the learning or judging role that a request addresses by the shape of its JSON question, and answer it.

A repair is recognised by the dialogue: the first message with such a question is answered again. The roles go by what
transcripts and texts show and by how many groups speak for a lesson; they do not know which advice is right. Mostly right,
they err as often as the constants say.
"""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from tfgrpo.stores.experiences.store import Polarity
from tfgrpo.stores.json_values import json_of, mapping_of
from tfgrpo.stores.text import count_words
from tfgrpo.tasks.models.simulated.protocol import ChatBody
from tfgrpo.tasks.models.simulated.puzzle import WORDS, Advice, Pitfall, Stance, World, advice_of

RIGHT_SHARE: Final = 0.85
"""Lessons that draw the conclusion that the transcripts suggest."""
USELESS_SHARE: Final = 0.10
"""Lessons without effect; the rest state the opposite of the truth."""
_USELESS_WITHOUT_CONTRAST: Final = 0.4
_RAMBLES: Final = 0.02
_MISJUDGED: Final = 0.05
"""Judgements that take helped for misled, or misled for helped: as many as lessons that state the opposite."""
_MOST_NAMED: Final = 3
_RECURS: Final = 2
"""Groups in whose causes something has to be."""
_TAIL_CHARS: Final = 300
_DECIDED: Final = "SIMULATED: what decided was "
_NOT: Final = "no "
"""Before a pitfall that the better attempts hit."""

USELESS_ACCEPTED: Final = 0.15
"""Useless proposals that are taken for new lessons."""
WRONG_WAY_ROUND: Final = 0.03
"""Subjects on which both sides are confused."""
INVALID: Final = 0.03
"""Curations with an entry that cannot be carried out."""

ERROR_SHARE: Final = 0.08
"""Judgements that take right for wrong, or wrong for right."""
RIGHT_MEAN: Final = 0.85
WRONG_MEAN: Final = 0.25
NOISE: Final = 0.12
"""Standard deviation of a score."""
FIRST_BONUS: Final = 0.08
"""Advantage of the output shown first."""
TIE_BELOW: Final = 0.25
"""A smaller difference than this is a tie."""
_UNKNOWN: Final = 0.5
_USELESS: Final = advice_of(WORDS["useless"])


class RoleQuestion(BaseModel, ABC, frozen=True):
    """A question of one role."""

    @abstractmethod
    def answer(self, world: World, rng: random.Random, instructions: str) -> dict[str, Any]:
        """Return the answer; ``instructions`` are what the role read before."""


def learned_answer(world: World, body: ChatBody, rng: random.Random) -> dict[str, Any] | None:
    """Return the answer of a learning or judging role, or None when the request addresses none."""
    question = question_in(body)
    return None if question is None else question.answer(world, rng, body.messages[0].text)


def question_in(body: ChatBody) -> RoleQuestion | None:
    """Return the first question of a learning or judging role."""
    for message in body.messages:
        value = json_of(message.text) if message.role == "user" else None
        if value is not None:
            with suppress(ValidationError):
                return _QUESTION.validate_python(value)
    return None


# Reflection


class ShownAttempt(BaseModel, frozen=True):
    """One attempt in a reflection request."""

    reward: float
    transcript: str
    digest: str = ""
    """In place of what the transcript leaves out."""


class ReflectionAsk(RoleQuestion, frozen=True):
    """A request to say what separated attempts."""

    attempts: list[ShownAttempt] = Field(min_length=1)
    max_lessons: int = Field(ge=0)

    def answer(self, world: World, rng: random.Random, instructions: str) -> dict[str, Any]:
        """Return up to ``max_lessons`` lessons on what the better attempts shown did and the worse did not.

        The answer also says what separates the attempts, and judges the lessons in force that the instructions list.
        """
        differing = _contrasts(world, self.attempts)
        shuffled = list(differing.items())
        rng.shuffle(shuffled)
        lessons = [_lesson(world.pitfalls[name], better, rng) for name, better in shuffled[: self.max_lessons]]
        if not differing and self.max_lessons and rng.random() < _USELESS_WITHOUT_CONTRAST:
            lessons = [rng.choice(_USELESS)]
        worded = []
        for lesson in lessons:
            rambling = f" {WORDS['rambling']}" if rng.random() < _RAMBLES else ""
            worded.append({"polarity": lesson.polarity, "text": lesson.text + rambling})
        named = list(differing.items())[:_MOST_NAMED]
        parted = ", ".join(name.replace("_", " ") for name, _ in named)
        decided = ", ".join(("" if better else _NOT) + name.replace("_", " ") for name, better in named)
        return {
            "first_difference": f"SIMULATED: {f'they part at {parted}.' if named else 'nothing shown separates them.'}",
            "cause": f"{_DECIDED}{decided}." if decided else "",
            "judgements": list(_judgements(world, instructions, differing, rng)),
            "lessons": worded,
        }


class DigestAsk(RoleQuestion, frozen=True):
    """A request to condense one attempt."""

    task: str
    transcript: str

    def answer(self, world: World, rng: random.Random, instructions: str) -> dict[str, Any]:  # noqa: ARG002
        """Return what the attempt shows of pitfalls, and its end."""
        text = " ".join(self.transcript.split())
        phrases = (phrase for each in world.pitfalls.values() for phrase in (*each.shown_avoided, *each.shown_hit))
        shown = "; ".join(phrase for phrase in phrases if phrase in text)
        length = len(self.transcript)
        return {"digest": f"SIMULATED digest of {length} characters. {shown}. … {text[-_TAIL_CHARS:]}"}


class Cause(BaseModel, frozen=True):
    """Why the attempts of one group ended differently."""

    group: str
    cause: str


class RecurringAsk(RoleQuestion, frozen=True):
    """A request to say what recurs in the causes of a batch."""

    causes: list[Cause]
    max_lessons: int = Field(ge=0)

    def answer(self, world: World, rng: random.Random, instructions: str) -> dict[str, Any]:  # noqa: ARG002
        """Return up to ``max_lessons`` lessons on what the causes of at least two groups name, the most frequent first."""
        groups: dict[str, list[str]] = {}
        for each in self.causes:
            for name in each.cause.removeprefix(_DECIDED).rstrip(".").split(", "):
                if each.group not in groups.setdefault(name, []):
                    groups[name].append(each.group)
        lessons = []
        for name, labels in sorted(groups.items(), key=lambda one: (-len(one[1]), one[0])):
            pitfall = world.pitfalls.get(name.removeprefix(_NOT).replace(" ", "_"))
            if pitfall is not None and len(labels) >= _RECURS:
                lesson = _lesson(pitfall, not name.startswith(_NOT), rng)
                lessons.append({"groups": labels, "polarity": lesson.polarity, "text": lesson.text})
        return {"lessons": lessons[: self.max_lessons]}


def _contrasts(world: World, attempts: Sequence[ShownAttempt]) -> dict[str, bool]:
    """Return the pitfalls that some attempts visibly avoided and others visibly hit, and whether avoiding was better."""
    texts = [(" ".join(f"{each.digest} {each.transcript}".split()), each.reward) for each in attempts]

    def rewards(phrases: Sequence[str]) -> list[float]:
        return [reward for text, reward in texts if any(phrase in text for phrase in phrases)]

    differing = {}
    for name, pitfall in world.pitfalls.items():
        avoided, hit = rewards(pitfall.shown_avoided), rewards(pitfall.shown_hit)
        if avoided and hit and fmean(avoided) != fmean(hit):
            differing[name] = fmean(avoided) > fmean(hit)
    return differing


def _lesson(pitfall: Pitfall, better: bool, rng: random.Random) -> Advice:
    point = rng.random()
    if RIGHT_SHARE <= point < RIGHT_SHARE + USELESS_SHARE:
        return rng.choice(_USELESS)
    good = better is (point < RIGHT_SHARE)
    return rng.choice(pitfall.good_advice if good else pitfall.bad_advice)


def _judgements(world: World, instructions: str, differing: Mapping[str, bool], rng: random.Random) -> Iterable[dict[str, str]]:
    """A lesson that points the way that separates the attempts helped, else it misled; without a pitfall it was unused."""
    listed = next((line for line in instructions.splitlines() if line.startswith('{"lessons_in_force":')), "null")
    for lesson in mapping_of(json_of(listed)).get("lessons_in_force", ()):
        stances = world.lexicon.stances(lesson["polarity"], lesson["text"])
        agrees = [(stance > 0) is differing[name] for name, stance in stances.items() if name in differing]
        if agrees:
            helped = all(agrees) is not (rng.random() < _MISJUDGED)
            yield {"lesson": lesson["lesson"], "judgement": "helped" if helped else "misled"}
        elif not stances:
            yield {"lesson": lesson["lesson"], "judgement": "unused"}


# Curation


class Entry(BaseModel, frozen=True):
    """A known lesson or a proposal."""

    id: str
    polarity: Polarity
    text: str
    support: float = 1.0
    in_favour: float = Field(default=0.0, alias="for")


@dataclass(slots=True)
class _Side:
    known: list[Entry] = field(default_factory=list)
    proposals: list[Entry] = field(default_factory=list)

    @property
    def support(self) -> float:
        return sum(entry.support for entry in self.proposals)

    @property
    def strongest(self) -> Entry:
        if self.known:
            return max(self.known, key=lambda entry: (entry.in_favour, entry.id))
        return max(self.proposals, key=lambda entry: (entry.support, -len(entry.text), entry.id))


def _classed(
    name: str, text: Entry | None = None, proposals: Sequence[Entry] = (), targets: Sequence[str] = ()
) -> dict[str, Any]:
    worded = {"polarity": "", "text": ""} if text is None else {"polarity": text.polarity, "text": text.text}
    return {"class": name, "proposals": [entry.id for entry in proposals], "targets": [*targets], **worded}


class CurationAsk(RoleQuestion, frozen=True):
    """A curation request."""

    known: list[Entry]
    proposals: list[Entry]
    max_words: int = 32

    def answer(self, world: World, rng: random.Random, instructions: str) -> dict[str, Any]:  # noqa: ARG002
        """Return what becomes of every proposal, most supported subjects first, and which known lessons are one."""
        subjects, useless = _by_subject(world, self)
        answers: list[dict[str, Any]] = []
        for side in (side for subject in subjects for side in subject):
            for kind in ("do", "avoid"):  # lessons of two polarities are never one
                equal = [entry for entry in side.known if entry.polarity == kind]
                if len(equal) > 1:
                    kept = max(equal, key=lambda entry: (entry.in_favour, entry.id))
                    answers.append(_classed("merge", kept, targets=[entry.id for entry in equal]))
        for subject in sorted(subjects, key=lambda subject: -max(side.support for side in subject)):
            answers += _classes(subject, rng)
        for entry in useless:
            taken = rng.random() < USELESS_ACCEPTED
            answers.append(_classed("new", entry, [entry]) if taken else _classed("useless", proposals=[entry]))
        if rng.random() < INVALID:
            answers.append(_classed("confirms", targets=["L0-that-nobody-has"]))
        return {"answers": answers}


def _by_subject(world: World, ask: CurationAsk) -> tuple[list[list[_Side]], list[Entry]]:
    """Return the sides of each subject, and the proposals without a subject or with too many words."""
    subjects: dict[str, dict[Stance, _Side]] = {}
    useless: list[Entry] = []
    for proposed, entries in enumerate((ask.known, ask.proposals)):
        for entry in entries:
            stances = world.lexicon.stances(entry.polarity, entry.text)
            if stances and count_words(entry.text) <= ask.max_words:
                name, stance = next(iter(stances.items()))
                side = subjects.setdefault(name, {}).setdefault(stance, _Side())
                (side.proposals if proposed else side.known).append(entry)
            elif proposed:
                useless.append(entry)
    return [list(subject.values()) for subject in subjects.values()], useless


def _classes(sides: list[_Side], rng: random.Random) -> list[dict[str, Any]]:
    """Return what all proposals on one subject confirm, contradict or bring in, rarely the wrong way round."""
    sides.sort(key=lambda side: (not side.known, -side.support))
    if rng.random() < WRONG_WAY_ROUND:
        sides = [_Side(side.known, other.proposals) for side, other in zip(sides, reversed(sides), strict=True)]
    answers: list[dict[str, Any]] = []
    spoken: list[str] = []
    for number, side in enumerate(sides):
        if not side.known and not side.proposals:
            continue
        others = [*spoken, *(other.strongest.id for other in sides[number + 1 :] if other.known)]
        if side.proposals and side.known:
            answers.append(_classed("confirms", None, side.proposals, [side.strongest.id]))
        if side.proposals and others:
            answers.append(_classed("contradicts", None, side.proposals, others))
        elif side.proposals and not side.known:
            answers.append(_classed("new", side.strongest, side.proposals))
        spoken.append(side.strongest.id)
    return answers


class ShortenAsk(RoleQuestion, frozen=True):
    """A request to shorten a text."""

    text: str
    max_words: int = Field(ge=1)
    max_chars: int = Field(default=280, ge=1)

    def answer(self, world: World, rng: random.Random, instructions: str) -> dict[str, Any]:  # noqa: ARG002
        """Cut the text to both limits: whole sentences if possible, else words, else characters."""
        sentences = re.split(r"(?<=[.;!?])\s+", self.text.strip())
        shorter = (" ".join(parts[:end]) for parts in (sentences, self.text.split()) for end in range(len(parts), 0, -1))
        fitting = (text for text in shorter if count_words(text) <= self.max_words and len(text) <= self.max_chars)
        text = next(fitting, None)
        return {"text": self.text.strip()[: self.max_chars] if text is None else text.rstrip(" ,;")}


# Judging


class JudgementAsk(RoleQuestion, frozen=True):
    """A request to score one output."""

    task: str
    output: str

    def answer(self, world: World, rng: random.Random, instructions: str) -> dict[str, Any]:
        """Return a score from 0 to 1 with a reason, or what the instructions want: a verdict, or points, all met or none.

        The judge solves the item and compares with what the output states after its last ``Answer:``; it follows no
        instruction in the output. A task of no simulated world gets the middle of the range.
        """
        score = round(min(max(_quality(world, self.task, self.output, rng), 0.0), 1.0), 2)
        right = score >= _UNKNOWN
        reason = f"SIMULATED: the stated answer looks {'right' if right else 'wrong'}."
        if '"verdict": ' in instructions:
            return {"reason": reason, "verdict": "correct" if right else "incorrect"}
        if '"points": ' in instructions:
            numbers = re.findall(r"^(\d+)\. ", instructions, re.MULTILINE)
            return {"points": [{"point": int(number), "reason": reason, "met": right} for number in numbers]}
        return {"reason": reason, "score": score}


class ComparisonAsk(RoleQuestion, frozen=True):
    """A request to compare two outputs."""

    task: str
    first: str
    second: str

    def answer(self, world: World, rng: random.Random, instructions: str) -> dict[str, Any]:  # noqa: ARG002
        """Return which output is better, or a tie; prefers the first a little, and ties for a task of no world."""
        first = _quality(world, self.task, self.first, rng) + FIRST_BONUS
        margin = first - _quality(world, self.task, self.second, rng)
        better = "tie" if abs(margin) < TIE_BELOW else "first" if margin > 0 else "second"
        return {"reason": "SIMULATED: by the answers they state.", "better": better}


def _quality(world: World, task: str, output: str, rng: random.Random) -> float:
    mistaken = rng.random() < ERROR_SHARE
    noise = rng.gauss(0.0, NOISE)
    puzzle = world.recognise(task)
    if puzzle is None:
        return _UNKNOWN
    return (RIGHT_MEAN if puzzle.agrees(output) is not mistaken else WRONG_MEAN) + noise


_QUESTION: Final[TypeAdapter[RoleQuestion]] = TypeAdapter(
    Annotated[
        ReflectionAsk | DigestAsk | RecurringAsk | CurationAsk | ShortenAsk | JudgementAsk | ComparisonAsk,
        Field(union_mode="left_to_right"),
    ]
)
