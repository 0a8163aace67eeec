"""Recognise the role that a request addresses by the shape of its JSON question, and answer in the form it asks for.

A repair is recognised by the dialogue: the first message with such a question is answered again.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from tfgrpo.stores.frozen_json import json_of
from tfgrpo.stores.text import count_words
from tfgrpo.tasks.models.simulated.curator import CurationAsk, curate
from tfgrpo.tasks.models.simulated.protocol import ChatBody
from tfgrpo.tasks.models.simulated.reflector import RecurringAsk, ReflectionAsk, digest, recurring, reflect
from tfgrpo.tasks.models.simulated.worlds.puzzle import World


class DigestAsk(BaseModel, frozen=True):
    """A request to condense one attempt."""

    task: str
    transcript: str


class ShortenAsk(BaseModel, frozen=True):
    """A request to shorten a text."""

    text: str
    max_words: int = Field(ge=1)
    max_chars: int = Field(default=280, ge=1)


class JudgementAsk(BaseModel, frozen=True):
    """A request to score one output."""

    task: str
    output: str


class ComparisonAsk(BaseModel, frozen=True):
    """A request to compare two outputs."""

    task: str
    first: str
    second: str


_Question: TypeAlias = (
    ReflectionAsk | DigestAsk | RecurringAsk | CurationAsk | ShortenAsk | JudgementAsk | ComparisonAsk
)
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
            mistaken = misjudged > 0.0 and rng.random() < misjudged
            answer = reflect(world, question, rng, body.messages[0].text, misjudged=mistaken)
        case DigestAsk() as question:
            answer = digest(world.pitfalls.values(), question.transcript)
        case RecurringAsk() as question:
            answer = recurring(world, question, rng)
        case CurationAsk() as question:
            answer = curate(world.lexicon, question, rng)
        case ShortenAsk() as question:
            answer = shorten(question)
        case JudgementAsk() as question:
            answer = in_form(judge(world, question, rng), body.messages[0].text)
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


def shorten(ask: ShortenAsk) -> dict[str, Any]:
    """Cut a text to both limits: whole sentences if possible, else words, else characters."""
    sentences = re.split(r"(?<=[.;!?])\s+", ask.text.strip())
    shorter = (" ".join(parts[:end]) for parts in (sentences, ask.text.split()) for end in range(len(parts), 0, -1))
    for text in shorter:
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


def in_form(judgement: dict[str, Any], instructions: str) -> dict[str, Any]:
    """Return a judgement as the instructions want it: a score, a verdict, or the points of a checklist, all met or none."""
    right, reason = judgement["score"] >= _UNKNOWN, judgement["reason"]
    if '"verdict": ' in instructions:
        return {"reason": reason, "verdict": "correct" if right else "incorrect"}
    if '"points": ' in instructions:
        numbers = re.findall(r"^(\d+)\. ", instructions, re.MULTILINE)
        return {"points": [{"point": int(number), "reason": reason, "met": right} for number in numbers]}
    return judgement


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
