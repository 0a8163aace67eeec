"""What does the simulated actor say to an item? It recognises it from the text; of other tasks it knows nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from tfgrpo.tasks.models.simulated.roles.success import AdvisedMind
from tfgrpo.tasks.models.simulated.service.protocol import ChatBody, WireMessage
from tfgrpo.tasks.models.simulated.worlds.puzzle import Dialogue, DoneCall, Speech, World

DEFAULT_TEMPERATURE = 1.0
UNKNOWN = "SIMULATED reply: this is no item of a simulated world, so there is nothing to work out.\nAnswer: 0"


def act(world: World, body: ChatBody, seed: int, rng: random.Random) -> Speech:
    """The actor's next turn."""
    system = "\n".join(message.text for message in body.messages if message.role in {"system", "developer"})
    at = max((i for i, message in enumerate(body.messages) if message.role == "user"), default=None)
    put = "" if at is None else body.messages[at].text
    puzzle = world.recognise(put)
    if at is None or puzzle is None:
        return Speech(UNKNOWN)
    temperature = DEFAULT_TEMPERATURE if body.temperature is None else body.temperature
    mind = AdvisedMind(seed, put, temperature, world.lexicon.advice(system), rng)
    return puzzle.attempt(mind, _dialogue(body.messages[at + 1 :], body.offered))


def _dialogue(messages: Sequence[WireMessage], tools: frozenset[str]) -> Dialogue:
    results = {message.tool_call_id: message.text for message in messages if message.role == "tool"}
    said = (line for message in messages if message.role == "assistant" for line in message.text.splitlines())
    calls = tuple(
        DoneCall(call.function.name, _arguments(call.function.arguments), results[call.id])
        for message in messages
        for call in message.tool_calls or ()
    )
    return Dialogue(tuple(line for line in said if line.startswith("Step ")), calls, tools)


def _arguments(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
