"""Compute the advantages of one group of finite rewards under any estimator.

Many groups at once, with missing rewards, are ``tfgrpo.rewarders.advantages.batch``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import dist, frexp, fsum, inf, ldexp, sqrt
from numbers import Real
from typing import TYPE_CHECKING, Final, NamedTuple

from tfgrpo.rewarders.advantages.estimators import ALIASES, EPSILON, ESTIMATORS, Estimator, EstimatorName, estimator_of
from tfgrpo.stores.numeric import is_finite

if TYPE_CHECKING:
    from tfgrpo.rewarders.advantages.batch_groups import BatchStatistics

_NUMBER_TYPES: Final = (float, int)
_SAFE_EXPONENT: Final = 960
"""Rewards of at least ``2**960`` are scaled down first: their sums and squares would overflow."""


class GroupAdvantage(NamedTuple):
    """Advantages of one group, in the order of its rewards, with the statistics behind them."""

    advantages: tuple[float, ...]
    mean: float
    std: float
    """Population standard deviation (divides by G), whichever divisor the estimator has."""
    best_index: int
    """Index of the greatest reward; the first one among equals."""


def group_advantage(
    rewards: Sequence[float],
    estimator: EstimatorName | Estimator = "grpo",
    *,
    token_lengths: Sequence[float] | None = None,
    batch: BatchStatistics | None = None,
    greedy: float | None = None,
) -> GroupAdvantage:
    """Return the advantage of each reward within its group.

    ``estimator``: a name or alias of ``advantages.estimators``, or an ``Estimator`` with other constants. The default
    ``grpo`` is ``(r - mean) / (population std + 1e-8)``, the group baseline of GRPO (Shao et al. 2024,
    arXiv:2402.03300). A flat group has advantages of zero, and so has a group of one unless the estimator says
    otherwise. ``token_lengths``: tokens of each completion, for ``opo``. ``batch``: the result of
    ``batch.batch_statistics``, for estimators that use all groups. ``greedy``: reward of the greedy rollout, for
    ``remax``.

    Raises ``ValueError`` for an empty group, for NaN or infinity, for an unknown estimator, and when something that
    the estimator needs is missing.
    """
    if estimator == "grpo" and rewards.__class__ is list:
        # The one call that every group of a run makes. Unusual and wrong input takes the general path below.
        try:
            count = len(rewards)
            mean = fsum(rewards) / count
            std = dist(rewards, (mean,) * count) / sqrt(count)
            # The sum has a plain type only if all rewards have: a single float32 among them changes it.
            usual = sum(rewards).__class__ in _NUMBER_TYPES
            if usual and 1e-150 < std < 1e150 and std > 1e-9 * abs(mean):
                scale = std + EPSILON
                advantages = tuple([(reward - mean) / scale for reward in rewards])
                # The generated constructor does the same at twice the cost, a tenth of the whole call.
                return tuple.__new__(GroupAdvantage, (advantages, mean, std, rewards.index(max(rewards))))
        except (ArithmeticError, TypeError, ValueError):
            pass
    values = finite_rewards(rewards)
    spread = spread_of(values)
    chosen = estimator_of(estimator)
    if chosen == ESTIMATORS[ALIASES["grpo"]]:
        # Flat groups of a run come here: no numpy for them.
        scale = spread.scaled_std + ldexp(EPSILON, -spread.exponent)
        advantages = tuple(deviation / scale for deviation in spread.deviations)
    else:
        from tfgrpo.rewarders.advantages.batch import advantages_of_group  # noqa: PLC0415  loads numpy

        advantages = advantages_of_group(chosen, values, token_lengths, batch, greedy)
    return GroupAdvantage(advantages, spread.mean, spread.std, values.index(max(values)))


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
    exponent = max(0, frexp(max(map(abs, values)))[1] - _SAFE_EXPONENT)
    scaled = [ldexp(value, -exponent) for value in values] if exponent else values
    if min(scaled) == max(scaled):
        return Spread(values[0], 0.0, (0.0,) * len(values), 0.0, exponent)
    mean = fsum(scaled) / len(scaled)
    deviations = tuple(value - mean for value in scaled)
    # Relative to the greatest deviation, so that squares neither overflow nor vanish.
    peak = max(map(abs, deviations))
    std = peak * sqrt(fsum((deviation / peak) ** 2 for deviation in deviations) / len(deviations))
    return Spread(ldexp(mean, exponent), ldexp(std, exponent), deviations, std, exponent)


def finite_rewards(rewards: Sequence[float]) -> list[float]:
    """Return the rewards as floats. Raises ``ValueError`` for an empty group and for anything but finite numbers."""
    values = []
    for index, reward in enumerate(rewards):
        number: object = reward
        if not isinstance(number, Real):
            hint = "; omit rollouts without a reward" if reward is None else ""
            raise ValueError(f"reward {index} is {reward!r}; only finite rewards can be compared{hint}")
        if not is_finite(reward):
            raise ValueError(f"reward {index} is {reward}; only finite rewards can be compared")
        values.append(float(reward))
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
    costs = [0] * len(values) if tokens is None else [inf if count is None else count for count in tokens]
    if len(costs) != len(values):
        raise ValueError(f"{len(values)} rewards but {len(costs)} token counts")
    return tuple(sorted(range(len(values)), key=lambda index: (-values[index], costs[index], index)))
