"""The ``unlearnable`` world: sealed envelopes, where success is luck and no lesson changes it.

Attempts show habits that look like causes, so that lessons get written, which the gate has to refuse.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tfgrpo.stores.seeds import derive_seed, stream
from tfgrpo.tasks.models.simulated.worlds.data import Slots, load_world, match_template
from tfgrpo.tasks.models.simulated.worlds.puzzle import Dialogue, Draft, Solver, Turn

_CARDS = 3
_LUCK = (0.25, 0.65)
"""The share of lucky attempts lies between these, item by item."""
_HABITS_SHOWN = 2


@dataclass(frozen=True, slots=True)
class SealedEnvelope:
    """One recognised envelope."""

    slots: Slots

    @property
    def card(self) -> int:
        """The number inside."""
        return 1 + derive_seed(0, "card", *self._identity) % _CARDS

    @property
    def _identity(self) -> tuple[str, ...]:
        return self.slots["who"], self.slots["colour"], self.slots["label"]

    def attempt(self, solver: Solver, dialogue: Dialogue) -> Turn:  # noqa: ARG002
        """Return a guess in one turn. Habits and luck are drawn independently of each other and of the lessons."""
        rng = stream(0, "envelope", *self._identity)
        share = rng.uniform(*_LUCK)
        habits = rng.sample(tuple(load_world("unlearnable").pitfalls.values()), _HABITS_SHOWN)
        shown = [solver.pick(habit.shown_avoided if solver.lucky(0.5) else habit.shown_hit) for habit in habits]
        guess = self.card if solver.lucky(share) else 1 + self.card % _CARDS
        steps = [f"Step {index}: {habit}: weighed the notes" for index, habit in enumerate(shown, start=1)]
        return Turn("\n".join([*steps, f"Answer: {guess}"]))


def recognise(text: str) -> SealedEnvelope | None:
    """Return the envelope in a prompt."""
    match = match_template(load_world("unlearnable").templates, text)
    return None if match is None else SealedEnvelope(match[1])


def draft(rng: random.Random) -> Draft:
    """Return a random envelope."""
    (template,) = load_world("unlearnable").templates
    slots = template.draw(rng)
    return Draft(template.name, template.fill(slots), str(SealedEnvelope(slots).card), ())
