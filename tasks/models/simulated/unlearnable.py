"""The ``unlearnable`` world: sealed envelopes, where success is luck and no lesson changes it.

Attempts show habits that look like causes, so that lessons get written, which no decision may put into force.
"""

from __future__ import annotations

from tfgrpo.stores.json_values import derive_seed, stream
from tfgrpo.tasks.models.simulated.puzzle import Puzzle, Solver, World

_CARDS = 3
_LUCK = (0.25, 0.65)
"""The share of lucky attempts lies between these, item by item."""
_HABITS_SHOWN = 2


class _SealedEnvelope(Puzzle):
    def solved(self, solver: Solver) -> str:
        """Habits and luck are drawn independently of each other and of the lessons."""
        identity = self.slots["who"], self.slots["colour"], self.slots["label"]
        card = 1 + derive_seed(0, "card", *identity) % _CARDS
        rng = stream(0, "envelope", *identity)
        share = rng.uniform(*_LUCK)
        habits = rng.sample(tuple(self.world.pitfalls.values()), _HABITS_SHOWN)
        shown = [solver.shown(habit, avoided=solver.lucky(0.5)) for habit in habits]
        guess = card if solver.lucky(share) else 1 + card % _CARDS
        steps = [f"Step {index}: {habit}: weighed the notes" for index, habit in enumerate(shown, start=1)]
        return "\n".join([*steps, f"Answer: {guess}"])


UNLEARNABLE = World("unlearnable", __file__, _SealedEnvelope)
