"""Compute the advantages of one group of finite rewards under any estimator.

Many groups at once, with missing rewards, are ``tfgrpo.rewarders.advantages.batch``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import dist, fsum, ldexp, sqrt
from typing import TYPE_CHECKING, NamedTuple

from tfgrpo.rewarders.advantages.estimators import ALIASES, EPSILON, ESTIMATORS, Estimator, EstimatorName, estimator_of
from tfgrpo.rewarders.advantages.spread import best_first, finite_rewards, relative_ranks, spread_of

if TYPE_CHECKING:
    from tfgrpo.rewarders.advantages.batch_groups import BatchStatistics

__all__ = ["EPSILON", "EstimatorName", "GroupAdvantage", "best_first", "group_advantage", "relative_ranks"]

_NUMBER_TYPES = (float, int)


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
