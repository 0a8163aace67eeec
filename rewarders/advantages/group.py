"""Compute the advantages of one group of finite rewards under any estimator.

Many groups at once, with missing rewards, are ``tfgrpo.rewarders.advantages.batch``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import dist, frexp, fsum, hypot, inf, isfinite, ldexp, sqrt
from numbers import Real
from operator import mul
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

from tfgrpo.rewarders.advantages.estimators import EPSILON, NEEDS, Estimator, EstimatorName, Kind, estimator_of
from tfgrpo.stores.numeric import is_finite

if TYPE_CHECKING:
    from tfgrpo.rewarders.advantages.batch_groups import BatchStatistics, Moments

_NORMAL: Final = NormalDist()
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
    if rewards.__class__ is list:
        # What every group of a run is. Unusual and wrong input takes the general path below.
        try:
            count = len(rewards)
            mean = fsum(rewards) / count
            std = dist(rewards, (mean,) * count) / sqrt(count)
            # The sum has a plain type only if all rewards have: a single float32 among them changes it.
            usual = sum(rewards).__class__ in _NUMBER_TYPES
            if usual and 1e-150 < std < 1e150 and std > 1e-9 * abs(mean):
                if estimator == "grpo":
                    scale = std + EPSILON
                    advantages = tuple([(reward - mean) / scale for reward in rewards])
                else:
                    deviations = [reward - mean for reward in rewards]
                    group = _Group(rewards, deviations, std, 0, token_lengths, batch, greedy)
                    advantages = _advantages(estimator_of(estimator), group)
                # The generated constructor does the same at twice the cost, a tenth of the whole call.
                return tuple.__new__(GroupAdvantage, (advantages, mean, std, rewards.index(max(rewards))))
        except (ArithmeticError, TypeError, ValueError):
            pass
    values = finite_rewards(rewards)
    spread = spread_of(values)
    group = _Group(values, spread.deviations, spread.scaled_std, spread.exponent, token_lengths, batch, greedy)
    return GroupAdvantage(
        _advantages(estimator_of(estimator), group), spread.mean, spread.std, values.index(max(values))
    )


class _Group(NamedTuple):
    """What the formulas of one group see. Deviations and standard deviation are divided by ``2**exponent``."""

    values: Sequence[float]
    deviations: Sequence[float]
    std: float
    exponent: int
    token_lengths: Sequence[float] | None
    batch: BatchStatistics | None
    greedy: float | None

    @property
    def centred(self) -> Sequence[float]:
        """``r - m``."""
        return [ldexp(each, self.exponent) for each in self.deviations] if self.exponent else self.deviations

    def std_with(self, estimator: Estimator) -> float:
        """Return the standard deviation with the divisor of an estimator and its least variance."""
        count = len(self.values)
        std = self.std * sqrt(count / (count - 1)) if estimator.ddof and count > 1 else self.std
        floor = estimator.variance_floor
        return max(std, ldexp(sqrt(floor), -self.exponent)) if floor else std


def _advantages(estimator: Estimator, group: _Group) -> tuple[float, ...]:
    """Return the advantage of each reward. The formulas are those of ``batch``, where an operation on arrays costs more."""
    needs = _NEEDS[estimator.kind]
    if needs is not None and getattr(group, needs) is None:
        raise ValueError(f"{estimator.name} needs {needs}: {estimator.formula}")
    if len(group.values) == 1:
        if estimator.singleton == "refuse":
            raise ValueError(f"{estimator.name}: group 0 has a single reward, which cannot be compared; omit the group")
        if estimator.singleton == "reward":
            # As in the trainers that keep it: mean 0 and standard deviation 1 are assumed.
            return (group.values[0] / (1.0 + estimator.epsilon if estimator.kind == "group_std" else 1.0),)
    with suppress(OverflowError):
        advantages = tuple(_FORMULAS[estimator.kind](estimator, group))
        if isfinite(sum(advantages)) or all(map(isfinite, advantages)):
            return advantages
    raise ValueError(f"{estimator.name}: rewards as large as those of group 0 have no finite advantage")


def _divided(values: Sequence[float], scale: float) -> list[float]:
    """Return ``values / scale``, and 0 where the scale is 0: such a group is flat and has no epsilon."""
    return [value / scale for value in values] if scale else [0.0] * len(values)


def _group_std(estimator: Estimator, group: _Group) -> list[float]:
    return _divided(group.deviations, group.std_with(estimator) + ldexp(estimator.epsilon, -group.exponent))


def _batch_std(estimator: Estimator, group: _Group) -> list[float]:
    return _divided(
        group.centred, _moments(estimator, group, centred=False).std_with(estimator.ddof) + estimator.epsilon
    )


def _batch_whiten(estimator: Estimator, group: _Group) -> list[float]:
    moments = _moments(estimator, group, centred=True)
    scale = moments.std_with(estimator.ddof) + estimator.epsilon
    return _divided([each - moments.mean for each in group.centred], scale)


def _token_whiten(estimator: Estimator, group: _Group) -> list[float]:
    moments = _moments(estimator, group, centred=estimator.centred, by_token=True)
    if moments.count <= estimator.ddof:
        raise ValueError(f"{estimator.name} needs a batch with more than {estimator.ddof} token(s)")
    values = group.centred if estimator.centred else group.values
    return _divided(
        [each - moments.mean for each in values], hypot(moments.std_with(estimator.ddof), sqrt(estimator.epsilon))
    )


def _moments(estimator: Estimator, group: _Group, *, centred: bool, by_token: bool = False) -> Moments:
    moments = {} if group.batch is None else group.batch.moments
    if (centred, by_token) not in moments:
        raise ValueError(f"{estimator.name} needs batch statistics with token lengths: {estimator.formula}")
    return moments[centred, by_token]


def _leave_one_out(_: Estimator, group: _Group) -> list[float]:
    count = len(group.values)
    factor = count / max(count - 1, 1)
    return [each * factor for each in group.centred]


def _length_baseline(estimator: Estimator, group: _Group) -> list[float]:
    lengths, centred = _token_lengths(group), group.centred
    whole = fsum(lengths)
    if not whole:
        raise ValueError(f"{estimator.name}: the completions of group 0 have no tokens to weigh by")
    shift = sum(map(mul, lengths, centred)) / whole
    return [each - shift for each in centred]


def _token_lengths(group: _Group) -> Sequence[float]:
    """Return the lengths: a finite number of at least 0 for each reward. Raise ``ValueError`` for others."""
    lengths = group.token_lengths or ()
    if len(lengths) != len(group.values):
        expected = f"(1, {len(group.values)}), as the rewards"
        raise ValueError(f"token_lengths: expected shape {expected}, received (1, {len(lengths)})")
    if {*map(type, lengths)} <= {float, int} and min(lengths) >= 0 and isfinite(sum(lengths)):
        return lengths
    for index, length in enumerate(lengths):
        number: object = length
        if not isinstance(number, Real | None):
            raise ValueError(f"token_lengths: expected numbers, received {number!r:.40}")
        if number is None or not is_finite(length) or length < 0:
            raise ValueError(f"token_lengths: group 0, index {index} is {number}; accepted: at least 0")
    return lengths


def _greedy_baseline(_: Estimator, group: _Group) -> list[float]:
    greedy: object = group.greedy
    if not isinstance(greedy, Real):
        raise ValueError(f"greedy: expected a finite number for each group, received {[greedy]!r:.60}")
    if not is_finite(greedy):
        raise ValueError(f"greedy: group 0 has {greedy}; only finite rewards can be compared")
    return [each - float(greedy) for each in group.values]


def _gpg(estimator: Estimator, group: _Group) -> list[float]:
    nonzero = 1 if group.batch is None else max(1, group.batch.nonzero)
    factor = _moments(estimator, group, centred=False).count / nonzero
    return [each * factor for each in group.centred]


def _top_gap(estimator: Estimator, group: _Group) -> list[float]:
    advantages = [0.0] * len(group.values)
    if len(group.values) > 1:
        best, second = sorted(group.values, reverse=True)[:2]
        gap = float(best) - second
        if estimator.normalised and gap:
            gap /= ldexp(group.std_with(estimator), group.exponent) + estimator.epsilon
        advantages[group.values.index(best)] = gap
    return advantages


def _rank(estimator: Estimator, group: _Group) -> list[float]:
    ranks, count = _ranks(group.values), len(group.values)
    return [normal_score(rank, count) for rank in ranks] if estimator.normalised else [rank - 0.5 for rank in ranks]


@lru_cache(maxsize=4096)
def normal_score(rank: float, count: int) -> float:
    """Return the van der Waerden score of a rank from 0 to 1: the normal quantile of ``position / (count + 1)``."""
    return 0.0 if rank == 0.5 else _NORMAL.inv_cdf((rank * (count - 1) + 1) / (count + 1))


_NEEDS: Final[Mapping[Kind, Literal["batch", "token_lengths", "greedy"] | None]] = {
    kind: next(iter(NEEDS.get(kind, ())), None) for kind in get_args(Kind)
}
"""First need of each kind: a group beside the statistics of its batch needs no token lengths."""
_FORMULAS: Final[Mapping[Kind, Callable[[Estimator, _Group], Sequence[float]]]] = {
    "group_std": _group_std,
    "mean_only": lambda _, group: group.centred,
    "batch_std": _batch_std,
    "batch_whiten": _batch_whiten,
    "leave_one_out": _leave_one_out,
    "token_whiten": _token_whiten,
    "length_baseline": _length_baseline,
    "greedy_baseline": _greedy_baseline,
    "gpg": _gpg,
    "top_gap": _top_gap,
    "rank": _rank,
}


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
        if reward.__class__ is float and isfinite(reward):
            values.append(reward)
            continue
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
    return _ranks(finite_rewards(rewards))


def _ranks(values: Sequence[float]) -> tuple[float, ...]:
    last = len(values) - 1
    if last == 0:
        return (0.5,)
    ordered = sorted(values)
    return tuple([(bisect_left(ordered, value) + bisect_right(ordered, value) - 1) / (2 * last) for value in values])


def best_first(rewards: Sequence[float], tokens: Sequence[int | None] | None = None) -> tuple[int, ...]:
    """Return indices from best to worst: greater reward, then fewer tokens (unknown last), then the earlier index.

    Raises ``ValueError`` for NaN or infinity, for an empty group, and when ``tokens`` has another length.
    """
    values = finite_rewards(rewards)
    costs = [0] * len(values) if tokens is None else [inf if count is None else count for count in tokens]
    if len(costs) != len(values):
        raise ValueError(f"{len(values)} rewards but {len(costs)} token counts")
    return tuple(sorted(range(len(values)), key=lambda index: (-values[index], costs[index], index)))
