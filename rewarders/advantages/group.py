"""Compute advantages, ranks and the order of one group of rewards.

Plain numbers, because an operation on arrays costs more than a whole group; many groups are
``tfgrpo.rewarders.advantages.batch``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import dist, fsum, inf, isnan, sqrt
from numbers import Real
from operator import mul
from statistics import NormalDist
from typing import Any, Final, NamedTuple

from tfgrpo.rewarders.advantages.estimators import EPSILON, Estimator, estimator_of
from tfgrpo.stores.numeric import is_finite
from tfgrpo.stores.outcomes import MAX_SCORE

_NORMAL: Final = NormalDist()
_PLAIN: Final = {float, int}


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
    arXiv:2402.03300). A flat group has advantages of zero, and so has a group of one unless the estimator says
    otherwise. ``token_lengths``: tokens of each completion, for ``opo``. ``greedy``: reward of the greedy rollout, for
    ``remax``.

    Raises ``ValueError`` for an empty group, for what is no number up to 1e100 either way, for an unknown estimator or a
    missing input of it, and for an estimator that looks at the whole batch.
    """
    if estimator == "grpo" and rewards.__class__ is list:
        # Every group of a run. Its statistics also show that the rewards are in range and differ; other groups go on below.
        try:
            mean = fsum(rewards) / len(rewards)
            distance = dist(rewards, (mean,) * len(rewards))
            if 1e-9 * abs(mean) < distance <= MAX_SCORE - abs(mean) and sum(rewards).__class__ in _PLAIN:
                std = distance / sqrt(len(rewards))
                scale = std + EPSILON
                advantages = tuple([(reward - mean) / scale for reward in rewards])
                return GroupAdvantage(advantages, mean, std, rewards.index(max(rewards)))
        except (ArithmeticError, TypeError, ValueError):
            pass
    chosen = estimator_of(estimator, batch=None, token_lengths=token_lengths, greedy=greedy)
    values = numbers("reward", rewards)
    count, best = len(values), max(values)
    flat = min(values) == best
    mean = float(best) if flat else fsum(values) / count
    std = 0.0 if flat else dist(values, (mean,) * count) / sqrt(count)
    points, outside = values, mean
    if chosen.kind == "rank":
        points = [normal_score(rank, count) if chosen.normalised else rank - 0.5 for rank in relative_ranks(values)]
    elif chosen.kind == "top_gap":
        points = [0.0] * count
        points[values.index(best)] = best - sorted([*values, min(values)])[-2]
    elif chosen.kind == "length_baseline":
        outside = _mean_by_length(chosen, values, mean, token_lengths or ())
    elif chosen.kind == "greedy_baseline":
        (outside,) = numbers("greedy reward", [greedy])
    if count == 1 and chosen.singleton != "zero":
        baseline, scale = chosen.alone(0)
    else:
        spread = max(std * sqrt(count / max(count - chosen.ddof, 1)), sqrt(chosen.variance_floor))
        baseline, scale = chosen.baseline_and_scale(count, mean, spread, outside)
    advantages = tuple([(point - baseline) / (scale or inf) for point in points])  # a scale of 0: flat, or alone
    return GroupAdvantage(advantages, mean, std, values.index(best))


def _mean_by_length(
    estimator: Estimator, values: Sequence[float], mean: float, token_lengths: Sequence[float]
) -> float:
    lengths = numbers("token length", token_lengths, least=0.0)
    if len(lengths) != len(values):
        raise ValueError(f"token_lengths: expected {len(values)}, one for each reward, received {len(lengths)}")
    if not (tokens := fsum(lengths)):
        raise ValueError(f"{estimator.name}: the completions of the group have no tokens to weigh by")
    return mean + fsum(map(mul, lengths, [value - mean for value in values])) / tokens


def numbers(name: str, given: Iterable[object], least: float = -MAX_SCORE) -> list[float]:
    """Return numbers from ``least`` to 1e100. Raises ``ValueError`` for none, and for the first that is not one."""
    values: list[Any] = [*given]
    # The sum is NaN if any value is; minimum and maximum need not be.
    plain = bool(values) and {*map(type, values)} <= _PLAIN
    if plain and least <= min(values) and max(values) <= MAX_SCORE and not isnan(sum(values)):
        return values
    for index, value in enumerate(values):
        if not isinstance(value, Real) or not is_finite(value) or not least <= float(value) <= MAX_SCORE:
            raise ValueError(
                f"{name} {index} is {value!r:.40}; accepted: finite numbers from {least:g} to {MAX_SCORE:g}"
            )
    if not values:
        raise ValueError(f"a group needs at least one {name}")
    return [*map(float, values)]


def relative_ranks(rewards: Sequence[float]) -> tuple[float, ...]:
    """Return the rank of each reward in its group: 1 for the best, 0 for the worst, in even steps.

    Equal rewards share the mean of their ranks, so a flat group, and a group of one, has 0.5 throughout. Raises
    ``ValueError`` as ``group_advantage`` does.
    """
    values = numbers("reward", rewards)
    ordered, steps = sorted(values), 2 * len(values) - 2
    if not steps:
        return (0.5,)
    return tuple([(bisect_left(ordered, value) + bisect_right(ordered, value) - 1) / steps for value in values])


@lru_cache(maxsize=4096)
def normal_score(rank: float, count: int) -> float:
    """Return the van der Waerden score of a rank from 0 to 1: the normal quantile of ``position / (count + 1)``."""
    return 0.0 if rank == 0.5 else _NORMAL.inv_cdf((rank * (count - 1) + 1) / (count + 1))


def best_first(rewards: Sequence[float], tokens: Sequence[int | None] | None = None) -> tuple[int, ...]:
    """Return indices from best to worst: greater reward, then fewer tokens (unknown last), then the earlier index.

    Raises ``ValueError`` as ``group_advantage`` does, and when ``tokens`` has another length.
    """
    values = numbers("reward", rewards)
    costs = [0] * len(values) if tokens is None else [inf if count is None else count for count in tokens]
    if len(costs) != len(values):
        raise ValueError(f"{len(values)} rewards but {len(costs)} token counts")
    return tuple(sorted(range(len(values)), key=lambda index: (-values[index], costs[index], index)))
