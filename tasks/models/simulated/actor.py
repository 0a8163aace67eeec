"""The actor: recognises the item in a prompt and attempts it, better with the right lessons in its system prompt.

For one pitfall the attempt has a margin,
``SKILL + LESSON_GAIN * advice + DIFFICULTY_SPREAD * d - HEAT_COST * T + HEAT * T * z``:
``advice`` in [-1, 1] is how the prompt's lessons bear on it, ``d`` is a normal draw that belongs to the item,
``z`` a normal draw of this request, ``T`` the temperature. It avoids the pitfall when the margin is above zero. So heat
makes attempts differ from each other and a little worse, and at ``T = 0`` every attempt at an item goes the same way.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeVar

from tfgrpo.stores.seeds import derive_seed
from tfgrpo.tasks.models.simulated.protocol import ChatBody, WireMessage
from tfgrpo.tasks.models.simulated.worlds import Dialogue, ToolResult, Turn, World

SKILL = 0.2
"""Margin without lessons at temperature 0, in units of the normal draws."""
LESSON_GAIN = 1.0
"""What right advice adds to the margin; wrong advice takes the same away."""
DIFFICULTY_SPREAD = 0.6
"""Standard deviation of the item's share of the margin."""
HEAT_COST = 0.3
HEAT = 1.4

UNKNOWN = "SIMULATED reply: this is no item of a simulated world, so there is nothing to work out.\nAnswer: 0"
_NORMAL = NormalDist()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AdvisedSolver:
    """Solver by the margin above: lessons help, heat scatters."""

    seed: int
    prompt: str
    temperature: float
    advice: Mapping[str, float]
    rng: random.Random

    def avoids(self, pitfall: str) -> bool:
        """Whether the margin is above zero."""
        difficulty = derive_seed(self.seed, "difficulty", self.prompt, pitfall)
        item = DIFFICULTY_SPREAD * _NORMAL.inv_cdf((difficulty + 0.5) / 2.0**53)
        steady = SKILL + LESSON_GAIN * self.advice.get(pitfall, 0.0)
        heat = self.temperature * (HEAT * self.rng.gauss(0.0, 1.0) - HEAT_COST)
        return steady + item + heat > 0.0

    def pick(self, options: Sequence[T]) -> T:
        """Return any of them, with equal chances."""
        return self.rng.choice(options)

    def lucky(self, share: float) -> bool:
        """True with this probability, independent of lessons and temperature."""
        return self.rng.random() < share


def act(world: World, body: ChatBody, seed: int, rng: random.Random) -> Turn:
    """Return the actor's next turn; ``UNKNOWN`` for a prompt without an item of the world."""
    system = "\n".join(message.text for message in body.messages if message.role in {"system", "developer"})
    user = max((i for i, message in enumerate(body.messages) if message.role == "user"), default=None)
    prompt = "" if user is None else body.messages[user].text
    puzzle = world.recognise(prompt)
    if user is None or puzzle is None:
        return Turn(UNKNOWN)
    temperature = 1.0 if body.temperature is None else body.temperature  # 1 is the default of the OpenAI API
    solver = AdvisedSolver(seed, prompt, temperature, world.lexicon.advice(system), rng)
    return puzzle.attempt(solver, _dialogue(body.messages[user + 1 :], body.offered))


def _dialogue(messages: Sequence[WireMessage], tools: frozenset[str]) -> Dialogue:
    returned = {message.tool_call_id: message.text for message in messages if message.role == "tool"}
    lines = (line for message in messages if message.role == "assistant" for line in message.text.splitlines())
    results = tuple(
        ToolResult(call.function.name, returned[call.id]) for message in messages for call in message.tool_calls or ()
    )
    return Dialogue(tuple(line for line in lines if line.startswith("Step ")), results, tools)
