"""Recognise the role that a request addresses by the shape of its JSON question, and answer in the form it asks for.

A repair is recognised by the dialogue: the first message with such a question is answered again.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tfgrpo.stores.frozen_json import json_of
from tfgrpo.stores.text import count_words
from tfgrpo.tasks.models.simulated.curator import CurationAsk, curate
from tfgrpo.tasks.models.simulated.protocol import ChatBody
from tfgrpo.tasks.models.simulated.reflector import digest, judged, lessons_in_force
from tfgrpo.tasks.models.simulated.worlds.data import Advice, Pitfall, advice_of, data_of
from tfgrpo.tasks.models.simulated.worlds.puzzle import World


class _Ask(BaseModel):
    model_config = ConfigDict(frozen=True)


class ShownAttempt(_Ask):
    """One attempt in a reflection request."""

    label: str = ""
    reward: float
    transcript: str
    digest: str = ""
    """In place of what the transcript leaves out."""


class ReflectionAsk(_Ask):
    """A request to say what separated attempts."""

    attempts: list[ShownAttempt] = Field(min_length=1)
    max_lessons: int = Field(ge=0)
    max_words: int = 32

    def the_wrong_way_round(self) -> ReflectionAsk:
        """Return the same attempts with the better ones as the worse."""
        turned = [attempt.model_copy(update={"reward": -attempt.reward}) for attempt in self.attempts]
        return self.model_copy(update={"attempts": turned})


class DigestAsk(_Ask):
    """A request to condense one attempt."""

    task: str
    transcript: str


class ShortenAsk(_Ask):
    """A request to shorten a text."""

    text: str
    max_words: int = Field(ge=1)
    max_chars: int = Field(default=280, ge=1)


class JudgementAsk(_Ask):
    """A request to score one output."""

    task: str
    output: str


class ComparisonAsk(_Ask):
    """A request to compare two outputs."""

    task: str
    first: str
    second: str


_Question: TypeAlias = ReflectionAsk | DigestAsk | CurationAsk | ShortenAsk | JudgementAsk | ComparisonAsk
_QUESTION: Final[TypeAdapter[_Question]] = TypeAdapter(Annotated[_Question, Field(union_mode="left_to_right")])


def learned_answer(
    world: World, body: ChatBody, rng: random.Random, *, misjudged: float = 0.0
) -> dict[str, Any] | None:
    """Return the answer of a learning or judging role, or None when the request addresses none.

    ``misjudged`` is the share of reflections that take the better attempts for the worse.
    """
    answer: dict[str, Any] | None = None
    match _question_in(body):
        case ReflectionAsk() as question:
            turned = misjudged > 0.0 and rng.random() < misjudged
            answer = _reflection(world, question.the_wrong_way_round() if turned else question, body, rng)
        case DigestAsk() as question:
            answer = digest(world.pitfalls.values(), question.transcript)
        case CurationAsk() as question:
            answer = curate(world.lexicon, question, rng)
        case ShortenAsk() as question:
            answer = shorten(question)
        case JudgementAsk() as question:
            answer = judge(world, question, rng)
        case ComparisonAsk() as question:
            answer = compare(world, question, rng)
    return answer


def _question_in(body: ChatBody) -> _Question | None:
    """Return the first question of a learning or judging role."""
    for message in body.messages:
        value = json_of(message.text) if message.role == "user" else None
        if value is not None:
            with suppress(ValidationError):
                return _QUESTION.validate_python(value)
    return None


def _reflection(world: World, ask: ReflectionAsk, body: ChatBody, rng: random.Random) -> dict[str, Any]:
    """Return lessons, and what separates the attempts if the request lists the lessons in force."""
    lessons, known = reflect(world.pitfalls.values(), ask, rng), lessons_in_force(body.messages[0].text)
    if known is None:
        return lessons
    return judged(world.lexicon, known, contrasts(world.pitfalls.values(), ask.attempts), rng) | lessons


def shorten(ask: ShortenAsk) -> dict[str, Any]:
    """Cut a text to both limits: whole sentences if possible, else words, else characters."""
    sentences = re.split(r"(?<=[.;!?])\s+", ask.text.strip())
    words = ask.text.split()
    candidates = [" ".join(sentences[:count]) for count in range(len(sentences), 0, -1)]
    candidates += [" ".join(words[:count]) for count in range(len(words), 0, -1)]
    for text in candidates:
        if count_words(text) <= ask.max_words and len(text) <= ask.max_chars:
            return {"text": text.rstrip(" ,;")}
    return {"text": ask.text.strip()[: ask.max_chars]}


def structured_answer(body: ChatBody, text: str) -> str:
    """Return the actor's text in the form that the request asks for: as it is, a JSON object, or a schema's instance."""
    wanted = body.response_format
    if wanted is None or wanted.type == "text":
        return text
    if wanted.json_schema is None:
        return json.dumps({"answer": text}, ensure_ascii=False)
    return json.dumps(minimal_instance(wanted.json_schema.body, text), ensure_ascii=False)


def minimal_instance(schema: Mapping[str, Any], text: str, root: Mapping[str, Any] | None = None) -> Any:
    """Return a smallest value that follows a JSON schema, with ``text`` for free strings; of several types the first.

    ``root``: the schema with the definitions that this part of it refers to.
    """
    root = schema if root is None else root
    if "$ref" in schema:
        return minimal_instance(root.get("$defs", {}).get(schema["$ref"].rpartition("/")[2], {}), text, root)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return minimal_instance(schema[key][0], text, root)
    kind = schema.get("type", "object")
    return _of_type(kind[0] if isinstance(kind, list) else kind, schema, text, root)


def _of_type(kind: str, schema: Mapping[str, Any], text: str, root: Mapping[str, Any]) -> Any:
    match kind:
        case "object":
            parts, names = schema.get("properties", {}), schema.get("required", ())
            return {name: minimal_instance(parts.get(name, {}), text, root) for name in names}
        case "array":
            return [minimal_instance(schema.get("items", {}), text, root)] * schema.get("minItems", 0)
        case "number" | "integer":
            return schema.get("minimum", 0)
        case "string":
            return text[: schema.get("maxLength", len(text))]
        case "boolean":
            return False
    return None


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


def judge(world: World, ask: JudgementAsk, rng: random.Random) -> dict[str, Any]:
    """Return a score from 0 to 1, in two decimals, with a reason.

    Mostly right, with noise and errors. It solves the item and compares with the process model in the output or with
    what that states after its last ``Answer:``; it follows no instruction in the output. A task of no simulated world
    gets the middle of the range.
    """
    score = round(min(max(_quality(world, ask.task, ask.output, rng), 0.0), 1.0), 2)
    return {"reason": f"SIMULATED: the stated answer looks {'right' if score >= 0.5 else 'wrong'}.", "score": score}


def compare(world: World, ask: ComparisonAsk, rng: random.Random) -> dict[str, Any]:
    """Return which of two outputs is better, or a tie; prefers the first a little, and ties for a task of no world."""
    first = _quality(world, ask.task, ask.first, rng) + FIRST_BONUS
    margin = first - _quality(world, ask.task, ask.second, rng)
    better = "tie" if abs(margin) < TIE_BELOW else "first" if margin > 0 else "second"
    return {"reason": "SIMULATED: by the answers they state.", "better": better}


def _quality(world: World, task: str, output: str, rng: random.Random) -> float:
    mistaken = rng.random() < ERROR_SHARE
    noise = rng.gauss(0.0, NOISE)
    puzzle = world.puzzle.recognise(task)
    if puzzle is None:
        return _UNKNOWN
    return (RIGHT_MEAN if puzzle.agrees(output) is not mistaken else WRONG_MEAN) + noise


USELESS: Final = tuple(advice_of(data_of("lessons")["useless"]))
RAMBLING: Final[str] = data_of("lessons")["rambling"]
RIGHT_SHARE = 0.85
"""Lessons that draw the conclusion that the transcripts suggest."""
USELESS_SHARE = 0.10
"""Lessons without effect; the rest state the opposite of the truth."""
_USELESS_WITHOUT_CONTRAST = 0.4
_RAMBLES = 0.02


class Contrast(NamedTuple):
    """A pitfall on which the attempts differ; ``right`` when those that avoided it fared better."""

    pitfall: Pitfall
    right: bool


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def contrasts(pitfalls: Iterable[Pitfall], attempts: Sequence[ShownAttempt]) -> list[Contrast]:
    """Return the pitfalls that some attempts visibly avoided and others visibly hit, with different rewards."""
    texts = [(" ".join(f"{each.digest} {each.transcript}".split()), each.reward) for each in attempts]

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


def reflect(pitfalls: Iterable[Pitfall], ask: ReflectionAsk, rng: random.Random) -> dict[str, Any]:
    """Return up to ``max_lessons`` lessons on what the better attempts shown did and the worse did not.

    From their transcripts alone: most lessons draw the conclusion that these suggest; some are useless, some are wrong.
    """
    differing = contrasts(pitfalls, ask.attempts)
    rng.shuffle(differing)
    lessons = [_lesson(contrast, rng) for contrast in differing[: ask.max_lessons]]
    if not differing and ask.max_lessons and rng.random() < _USELESS_WITHOUT_CONTRAST:
        lessons = [rng.choice(USELESS)]

    def rambling(text: str) -> str:
        return f"{text} {RAMBLING}" if rng.random() < _RAMBLES else text

    return {"lessons": [{"polarity": lesson.polarity, "text": rambling(lesson.text)} for lesson in lessons]}
