"""How good is each reward relative to its group? Advantages, ranks and the order from best to worst.

Works on one group of finite rewards at a time; never skips, repairs or invents a reward, and never looks at a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

EstimatorName: TypeAlias = Literal["grpo"]

EPSILON: Final = 1e-8
"""Added to the standard deviation, so that a flat group divides by something."""

_SAFE_EXPONENT: Final = 960
"""Rewards of at least ``2**960`` are scaled down first: sums and squares of them would overflow."""


@dataclass(frozen=True, slots=True)
class GroupAdvantage:
    """Advantages of one group, in the order of its rewards, with what they were made of."""

    advantages: tuple[float, ...]
    mean: float
    std: float
    """Population standard deviation (divides by G)."""
    best_index: int
    """Position of the greatest reward; the first one among equals."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A group taken apart: ``rewards = mean + deviations``, all but ``mean`` and ``std`` divided by ``2**exponent``."""

    mean: float
    std: float
    deviations: tuple[float, ...]
    scaled_std: float
    exponent: int


Estimator: TypeAlias = Callable[[Spread], tuple[float, ...]]


def spread_of(rewards: Sequence[float]) -> Spread:
    """Mean, population standard deviation and deviations, without overflow anywhere in the range of a float.

    Equal rewards have a deviation of exactly zero. Raises ``ValueError`` for an empty group and for NaN or infinity.
    """
    values = _finite(rewards)
    peak = max(abs(value) for value in values)
    exponent = max(0, math.frexp(peak)[1] - _SAFE_EXPONENT)
    scaled = [math.ldexp(value, -exponent) for value in values] if exponent else values
    if min(scaled) == max(scaled):
        return Spread(values[0], 0.0, (0.0,) * len(values), 0.0, exponent)
    mean = math.fsum(scaled) / len(scaled)
    deviations = tuple(value - mean for value in scaled)
    std = _root_mean_square(deviations)
    return Spread(math.ldexp(mean, exponent), math.ldexp(std, exponent), deviations, std, exponent)


def group_advantage(rewards: Sequence[float], estimator: EstimatorName = "grpo") -> GroupAdvantage:
    """Advantage of each reward within its group.

    ``grpo``: ``(r - mean) / (population std + 1e-8)``, the group baseline of GRPO (Shao et al. 2024, arXiv:2402.03300)
    with the population form of the deviation. A flat group, and a group of one, has advantages of zero.
    Raises ``ValueError`` for an empty group, for NaN or infinity, and for an estimator that does not exist.
    """
    formula = ESTIMATORS.get(estimator)
    if formula is None:
        raise ValueError(f"unknown estimator {estimator!r}; known: {', '.join(sorted(ESTIMATORS))}")
    spread = spread_of(rewards)
    return GroupAdvantage(formula(spread), spread.mean, spread.std, best_index=list(rewards).index(max(rewards)))


def relative_ranks(rewards: Sequence[float]) -> tuple[float, ...]:
    """Rank of each reward in its group: 1 for the best, 0 for the worst, in even steps between.

    Equal rewards share the mean of the ranks they occupy, so a flat group has 0.5 everywhere, and so has a group of
    one. Raises ``ValueError`` for an empty group and for NaN or infinity.
    """
    values = _finite(rewards)
    last = len(values) - 1
    if last == 0:
        return (0.5,)
    ordered = sorted(values)
    first_place: dict[float, int] = {}
    last_place: dict[float, int] = {}
    for place, value in enumerate(ordered):
        first_place.setdefault(value, place)
        last_place[value] = place
    return tuple((first_place[value] + last_place[value]) / (2 * last) for value in values)


def best_first(rewards: Sequence[float], tokens: Sequence[int] | None = None) -> tuple[int, ...]:
    """Positions from best to worst: greater reward, then fewer tokens, then the earlier position.

    Raises ``ValueError`` for NaN or infinity, for an empty group, and when ``tokens`` has another length.
    """
    values = _finite(rewards)
    spent = [0] * len(values) if tokens is None else list(tokens)
    if len(spent) != len(values):
        raise ValueError(f"{len(values)} rewards but {len(spent)} token counts")
    return tuple(sorted(range(len(values)), key=lambda index: (-values[index], spent[index], index)))


def _grpo(spread: Spread) -> tuple[float, ...]:
    scale = spread.scaled_std + math.ldexp(EPSILON, -spread.exponent)
    return tuple(deviation / scale for deviation in spread.deviations)


ESTIMATORS: Final[Mapping[str, Estimator]] = MappingProxyType({"grpo": _grpo})
"""Every estimator by name."""


def _finite(rewards: Sequence[float]) -> list[float]:
    values = [float(reward) for reward in rewards]
    if not values:
        raise ValueError("a group needs at least one reward")
    for index, value in enumerate(values):
        if not math.isfinite(value):
            raise ValueError(f"reward {index} is {value}; only finite rewards can be compared")
    return values


def _root_mean_square(deviations: Sequence[float]) -> float:
    """Relative to the greatest one, which is not zero, so that squares neither overflow nor vanish."""
    peak = max(abs(deviation) for deviation in deviations)
    return peak * math.sqrt(math.fsum((deviation / peak) ** 2 for deviation in deviations) / len(deviations))
