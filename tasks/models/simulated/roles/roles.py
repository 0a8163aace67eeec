"""Whom does a request address: actor, judging, reflecting, curating or shortening role? Told by the keys of what is asked.

A repair is recognised by the dialogue: the first message that puts such a question is answered again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from tfgrpo.tasks.models.simulated.roles.curator import CurationAsk, curate
from tfgrpo.tasks.models.simulated.roles.judge import ComparisonAsk, JudgementAsk, compare, judge
from tfgrpo.tasks.models.simulated.roles.reflector import ReflectionAsk, reflect
from tfgrpo.tasks.models.simulated.roles.shortener import ShortenAsk, shorten
from tfgrpo.tasks.models.simulated.service.instance import minimal_instance
from tfgrpo.tasks.models.simulated.service.protocol import ChatBody
from tfgrpo.tasks.models.simulated.worlds.puzzle import World

_KEYS = {
    "tfgrpo_lessons": frozenset({"attempts", "max_lessons"}),
    "tfgrpo_operations": frozenset({"library", "proposals"}),
    "tfgrpo_shortened": frozenset({"text", "max_words"}),
    "tfgrpo_judgement": frozenset({"task", "output"}),
    "tfgrpo_comparison": frozenset({"task", "first", "second"}),
}


def _objects(body: ChatBody) -> Iterator[Mapping[str, Any]]:
    """The user messages that are JSON objects, in order."""
    for message in body.messages:
        text = message.text.lstrip()
        if message.role != "user" or not text.startswith("{"):
            continue
        try:
            value = json.loads(text)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def _question(body: ChatBody) -> tuple[str, Mapping[str, Any]] | None:
    """The structured question of a request, with the name of the schema its answer follows."""
    for value in _objects(body):
        for name, keys in _KEYS.items():
            if keys <= value.keys():
                return name, value
    return None


def learned_answer(world: World, body: ChatBody, rng: random.Random) -> dict[str, Any] | None:
    """The answer of a learning or judging role, or None when the request addresses none."""
    question = _question(body)
    if question is None:
        return None
    name, value = question
    try:
        return _answered(world, name, value, rng)
    except ValidationError:
        return None


def _answered(world: World, name: str, value: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    match name:
        case "tfgrpo_lessons":
            answer = reflect(world.pitfalls, ReflectionAsk.model_validate(value), rng)
        case "tfgrpo_operations":
            answer = curate(world.lexicon, CurationAsk.model_validate(value), rng)
        case "tfgrpo_judgement":
            answer = judge(world, JudgementAsk.model_validate(value), rng)
        case "tfgrpo_comparison":
            answer = compare(world, ComparisonAsk.model_validate(value), rng)
        case _:
            answer = shorten(ShortenAsk.model_validate(value))
    return answer


def structured_answer(body: ChatBody, text: str) -> str:
    """What the actor says, in the form the request asks for: a JSON object, or an instance of any other schema."""
    wanted = body.response_format
    if wanted is None or wanted.type == "text":
        return text
    if wanted.json_schema is None:
        return json.dumps({"answer": text}, ensure_ascii=False)
    return json.dumps(minimal_instance(wanted.json_schema.body, text), ensure_ascii=False)
