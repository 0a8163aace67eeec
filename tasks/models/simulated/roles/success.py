"""Does this attempt avoid that pitfall? The probability model of the simulated actor, and nothing about worlds or wire.

For one pitfall the attempt has a margin,
``SKILL + LESSON_GAIN * advice + DIFFICULTY_SPREAD * d - HEAT_COST * T + HEAT * T * z``:
``advice`` in [-1, 1] is how the prompt's lessons bear on it, ``d`` is a normal draw that stays with the item,
``z`` a normal draw of this request, ``T`` the temperature. It avoids the pitfall when the margin is above zero. So heat
makes attempts differ from each other and a little worse, and at ``T = 0`` every attempt at an item goes the same way.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol, TypeVar

from tfgrpo.stores.seeds import derive_seed
from tfgrpo.tasks.models.simulated.worlds.pitfalls.pitfall import Pitfall

SKILL = 0.2
"""Margin without lessons at temperature 0, in units of the normal draws."""
LESSON_GAIN = 1.0
"""What right advice adds to the margin; wrong advice takes the same away."""
DIFFICULTY_SPREAD = 0.6
"""Standard deviation of the part of the margin that belongs to the item."""
HEAT_COST = 0.3
HEAT = 1.4

T = TypeVar("T")
_NORMAL = NormalDist()


class Mind(Protocol):
    """What a puzzle may ask of whoever attempts it."""

    def avoids(self, pitfall: Pitfall) -> bool:
        """Whether this attempt gets past the pitfall."""
        ...

    def pick(self, options: Sequence[T]) -> T:
        """One of several ways to say the same."""
        ...

    def lucky(self, share: float) -> bool:
        """True in this share of attempts, whatever the prompt says."""
        ...


def difficulty(seed: int, prompt: str, pitfall: str) -> float:
    """A standard normal draw that belongs to the item, whoever attempts it."""
    return _NORMAL.inv_cdf((derive_seed(seed, "difficulty", prompt, pitfall) + 0.5) / 2.0**53)


@dataclass(frozen=True, slots=True)
class AdvisedMind:
    """An attempt by the simulated actor: lessons help, heat scatters."""

    seed: int
    prompt: str
    temperature: float
    advice: Mapping[str, float]
    rng: random.Random

    def avoids(self, pitfall: Pitfall) -> bool:
        """Whether the margin is above zero."""
        steady = SKILL + LESSON_GAIN * self.advice.get(pitfall.name, 0.0)
        item = DIFFICULTY_SPREAD * difficulty(self.seed, self.prompt, pitfall.name)
        heat = self.temperature * (HEAT * self.rng.gauss(0.0, 1.0) - HEAT_COST)
        return steady + item + heat > 0.0

    def pick(self, options: Sequence[T]) -> T:
        """Any of them, evenly."""
        return self.rng.choice(options)

    def lucky(self, share: float) -> bool:
        """A draw that neither lessons nor temperature move."""
        return self.rng.random() < share


@dataclass(frozen=True, slots=True)
class ScriptedMind:
    """An attempt that falls into exactly the named pitfalls; what items are generated and checked with."""

    hit: frozenset[str] = frozenset()
    lucky_always: bool = True

    def avoids(self, pitfall: Pitfall) -> bool:
        """True unless the pitfall is one of those named."""
        return pitfall.name not in self.hit

    def pick(self, options: Sequence[T]) -> T:
        """The first."""
        return options[0]

    def lucky(self, share: float) -> bool:  # noqa: ARG002
        """Always, or never."""
        return self.lucky_always
