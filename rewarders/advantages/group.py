"""How good is each reward relative to its group? The advantages of one group, under any estimator.

Works on one group of finite rewards at a time; never skips, repairs or invents a reward. Many groups at once, with
rewards missing, are for ``tfgrpo.rewarders.advantages.batch``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import dist, fsum, sqrt
from typing import NamedTuple

from tfgrpo.rewarders.advantages.estimators import EPSILON, Estimator, EstimatorName, estimator_of
from tfgrpo.rewarders.advantages.formulas import BatchStatistics, GroupData, advantages_of
from tfgrpo.rewarders.advantages.ranks import best_first, relative_ranks
from tfgrpo.rewarders.advantages.spread import finite_rewards, spread_of

__all__ = ["EPSILON", "EstimatorName", "GroupAdvantage", "best_first", "group_advantage", "relative_ranks"]


_PLAIN = (float, int)


class GroupAdvantage(NamedTuple):
    """Advantages of one group, in the order of its rewards, with what they were made of."""

    advantages: tuple[float, ...]
    mean: float
    std: float
    """Population standard deviation (divides by G), whatever the estimator divides by."""
    best_index: int
    """Position of the greatest reward; the first one among equals."""


def group_advantage(
    rewards: Sequence[float],
    estimator: EstimatorName | Estimator = "grpo",
    *,
    token_lengths: Sequence[float] | None = None,
    batch: BatchStatistics | None = None,
    greedy: float | None = None,
) -> GroupAdvantage:
    """Advantage of each reward within its group.

    ``estimator``: a name or alias of ``advantages.estimators``, or an ``Estimator`` with constants of one's own. The
    default ``grpo`` is ``(r - mean) / (population std + 1e-8)``, the group baseline of GRPO (Shao et al. 2024,
    arXiv:2402.03300). A flat group has advantages of zero, and so has a group of one under all but the trainers that
    do otherwise.

    ``token_lengths``: tokens of each completion, for ``opo``. ``batch``: what ``batch_statistics`` says of all groups
    together, for estimators that look beyond the group. ``greedy``: reward of the greedy rollout, for ``remax``.

    Raises ``ValueError`` for an empty group, for NaN or infinity, for an estimator that does not exist, and when
    something that it needs was not given.
    """
    if estimator == "grpo" and rewards.__class__ is list:
        # The one call that every group of a run makes. What is out of the ordinary, or wrong, goes the long way.
        try:
            count = len(rewards)
            mean = fsum(rewards) / count
            std = dist(rewards, (mean,) * count) / sqrt(count)
            # The sum is of a plain type if all its parts are; a single float32 among them would make it another.
            plain = sum(rewards).__class__ in _PLAIN
            if plain and 1e-150 < std < 1e150 and std > 1e-9 * abs(mean):
                scale = std + EPSILON
                advantages = tuple([(reward - mean) / scale for reward in rewards])
                # As the generated constructor does it, at half its cost: this is a tenth of the whole.
                return tuple.__new__(GroupAdvantage, (advantages, mean, std, rewards.index(max(rewards))))
        except (ArithmeticError, TypeError, ValueError):
            pass
    values = finite_rewards(rewards)
    spread = spread_of(values)
    data = GroupData(values, spread, token_lengths, batch, greedy)
    advantages = advantages_of(estimator_of(estimator), data)
    return GroupAdvantage(advantages, spread.mean, spread.std, values.index(max(values)))
