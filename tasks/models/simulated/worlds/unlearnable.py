"""What is the ``unlearnable`` world? Sealed envelopes: success is luck, and no text changes it.

Attempts show habits that look like causes, so that lessons get written, and the gate has something to refuse.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tfgrpo.stores.seeds import derive_seed, stream
from tfgrpo.tasks.models.simulated.roles.lexicon import Lexicon
from tfgrpo.tasks.models.simulated.roles.success import Mind
from tfgrpo.tasks.models.simulated.worlds.draws import name, quantity
from tfgrpo.tasks.models.simulated.worlds.habits import HABITS
from tfgrpo.tasks.models.simulated.worlds.pitfalls.pitfall import Pitfall
from tfgrpo.tasks.models.simulated.worlds.puzzle import Dialogue, Draft, Speech
from tfgrpo.tasks.models.simulated.worlds.word_problems.template import Slots, Template

_CARDS = 3
_LUCK = (0.25, 0.65)
"""The share of lucky attempts lies between these, item by item."""
_HABITS_SHOWN = 2


def _draw(rng: random.Random) -> Slots:
    colour = rng.choice(("red", "blue", "green", "grey"))
    return {"who": name(rng), "colour": colour, "label": quantity(rng, 1000, 9999)}


ENVELOPE = Template(
    "envelope",
    "{who} has put a card with the number 1, 2 or 3 into the {colour} envelope with the label {label} and sealed it. "
    "Some old and some new notes about it disagree. Which number is on the card?",
    _draw,
)


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

    def attempt(self, mind: Mind, dialogue: Dialogue) -> Speech:  # noqa: ARG002
        """A guess with its story, in one turn. Habits and luck are drawn apart from each other and from the lessons."""
        rng = stream(0, "envelope", *self._identity)
        share = rng.uniform(*_LUCK)
        habits = rng.sample(HABITS, _HABITS_SHOWN)
        told = [mind.pick(habit.shown_avoided if mind.lucky(0.5) else habit.shown_hit) for habit in habits]
        guess = self.card if mind.lucky(share) else 1 + self.card % _CARDS
        steps = [f"Step {index}: {habit}: weighed the notes" for index, habit in enumerate(told, start=1)]
        return Speech("\n".join([*steps, f"Answer: {guess}"]))


@dataclass(frozen=True, slots=True)
class Unlearnable:
    """Envelopes. Its lexicon knows the habits, so that the learning roles behave as they do elsewhere."""

    name: str = "unlearnable"
    domain: str = "arithmetic"
    prefix: str = "un"
    pitfalls: tuple[Pitfall, ...] = HABITS
    lexicon: Lexicon = field(default_factory=lambda: Lexicon(HABITS), compare=False)

    def recognise(self, text: str) -> SealedEnvelope | None:
        """The envelope in a prompt."""
        slots = ENVELOPE.read(text)
        return None if slots is None else SealedEnvelope(slots)

    def draft(self, rng: random.Random) -> Draft | None:
        """A random envelope."""
        slots = _draw(rng)
        return Draft(ENVELOPE.name, ENVELOPE.filled(slots), str(SealedEnvelope(slots).card), ())
