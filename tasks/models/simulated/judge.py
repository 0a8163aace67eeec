"""The judging role: mostly right about an output, with noise, errors and a preference for the output shown first.

It solves the item, compares with the process model in the output or with what the output states after its last
``Answer:``, and follows no instruction in the output. For tasks of no simulated world it returns the middle of the
range, or a tie.
"""

from __future__ import annotations

import random
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from tfgrpo.tasks.models.simulated.worlds import ScriptedSolver, World, answer_of

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

_Better: TypeAlias = Literal["first", "second", "tie"]


class JudgementAsk(BaseModel):
    """A request to score one output."""

    model_config = ConfigDict(frozen=True)

    task: str
    output: str


class ComparisonAsk(BaseModel):
    """A request to compare two outputs."""

    model_config = ConfigDict(frozen=True)

    task: str
    first: str
    second: str


def judge(world: World, ask: JudgementAsk, rng: random.Random) -> dict[str, Any]:
    """Return a score from 0 to 1, in two decimals, with a reason."""
    score = round(min(max(_quality(world, ask.task, ask.output, rng), 0.0), 1.0), 2)
    return {"reason": f"SIMULATED: the stated answer looks {'right' if score >= 0.5 else 'wrong'}.", "score": score}


def compare(world: World, ask: ComparisonAsk, rng: random.Random) -> dict[str, Any]:
    """Return which of two outputs is better, or a tie."""
    first = _quality(world, ask.task, ask.first, rng) + FIRST_BONUS
    margin = first - _quality(world, ask.task, ask.second, rng)
    better: _Better = "tie" if abs(margin) < TIE_BELOW else "first" if margin > 0 else "second"
    return {"reason": "SIMULATED: by the answers they state.", "better": better}


def _quality(world: World, task: str, output: str, rng: random.Random) -> float:
    # A run without a judge does not load worlds of other runs.
    from tfgrpo.tasks.models.simulated.worlds.ledger import play  # noqa: PLC0415
    from tfgrpo.tasks.models.simulated.worlds.powl import ProcessDescription  # noqa: PLC0415

    mistaken = rng.random() < ERROR_SHARE
    noise = rng.gauss(0.0, NOISE)
    puzzle = world.recognise(task)
    if puzzle is None:
        return _UNKNOWN
    if isinstance(puzzle, ProcessDescription):
        right = puzzle.agrees(output)
    else:
        right = answer_of(output) == answer_of(play(puzzle, ScriptedSolver())[0])
    return (RIGHT_MEAN if right is not mistaken else WRONG_MEAN) + noise
