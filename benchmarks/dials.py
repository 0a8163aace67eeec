"""Dial how hard the simulated model is to learn on: other engines for the service of the product."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, fmean
from typing import Any, Final
from unittest.mock import patch

from tfgrpo.pipelines.datasets.datasets import load_dataset, shipped_dataset
from tfgrpo.pipelines.settings.tree import SimulatedSettings
from tfgrpo.stores.json_values import json_of, mapping_of, stream
from tfgrpo.tasks.models.simulated import simulated_app
from tfgrpo.tasks.models.simulated.engine import DIFFICULTY_SPREAD, HEAT, HEAT_COST, LESSON_GAIN, SKILL, AdvisedSolver, Engine
from tfgrpo.tasks.models.simulated.protocol import ChatBody, ChatMessage
from tfgrpo.tasks.models.simulated.puzzle import Pitfall, Puzzle, Solver, Turn, advice_in, answer_of, open_world

_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True)
class Dials:
    """How a world is made harder."""

    effect: float | None = None
    """Points of 100 that right lessons about everything gain together at temperature 0.3. None: as the world is."""
    attention: float = 0.0
    """Share of the right answers that each lesson in the prompt spoils."""
    label_noise: float = 0.0
    """Share of final answers that turn out the wrong way round, whatever the work shown before: rewards with noise."""
    misjudged: float = 0.0
    """Share of reflections that take the better attempts for the worse."""
    drifted: bool = False
    """Whether a third of the rules have turned round: what helped harms."""


@dataclass(frozen=True)
class _Solver(AdvisedSolver):
    turned: frozenset[str] = frozenset()
    """Pitfalls on which advice does the opposite of what it did."""

    def shown(self, pitfall: Pitfall, *, avoided: bool) -> str:
        """What looks like the mistake is right where the rule has turned."""
        return super().shown(pitfall, avoided=avoided is not (pitfall.name in self.turned))


class DialledEngine(Engine):
    """The simulated model with its dials turned."""

    def __init__(self, settings: SimulatedSettings, dials: Dials) -> None:
        super().__init__(settings)
        self.dials = dials
        self.turned = turned_rules(settings.world, settings.seed) if dials.drifted else frozenset[str]()

    def turn(self, body: ChatBody, rng: random.Random) -> Turn:
        """Have some reflections judge by the opposite of the rewards."""
        questions = (mapping_of(json_of(each.text)) for each in body.messages if self.dials.misjudged and each.role == "user")
        question = next((each for each in questions if {"attempts", "max_lessons"} <= each.keys()), None)
        if question is not None and rng.random() < self.dials.misjudged:
            opposite = [{**attempt, "reward": -attempt["reward"]} for attempt in question["attempts"]]
            asked = json.dumps({**question, "attempts": opposite})
            user = ChatMessage(role="user", content=asked)
            body = body.model_copy(update={"messages": [body.messages[0], user]})
        return super().turn(body, rng)

    def act(self, body: ChatBody, rng: random.Random) -> Turn:
        """Spoil some right answers, and turn some answers round."""
        turn, dials = super().act(body, rng), self.dials
        if turn.calls or not (dials.attention or dials.label_noise):
            return turn
        puzzle = next(filter(None, (self.world.recognise(m.text) for m in reversed(body.messages))), None)
        if puzzle is None:
            return turn
        spoiled = rng.random() < dials.attention * len(advice_in(body.system)) and puzzle.agrees(turn.text)
        noisy = rng.random() < dials.label_noise
        return turn if spoiled is noisy else Turn(_turned_round(puzzle, turn.text))

    def solver(self, prompt: str, temperature: float, advice: Mapping[str, float], rng: random.Random) -> Solver:
        """Return a solver with the gain of the dials and the rules of the night."""
        known = {name: -value if name in self.turned else value for name, value in advice.items()}
        gain = lesson_gain(self.settings.world, self.dials.effect)
        return _Solver(self.settings.seed, prompt, temperature, known, rng, gain, self.turned)


def _turned_round(puzzle: Puzzle, output: str) -> str:
    """Return the output with a wrong answer if its answer is right, else with the right one; its steps stay."""
    hit = puzzle.world.pitfalls if puzzle.agrees(output) else ()
    return f"{output.rpartition('Answer:')[0]}Answer: {answer_of(puzzle.solved(Solver(hit)))}"


@cache
def lesson_gain(world: str, effect: float | None) -> float:
    """Return the gain at which right lessons about everything add ``effect`` points over the shipped items.

    An item of ``n`` pitfalls succeeds with probability ``Phi(m / s) ** n``, where ``m`` and ``s`` are the mean and the
    standard deviation of the margin over items and draws. Solved by bisection; beyond 10 nearly everything succeeds.
    """
    met = [len(item.metadata["pitfalls"]) for item in load_dataset(shipped_dataset(world))]
    if effect is None or not any(met):
        return LESSON_GAIN
    heat = 0.3  # temperature of the sweep
    mean, spread = SKILL - HEAT_COST * heat, math.hypot(DIFFICULTY_SPREAD, HEAT * heat)

    def success(gain: float) -> float:
        avoided = _NORMAL.cdf((mean + gain) / spread)
        return 100.0 * fmean(avoided**count for count in met)

    low, high = 0.0, 10.0
    for _ in range(40):
        middle = (low + high) / 2.0
        low, high = (low, middle) if success(middle) - success(0.0) > effect else (middle, high)
    return low


@cache
def turned_rules(world: str, seed: int) -> frozenset[str]:
    """Return the third of the pitfalls, at least one, whose rules turn round in the drift."""
    pitfalls = sorted(open_world(world).pitfalls)
    return frozenset(stream(seed, "drift", world).sample(pitfalls, max(len(pitfalls) // 3, 1)))


@contextmanager
def dialled(**dials: Any) -> Iterator[None]:
    """Turn the dials of the simulated model of dry runs in this process, for the length of a block."""

    def app(settings: SimulatedSettings) -> Any:
        return simulated_app(settings, DialledEngine(settings, Dials(**dials)))

    with patch("tfgrpo.tasks.models.simulated.simulated_app", app):
        yield
