"""Attempt generated items of the simulated worlds without a server, and measure the share of right answers."""

import random
from collections.abc import Iterable, Sequence
from typing import Any

from tfgrpo.stores.json_values import derive_seed
from tfgrpo.tasks.models.simulated.engine import AdvisedSolver
from tfgrpo.tasks.models.simulated.puzzle import Advice, World, answer_of


def with_lessons(lessons: Iterable[Advice]) -> str:
    """Return a system prompt with a lessons block."""
    lines = "\n".join(f"- {lesson.polarity.capitalize()}: {lesson.text}" for lesson in lessons)
    return f"You solve tasks.\n<lessons>\nNotes from earlier attempts.\n{lines}\n</lessons>"


def attempt(world: World, prompt: str, system: str, temperature: float, seed: int, index: int) -> str:
    """Return the final text of one attempt."""
    puzzle = world.recognise(prompt)
    assert puzzle is not None
    rng = random.Random(derive_seed(seed, prompt, system, str(temperature), index))
    solver = AdvisedSolver(seed, prompt, temperature, world.advice(system), rng)
    return puzzle.solved(solver)


def success(
    world: World, items: Sequence[dict[str, Any]], system: str = "", temperature: float = 0.3, seed: int = 0, tries: int = 3
) -> float:
    """Return the share of attempts with the right answer."""
    right: int = sum(
        answer_of(attempt(world, item["prompt"], system, temperature, seed, index)) == item["answer"]
        for item in items
        for index in range(tries)
    )
    return right / (len(items) * tries)
