"""How far do the rewards of one group lie apart? Mean, deviations and standard deviation in the whole range of a float.

Works on one group of finite rewards; never skips, repairs or invents a reward.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Final

_SAFE_EXPONENT: Final = 960
"""Rewards of at least ``2**960`` are scaled down first: sums and squares of them would overflow."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A group taken apart: ``rewards = mean + deviations``, all but ``mean`` and ``std`` divided by ``2**exponent``."""

    mean: float
    std: float
    """Population standard deviation (divides by G)."""
    deviations: tuple[float, ...]
    scaled_std: float
    exponent: int


def spread_of(rewards: Sequence[float]) -> Spread:
    """Mean, population standard deviation and deviations, without overflow anywhere in the range of a float.

    Equal rewards have a deviation of exactly zero. Raises ``ValueError`` for an empty group and for NaN or infinity.
    """
    values = finite_rewards(rewards)
    peak = max(abs(value) for value in values)
    exponent = max(0, math.frexp(peak)[1] - _SAFE_EXPONENT)
    scaled = [math.ldexp(value, -exponent) for value in values] if exponent else values
    if min(scaled) == max(scaled):
        return Spread(values[0], 0.0, (0.0,) * len(values), 0.0, exponent)
    mean = math.fsum(scaled) / len(scaled)
    deviations = tuple(value - mean for value in scaled)
    std = _root_mean_square(deviations)
    return Spread(math.ldexp(mean, exponent), math.ldexp(std, exponent), deviations, std, exponent)


def finite_rewards(rewards: Sequence[float]) -> list[float]:
    """The rewards as floats. Raises ``ValueError`` for an empty group, and for what is no finite number."""
    values = [_number(reward, index) for index, reward in enumerate(rewards)]
    if not values:
        raise ValueError("a group needs at least one reward")
    for index, value in enumerate(values):
        if not math.isfinite(value):
            raise ValueError(f"reward {index} is {value}; only finite rewards can be compared")
    return values


def _number(reward: object, index: int) -> float:
    if isinstance(reward, Real):
        return float(reward)
    hint = "; leave out what has none" if reward is None else ""
    raise ValueError(f"reward {index} is {reward!r}; only finite rewards can be compared{hint}")


def _root_mean_square(deviations: Sequence[float]) -> float:
    """Relative to the greatest one, which is not zero, so that squares neither overflow nor vanish."""
    peak = max(abs(deviation) for deviation in deviations)
    return peak * math.sqrt(math.fsum((deviation / peak) ** 2 for deviation in deviations) / len(deviations))
