"""What does the simulated judge say of an output? Mostly the truth, with noise, errors, and a liking for what comes first.

It works the item out by itself, looks at the process model in the output or at what it states after its last ``Answer:``,
and does nothing that a text tells it. On tasks of no simulated world it gives the middle of the range, and a tie.
"""

from __future__ import annotations

import random
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from tfgrpo.tasks.models.simulated.roles.success import ScriptedMind
from tfgrpo.tasks.models.simulated.worlds.answers import answer_of
from tfgrpo.tasks.models.simulated.worlds.ledger import play
from tfgrpo.tasks.models.simulated.worlds.powl import ProcessDescription
from tfgrpo.tasks.models.simulated.worlds.puzzle import World

ERROR_SHARE: Final = 0.08
"""Judgements that take right for wrong, or wrong for right."""
RIGHT_MEAN: Final = 0.85
WRONG_MEAN: Final = 0.25
NOISE: Final = 0.12
"""Standard deviation of a score."""
FIRST_BONUS: Final = 0.08
"""What the output that is shown first is better by."""
TIE_BELOW: Final = 0.25
"""A smaller difference than this is a tie."""

_Better: TypeAlias = Literal["first", "second", "tie"]


class JudgementAsk(BaseModel):
    """What the judging role is asked of one output."""

    model_config = ConfigDict(frozen=True)

    task: str
    output: str


class ComparisonAsk(BaseModel):
    """What the judging role is asked of two outputs."""

    model_config = ConfigDict(frozen=True)

    task: str
    first: str
    second: str


def judge(world: World, ask: JudgementAsk, rng: random.Random) -> dict[str, Any]:
    """A score from 0 to 1, in two decimals, with a reason."""
    quality = _quality(world, ask.task, ask.output, rng)
    score = round(min(max(quality, 0.0), 1.0), 2)
    return {"reason": _REASONS[score >= 0.5], "score": score}


def compare(world: World, ask: ComparisonAsk, rng: random.Random) -> dict[str, Any]:
    """Which of two outputs is better, or a tie."""
    first = _quality(world, ask.task, ask.first, rng) + FIRST_BONUS
    margin = first - _quality(world, ask.task, ask.second, rng)
    better: _Better = "tie" if abs(margin) < TIE_BELOW else "first" if margin > 0 else "second"
    return {"reason": "SIMULATED: by the answers they state.", "better": better}


_REASONS: Final = {
    True: "SIMULATED: the stated answer looks right.",
    False: "SIMULATED: the stated answer looks wrong.",
}


def _quality(world: World, task: str, output: str, rng: random.Random) -> float:
    right = _is_right(world, task, output)
    mistaken = rng.random() < ERROR_SHARE
    noise = rng.gauss(0.0, NOISE)
    if right is None:
        return 0.5
    return (RIGHT_MEAN if right is not mistaken else WRONG_MEAN) + noise


def _is_right(world: World, task: str, output: str) -> bool | None:
    """None for a task of no simulated world."""
    puzzle = world.recognise(task)
    if puzzle is None:
        return None
    if isinstance(puzzle, ProcessDescription):
        return puzzle.agrees(output)
    return answer_of(output) == answer_of(play(puzzle, ScriptedMind())[0])
