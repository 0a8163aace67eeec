"""Answer the questions of the learning and judging roles, which are recognised by the members of their JSON object.

A repair is recognised by the dialogue: the first message with such a question is answered again. The roles go by what
transcripts and texts show and by how many groups speak for a lesson; they do not know which advice is right. Mostly right,
they err as often as the constants say.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, Final, NamedTuple, TypeAlias

from tfgrpo.stores.json_values import json_of, mapping_of
from tfgrpo.stores.text import count_words
from tfgrpo.tasks.models.simulated.protocol import ChatBody, Object
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


class Asked(NamedTuple):
    """What a role is asked."""

    world: World
    question: Object
    rng: random.Random
    instructions: str
    """What the role read before the question."""


Answers: TypeAlias = Callable[[Asked], dict[str, Any]]


def learned_answer(world: World, body: ChatBody, rng: random.Random) -> dict[str, Any] | None:
    """Return the answer of a learning or judging role, or None when the request addresses none."""
    role, question = question_in(body)
    return None if role is None else role(Asked(world, question, rng, body.messages[0].text))


def question_in(body: ChatBody) -> tuple[Answers | None, Object]:
    """Return the first question of a learning or judging role, and the role; None without one."""
    for message in body.messages:
        question = mapping_of(json_of(message.text)) if message.role == "user" else {}
        for role, members in _MEMBERS.items():
            if all(isinstance(question.get(name), kind) for name, kind in members.items()):
                return role, question
    return None, {}


def reflection(asked: Asked) -> dict[str, Any]:
    """Return up to ``max_lessons`` lessons on what the better attempts shown did and the worse did not.

    The answer also says what separates the attempts, and judges the lessons in force that the instructions list.
    """
    world, question, rng, instructions = asked
    differing, most = _contrasts(world, question["attempts"]), question["max_lessons"]
    shuffled = list(differing.items())
    rng.shuffle(shuffled)
    lessons = [_lesson(world.pitfalls[name], better, rng) for name, better in shuffled[:most]]
    if not differing and most and rng.random() < _USELESS_WITHOUT_CONTRAST:
        lessons = [rng.choice(_USELESS)]
    rambling = [f" {WORDS['rambling']}" if rng.random() < _RAMBLES else "" for _ in lessons]
    named = list(differing.items())[:_MOST_NAMED]
    parted = ", ".join(name.replace("_", " ") for name, _ in named)
    decided = ", ".join(("" if better else _NOT) + name.replace("_", " ") for name, better in named)
    return {
        "first_difference": f"SIMULATED: {f'they part at {parted}.' if named else 'nothing shown separates them.'}",
        "cause": f"{_DECIDED}{decided}." if decided else "",
        "judgements": list(_judgements(world, instructions, differing, rng)),
        "lessons": [{**lesson._asdict(), "text": lesson.text + more} for lesson, more in zip(lessons, rambling, strict=True)],
    }


def digest(asked: Asked) -> dict[str, Any]:
    """Return what one attempt shows of pitfalls, and its end."""
    transcript = asked.question["transcript"]
    text = " ".join(transcript.split())
    phrases = (phrase for each in asked.world.pitfalls.values() for phrase in (*each.shown_avoided, *each.shown_hit))
    shown = "; ".join(phrase for phrase in phrases if phrase in text)
    return {"digest": f"SIMULATED digest of {len(transcript)} characters. {shown}. … {text[-_TAIL_CHARS:]}"}


def recurring(asked: Asked) -> dict[str, Any]:
    """Return up to ``max_lessons`` lessons on what the causes of at least two groups name, the most frequent first."""
    groups: dict[str, dict[str, None]] = {}
    for each in asked.question["causes"]:
        for name in each["cause"].removeprefix(_DECIDED).rstrip(".").split(", "):
            groups.setdefault(name, {})[each["group"]] = None
    lessons = []
    for name, labels in sorted(groups.items(), key=lambda one: (-len(one[1]), one[0])):
        pitfall = asked.world.pitfalls.get(name.removeprefix(_NOT).replace(" ", "_"))
        if pitfall is not None and len(labels) >= _RECURS:
            lesson = _lesson(pitfall, not name.startswith(_NOT), asked.rng)
            lessons.append({"groups": list(labels), **lesson._asdict()})
    return {"lessons": lessons[: asked.question["max_lessons"]]}


def _contrasts(world: World, attempts: Sequence[Object]) -> dict[str, bool]:
    """Return the pitfalls that some attempts visibly avoided and others visibly hit, and whether avoiding was better."""
    texts = [(" ".join(f"{each.get('digest', '')} {each['transcript']}".split()), each["reward"]) for each in attempts]

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
        stances = world.stances(lesson["polarity"], lesson["text"])
        agrees = [(stance > 0) is differing[name] for name, stance in stances.items() if name in differing]
        if agrees:
            helped = all(agrees) is not (rng.random() < _MISJUDGED)
            yield {"lesson": lesson["lesson"], "judgement": "helped" if helped else "misled"}
        elif not stances:
            yield {"lesson": lesson["lesson"], "judgement": "unused"}


class _Side(NamedTuple):
    """Lessons that say the same of one subject."""

    known: list[Object]
    proposals: list[Object]

    @property
    def support(self) -> float:
        return float(sum(entry.get("support", 1.0) for entry in self.proposals))

    @property
    def strongest(self) -> Object:
        if self.known:
            return max(self.known, key=_favoured)
        return max(self.proposals, key=lambda entry: (entry.get("support", 1.0), -len(entry["text"]), entry["id"]))


def _favoured(known: Object) -> tuple[float, str]:
    return known.get("for", 0.0), known["id"]


def _classed(
    name: str, lesson: Object | None = None, proposals: Sequence[Object] = (), targets: Sequence[Object] = ()
) -> dict[str, Any]:
    worded = {key: "" if lesson is None else lesson[key] for key in ("polarity", "text")}
    return {
        "class": name,
        "proposals": [each["id"] for each in proposals],
        "targets": [each["id"] for each in targets],
        **worded,
    }


def curation(asked: Asked) -> dict[str, Any]:
    """Return what becomes of every proposal, most supported subjects first, and which known lessons are one."""
    question, rng = asked.question, asked.rng
    by_subject: dict[str, dict[Stance, _Side]] = {}
    useless: list[Object] = []
    for proposed, entry in [*((0, each) for each in question["known"]), *((1, each) for each in question["proposals"])]:
        stances = asked.world.stances(entry["polarity"], entry["text"])
        if stances and count_words(entry["text"]) <= question.get("max_words", 32):
            name, stance = next(iter(stances.items()))
            by_subject.setdefault(name, {}).setdefault(stance, _Side([], []))[proposed].append(entry)
        elif proposed:
            useless.append(entry)
    subjects = [list(sides.values()) for sides in by_subject.values()]

    answers: list[dict[str, Any]] = []
    for side in (side for subject in subjects for side in subject):
        for kind in ("do", "avoid"):  # lessons of two polarities are never one
            equal = [entry for entry in side.known if entry["polarity"] == kind]
            if len(equal) > 1:
                answers.append(_classed("merge", max(equal, key=_favoured), targets=equal))
    for subject in sorted(subjects, key=lambda subject: -max(side.support for side in subject)):
        answers += _classes(subject, rng)
    for entry in useless:
        taken = rng.random() < USELESS_ACCEPTED
        answers.append(_classed("new", entry, [entry]) if taken else _classed("useless", proposals=[entry]))
    if rng.random() < INVALID:
        answers.append(_classed("confirms", targets=[{"id": "L0-that-nobody-has"}]))
    return {"answers": answers}


def _classes(sides: list[_Side], rng: random.Random) -> Iterable[dict[str, Any]]:
    """Yield what all proposals on one subject confirm, contradict or bring in, rarely the wrong way round."""
    sides.sort(key=lambda side: (not side.known, -side.support))
    if rng.random() < WRONG_WAY_ROUND:
        sides = [_Side(side.known, other.proposals) for side, other in zip(sides, reversed(sides), strict=True)]
    sides = [side for side in sides if side.known or side.proposals]
    strongest = [side.strongest for side in sides]
    for number, (known, proposals) in enumerate(sides):
        others = [*strongest[:number], *(side.strongest for side in sides[number + 1 :] if side.known)]
        if proposals and known:
            yield _classed("confirms", None, proposals, [strongest[number]])
        if proposals and others:
            yield _classed("contradicts", None, proposals, others)
        elif proposals and not known:
            yield _classed("new", strongest[number], proposals)


def shortening(asked: Asked) -> dict[str, Any]:
    """Cut a text to both limits: whole sentences if possible, else words, else characters."""
    text, most = asked.question["text"].strip(), asked.question.get("max_chars", 280)
    parts = (re.split(r"(?<=[.;!?])\s+", text), text.split())
    shorter = (" ".join(each[:end]) for each in parts for end in range(len(each), 0, -1))
    fitting = (each for each in shorter if count_words(each) <= asked.question["max_words"] and len(each) <= most)
    found = next(fitting, None)
    return {"text": text[:most] if found is None else found.rstrip(" ,;")}


def judgement(asked: Asked) -> dict[str, Any]:
    """Return a score from 0 to 1 with a reason, or what the instructions want: a verdict, or points, all met or none.

    The judge solves the item and compares with what the output states after its last ``Answer:``; it follows no
    instruction in the output. A task of no simulated world gets the middle of the range.
    """
    score = round(min(max(_quality(asked, "output"), 0.0), 1.0), 2)
    right = score >= _UNKNOWN
    reason = f"SIMULATED: the stated answer looks {'right' if right else 'wrong'}."
    if '"verdict": ' in asked.instructions:
        return {"reason": reason, "verdict": "correct" if right else "incorrect"}
    if '"points": ' in asked.instructions:
        numbers = re.findall(r"^(\d+)\. ", asked.instructions, re.MULTILINE)
        return {"points": [{"point": int(number), "reason": reason, "met": right} for number in numbers]}
    return {"reason": reason, "score": score}


def comparison(asked: Asked) -> dict[str, Any]:
    """Return which of two outputs is better, or a tie; prefers the first a little, and ties for a task of no world."""
    margin = _quality(asked, "first") + FIRST_BONUS - _quality(asked, "second")
    better = "tie" if abs(margin) < TIE_BELOW else "first" if margin > 0 else "second"
    return {"reason": "SIMULATED: by the answers they state.", "better": better}


def _quality(asked: Asked, output: str) -> float:
    mistaken = asked.rng.random() < ERROR_SHARE
    noise = asked.rng.gauss(0.0, NOISE)
    puzzle = asked.world.recognise(asked.question["task"])
    if puzzle is None:
        return _UNKNOWN
    return (RIGHT_MEAN if puzzle.agrees(asked.question[output]) is not mistaken else WRONG_MEAN) + noise


_MEMBERS: Final[Mapping[Answers, Mapping[str, type]]] = {
    reflection: {"attempts": list, "max_lessons": int},
    digest: {"task": str, "transcript": str},
    recurring: {"causes": list, "max_lessons": int},
    curation: {"known": list, "proposals": list},
    shortening: {"text": str, "max_words": int},
    judgement: {"task": str, "output": str},
    comparison: {"task": str, "first": str, "second": str},
}
"""By role, what its question has at least; of several that fit, the first answers."""
