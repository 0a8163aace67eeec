"""Mean, deviations, standard deviation and ranks of one group of finite rewards, without overflow in the range of a float."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Final

_SAFE_EXPONENT: Final = 960
"""Rewards of at least ``2**960`` are scaled down first: their sums and squares would overflow."""


@dataclass(frozen=True, slots=True)
class Spread:
    """``rewards = mean + deviations``; ``deviations`` and ``scaled_std`` are divided by ``2**exponent``."""

    mean: float
    std: float
    """Population standard deviation (divides by G)."""
    deviations: tuple[float, ...]
    scaled_std: float
    exponent: int


def spread_of(rewards: Sequence[float]) -> Spread:
    """Return mean, population standard deviation and deviations of a group.

    Equal rewards have a deviation of exactly zero. Raises ``ValueError`` for an empty group and for NaN or infinity.
    """
    values = finite_rewards(rewards)
    exponent = max(0, math.frexp(max(map(abs, values)))[1] - _SAFE_EXPONENT)
    scaled = [math.ldexp(value, -exponent) for value in values] if exponent else values
    if min(scaled) == max(scaled):
        return Spread(values[0], 0.0, (0.0,) * len(values), 0.0, exponent)
    mean = math.fsum(scaled) / len(scaled)
    deviations = tuple(value - mean for value in scaled)
    # Relative to the greatest deviation, so that squares neither overflow nor vanish.
    peak = max(map(abs, deviations))
    std = peak * math.sqrt(math.fsum((deviation / peak) ** 2 for deviation in deviations) / len(deviations))
    return Spread(math.ldexp(mean, exponent), math.ldexp(std, exponent), deviations, std, exponent)


def finite_rewards(rewards: Sequence[float]) -> list[float]:
    """Return the rewards as floats. Raises ``ValueError`` for an empty group and for anything but finite numbers."""
    values = []
    for index, reward in enumerate(rewards):
        number: object = reward
        if not isinstance(number, Real):
            hint = "; omit rollouts without a reward" if reward is None else ""
            raise ValueError(f"reward {index} is {reward!r}; only finite rewards can be compared{hint}")
        values.append(float(reward))
        if not math.isfinite(values[-1]):
            raise ValueError(f"reward {index} is {values[-1]}; only finite rewards can be compared")
    if not values:
        raise ValueError("a group needs at least one reward")
    return values


def relative_ranks(rewards: Sequence[float]) -> tuple[float, ...]:
    """Return the rank of each reward in its group: 1 for the best, 0 for the worst, in even steps.

    Equal rewards share the mean of their ranks, so a flat group, and a group of one, has 0.5 throughout. Raises
    ``ValueError`` for an empty group and for NaN or infinity.
    """
    values = finite_rewards(rewards)
    last = len(values) - 1
    if last == 0:
        return (0.5,)
    first_index: dict[float, int] = {}
    last_index: dict[float, int] = {}
    for index, value in enumerate(sorted(values)):
        first_index.setdefault(value, index)
        last_index[value] = index
    return tuple((first_index[value] + last_index[value]) / (2 * last) for value in values)


def best_first(rewards: Sequence[float], tokens: Sequence[int | None] | None = None) -> tuple[int, ...]:
    """Return indices from best to worst: greater reward, then fewer tokens (unknown last), then the earlier index.

    Raises ``ValueError`` for NaN or infinity, for an empty group, and when ``tokens`` has another length.
    """
    values = finite_rewards(rewards)
    costs = [0] * len(values) if tokens is None else [math.inf if count is None else count for count in tokens]
    if len(costs) != len(values):
        raise ValueError(f"{len(values)} rewards but {len(costs)} token counts")
    return tuple(sorted(range(len(values)), key=lambda index: (-values[index], costs[index], index)))
