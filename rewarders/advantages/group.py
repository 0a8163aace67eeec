"""Compute advantages, ranks and the order of one group of rewards."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from math import dist, fsum, inf, sqrt
from numbers import Real
from typing import TYPE_CHECKING, Final, NamedTuple

from tfgrpo.stores.numeric import is_finite
from tfgrpo.stores.outcomes import MAX_SCORE

if TYPE_CHECKING:
    from tfgrpo.rewarders.advantages.batch import Estimator

# Added to the standard deviation by the default estimator, so that a flat group does not divide by zero
EPSILON: Final = 1e-8


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
    estimator: str | Estimator = "grpo",
    *,
    token_lengths: Sequence[float] | None = None,
    greedy: float | None = None,
) -> GroupAdvantage:
    """Return the advantage of each reward within its group.

    ``estimator``: a name or alias of ``estimators.jsonl``, or an ``Estimator`` with other constants. The default
    ``grpo`` is ``(r - mean) / (population std + 1e-8)``, the group baseline of GRPO (Shao et al. 2024,
    arXiv:2402.03300). ``token_lengths``: tokens of each completion, for ``opo``. ``greedy``: reward of the greedy rollout,
    for ``remax``. Raises ``ValueError`` for an empty group, for what is no number up to 1e100 either way, for an unknown
    estimator or a missing input of it, and for an estimator that looks at the whole batch.
    """
    # Plain numbers: an operation on arrays costs more than a whole group, and every group of a run is computed here.
    try:
        mean = fsum(rewards) / len(rewards)
        distance = dist(rewards, (mean,) * len(rewards))
        # These statistics show that the rewards are in range and differ; what is odd about others is looked at below.
        usual = 1e-9 * abs(mean) < distance <= MAX_SCORE - abs(mean) and sum(rewards).__class__ in {float, int}
    except (ArithmeticError, TypeError, ValueError):
        usual = False
    if not usual:
        rewards = _numbers(rewards)
        is_flat = min(rewards) == max(rewards)
        mean = rewards[0] if is_flat else fsum(rewards) / len(rewards)
        distance = 0.0 if is_flat else dist(rewards, (mean,) * len(rewards))
    std = distance / sqrt(len(rewards))
    scale = std + EPSILON
    if estimator == "grpo":
        advantages = tuple([(reward - mean) / scale for reward in rewards])
    else:
        from tfgrpo.rewarders.advantages.batch import batch_advantages, estimator_of  # noqa: PLC0415 - of the trainer side

        chosen = estimator_of(estimator, batch=None, token_lengths=token_lengths, greedy=greedy)
        lengths, outside = (None if each is None else [each] for each in (token_lengths, greedy))
        advantages = tuple(batch_advantages([rewards], None, chosen, token_lengths=lengths, greedy=outside)[0].tolist())
    return GroupAdvantage(advantages, mean, std, rewards.index(max(rewards)))


def _numbers(rewards: Iterable[object]) -> list[float]:
    values: list[float] = []
    for index, value in enumerate(rewards):
        if not isinstance(value, Real) or not is_finite(value) or abs(number := float(value)) > MAX_SCORE:
            accepted = f"finite numbers from {-MAX_SCORE:g} to {MAX_SCORE:g}"
            raise ValueError(f"reward {index} is {value!r:.40}; accepted: {accepted}")
        values.append(number)
    if not values:
        raise ValueError("a group needs at least one reward")
    return values


def relative_ranks(rewards: Sequence[float]) -> tuple[float, ...]:
    """Return the rank of each reward in its group, 1 for the best, 0 for the worst; equal rewards share the mean of theirs."""
    values = _numbers(rewards)
    ordered, steps = sorted(values), 2 * len(values) - 2
    if not steps:
        return (0.5,)
    return tuple([(bisect_left(ordered, value) + bisect_right(ordered, value) - 1) / steps for value in values])


def best_first(rewards: Sequence[float], tokens: Sequence[int | None] | None = None) -> tuple[int, ...]:
    """Return indices from best to worst: greater reward, then fewer tokens (unknown last), then the earlier index."""
    values = _numbers(rewards)
    costs = [0] * len(values) if tokens is None else [inf if count is None else count for count in tokens]
    if len(costs) != len(values):
        raise ValueError(f"{len(values)} rewards but {len(costs)} token counts")
    return tuple(sorted(range(len(values)), key=lambda index: (-values[index], costs[index], index)))
