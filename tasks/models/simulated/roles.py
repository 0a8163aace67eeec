"""Answer the questions of the learning and judging roles, which are recognised by the members of their JSON object.

Of a repair the first question is answered again. The roles go by what transcripts and texts show and by how many groups
speak for a lesson; they do not know which advice is right. Mostly right, they err as often as the constants say.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, Final, NamedTuple

from tfgrpo.stores.json_values import json_of, mapping_of
from tfgrpo.stores.text import count_words
from tfgrpo.tasks.models.simulated.protocol import ChatBody, Object
from tfgrpo.tasks.models.simulated.puzzle import WORDS, Advice, Pitfall, Stance, World, advice_of

# Lessons that draw the conclusion that the transcripts suggest, and lessons without effect; the rest state the opposite.
RIGHT_SHARE: Final = 0.85
USELESS_SHARE: Final = 0.10
_USELESS_WITHOUT_CONTRAST: Final = 0.4
_RAMBLES: Final = 0.02
# Judgements that take helped for misled, or misled for helped: as many as lessons that state the opposite.
_MISJUDGED: Final = 0.05
_DECIDED: Final = "SIMULATED: what decided was "
# In front of a pitfall that the better attempts hit.
_NOT: Final = "no "
# Of curation: useless proposals taken for new, subjects with both sides confused, answers with an impossible entry.
USELESS_ACCEPTED: Final = 0.15
WRONG_WAY_ROUND: Final = 0.03
INVALID: Final = 0.03
# Of judges: verdicts the wrong way round, scores with their standard deviation, the bonus of the output shown first.
ERROR_SHARE: Final = 0.08
RIGHT_MEAN: Final = 0.85
WRONG_MEAN: Final = 0.25
NOISE: Final = 0.12
FIRST_BONUS: Final = 0.08
_TIE_BELOW: Final = 0.25
_NO_ITEM: Final = 0.5
_USELESS: Final = advice_of(WORDS["useless"])


class RoleQuestion(NamedTuple):
    """A question to a role, in a world."""

    world: World
    content: Object
    rng: random.Random
    instructions: str


def learned_answer(world: World, body: ChatBody, rng: random.Random) -> dict[str, Any] | None:
    """Return the answer of a learning or judging role, or None when the request addresses none."""
    for message in body.messages:
        content = mapping_of(json_of(message.text)) if message.role == "user" else {}
        for role, members in _MEMBERS.items():
            if all(isinstance(content.get(name), kind) for name, kind in members.items()):
                return role(RoleQuestion(world, content, rng, body.messages[0].text))
    return None


def reflection(question: RoleQuestion) -> dict[str, Any]:
    """Return up to ``max_lessons`` lessons on what the better attempts shown did and the worse did not.

    The answer also says what separates the attempts, and judges the lessons in force that the instructions list.
    """
    world, content, rng, instructions = question
    differing, most = _contrasts(world, content["attempts"]), content["max_lessons"]
    shuffled = list(differing.items())
    rng.shuffle(shuffled)
    lessons = [_lesson(world.pitfalls[name], better, rng) for name, better in shuffled[:most]]
    if not differing and most and rng.random() < _USELESS_WITHOUT_CONTRAST:
        lessons = [rng.choice(_USELESS)]
    texts = [lesson.text + (f" {WORDS['rambling']}" if rng.random() < _RAMBLES else "") for lesson in lessons]
    named = {name.replace("_", " "): better for name, better in list(differing.items())[:3]}
    parted, decided = ", ".join(named), ", ".join(("" if better else _NOT) + name for name, better in named.items())
    return {
        "first_difference": f"SIMULATED: {f'they part at {parted}.' if named else 'nothing shown separates them.'}",
        "cause": f"{_DECIDED}{decided}." if decided else "",
        "judgements": list(_judgements(world, instructions, differing, rng)),
        "lessons": [{"polarity": each.polarity, "text": text} for each, text in zip(lessons, texts, strict=True)],
    }


def digest(question: RoleQuestion) -> dict[str, Any]:
    """Return what one attempt shows of pitfalls, and its end."""
    transcript = question.content["transcript"]
    text = " ".join(transcript.split())
    phrases = (phrase for each in question.world.pitfalls.values() for phrase in (*each.shown_avoided, *each.shown_hit))
    shown = "; ".join(phrase for phrase in phrases if phrase in text)
    return {"digest": f"SIMULATED digest of {len(transcript)} characters. {shown}. … {text[-300:]}"}


def recurring(question: RoleQuestion) -> dict[str, Any]:
    """Return up to ``max_lessons`` lessons on what the causes of at least two groups name, the most frequent first."""
    groups: dict[str, dict[str, None]] = {}
    for each in question.content["causes"]:
        for name in each["cause"].removeprefix(_DECIDED).rstrip(".").split(", "):
            groups.setdefault(name, {})[each["group"]] = None
    lessons = []
    for name, labels in sorted(groups.items(), key=lambda one: (-len(one[1]), one[0])):
        pitfall = question.world.pitfalls.get(name.removeprefix(_NOT).replace(" ", "_"))
        if pitfall is not None and len(labels) >= 2:
            lesson = _lesson(pitfall, not name.startswith(_NOT), question.rng)
            lessons.append({"groups": list(labels), **lesson._asdict()})
    return {"lessons": lessons[: question.content["max_lessons"]]}


def _contrasts(world: World, attempts: Sequence[Object]) -> dict[str, bool]:
    """Return the pitfalls that some attempts visibly avoided and others visibly hit, and whether avoiding was better."""
    texts = [(" ".join(f"{each.get('digest', '')} {each['transcript']}".split()), each["reward"]) for each in attempts]
    differing = {}
    for name, pitfall in world.pitfalls.items():
        avoided, hit = (
            [reward for text, reward in texts if any(phrase in text for phrase in phrases)]
            for phrases in (pitfall.shown_avoided, pitfall.shown_hit)
        )
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
    listed = next((line for line in instructions.splitlines() if line.startswith('{"lessons_in_force":')), "null")
    for lesson in mapping_of(json_of(listed)).get("lessons_in_force", ()):
        stances = world.stances(lesson["polarity"], lesson["text"])
        # A lesson that points the way that separates the attempts helped; without a pitfall it was unused.
        agrees = [(stance > 0) is differing[name] for name, stance in stances.items() if name in differing]
        if agrees:
            helped = all(agrees) is not (rng.random() < _MISJUDGED)
            yield {"lesson": lesson["lesson"], "judgement": "helped" if helped else "misled"}
        elif not stances:
            yield {"lesson": lesson["lesson"], "judgement": "unused"}


class _Side(NamedTuple):
    known: list[Object]
    proposals: list[Object]

    @property
    def support(self) -> float:
        return float(sum(entry.get("support", 1.0) for entry in self.proposals))

    @property
    def strongest(self) -> Object:
        if self.known:
            return max(self.known, key=lambda lesson: (lesson.get("for", 0.0), lesson["id"]))
        return max(self.proposals, key=lambda entry: (entry.get("support", 1.0), -len(entry["text"]), entry["id"]))


def _classed(
    name: str, proposals: Sequence[Object] = (), targets: Sequence[Object] = (), lesson: Object | None = None
) -> dict[str, Any]:
    ids = {"proposals": [each["id"] for each in proposals], "targets": [each["id"] for each in targets]}
    return {"class": name, **ids, **{key: "" if lesson is None else lesson[key] for key in ("polarity", "text")}}


def curation(question: RoleQuestion) -> dict[str, Any]:
    """Return what becomes of every proposal, most supported subjects first, and which known lessons are one."""
    content, rng = question.content, question.rng
    by_subject: dict[str, dict[Stance, _Side]] = {}
    useless: list[Object] = []
    for column, entry in [*((0, each) for each in content["known"]), *((1, each) for each in content["proposals"])]:
        stances = question.world.stances(entry["polarity"], entry["text"])
        if stances and count_words(entry["text"]) <= content.get("max_words", 32):
            name, stance = next(iter(stances.items()))
            by_subject.setdefault(name, {}).setdefault(stance, _Side([], []))[column].append(entry)
        elif column:
            useless.append(entry)
    subjects = [list(sides.values()) for sides in by_subject.values()]
    answers: list[dict[str, Any]] = []
    for side in (side for subject in subjects for side in subject):
        for kind in ("do", "avoid"):  # lessons of two polarities are never one
            equal = [entry for entry in side.known if entry["polarity"] == kind]
            if len(equal) > 1:
                answers.append(_classed("merge", (), equal, _Side(equal, []).strongest))
    for subject in sorted(subjects, key=lambda subject: -max(side.support for side in subject)):
        answers += _classes(subject, rng)
    for entry in useless:
        accepted = rng.random() < USELESS_ACCEPTED
        answers.append(_classed("new", [entry], (), entry) if accepted else _classed("useless", [entry]))
    if rng.random() < INVALID:
        answers.append(_classed("confirms", (), [{"id": "L0-that-nobody-has"}]))
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
            yield _classed("confirms", proposals, [strongest[number]])
        if proposals and others:
            yield _classed("contradicts", proposals, others)
        elif proposals and not known:
            yield _classed("new", proposals, (), strongest[number])


def shortening(question: RoleQuestion) -> dict[str, Any]:
    """Cut a text to both limits: whole sentences if possible, else words, else characters."""
    text, most = question.content["text"].strip(), question.content.get("max_chars", 280)
    parts = (re.split(r"(?<=[.;!?])\s+", text), text.split())
    for shorter in (" ".join(each[:end]) for each in parts for end in range(len(each), 0, -1)):
        if count_words(shorter) <= question.content["max_words"] and len(shorter) <= most:
            return {"text": shorter.rstrip(" ,;")}
    return {"text": text[:most]}


def judgement(question: RoleQuestion) -> dict[str, Any]:
    """Return a score from 0 to 1 with a reason, or what the instructions want: a verdict, or points, all met or none.

    The judge solves the item and compares the answers. A task of no simulated world gets the middle of the range.
    """
    score = round(min(max(_quality(question, "output"), 0.0), 1.0), 2)
    right = score >= _NO_ITEM
    reason = f"SIMULATED: the stated answer looks {'right' if right else 'wrong'}."
    if '"verdict": ' in question.instructions:
        return {"reason": reason, "verdict": "correct" if right else "incorrect"}
    if '"points": ' in question.instructions:
        numbers = re.findall(r"^(\d+)\. ", question.instructions, re.MULTILINE)
        return {"points": [{"point": int(number), "reason": reason, "met": right} for number in numbers]}
    return {"reason": reason, "score": score}


def comparison(question: RoleQuestion) -> dict[str, Any]:
    """Return which of two outputs is better, or a tie; prefers the first a little, and ties for a task of no world."""
    margin = _quality(question, "first") + FIRST_BONUS - _quality(question, "second")
    better = "tie" if abs(margin) < _TIE_BELOW else "first" if margin > 0 else "second"
    return {"reason": "SIMULATED: by the answers they state.", "better": better}


def _quality(question: RoleQuestion, output: str) -> float:
    # Both are drawn before the item is looked for, so that later draws do not depend on it.
    mistaken, noise = question.rng.random() < ERROR_SHARE, question.rng.gauss(0.0, NOISE)
    puzzle = question.world.recognise(question.content["task"])
    if puzzle is None:
        return _NO_ITEM
    return (RIGHT_MEAN if puzzle.agrees(question.content[output]) is not mistaken else WRONG_MEAN) + noise


# By role, what its question has at least; of several that fit, the first answers.
_MEMBERS: Final[Mapping[Callable[[RoleQuestion], dict[str, Any]], Mapping[str, type]]] = {
    reflection: {"attempts": list, "max_lessons": int},
    digest: {"task": str, "transcript": str},
    recurring: {"causes": list, "max_lessons": int},
    curation: {"known": list, "proposals": list},
    shortening: {"text": str, "max_words": int},
    judgement: {"task": str, "output": str},
    comparison: {"task": str, "first": str, "second": str},
}
