"""How is an advantage computed for one group, in plain Python? One formula for each kind of estimator.

Estimators that look beyond the group get the statistics of the batch from the caller; a group never stands in for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from statistics import NormalDist
from types import MappingProxyType
from typing import Final, TypeAlias

from tfgrpo.rewarders.advantages.estimators import Estimator, Kind
from tfgrpo.rewarders.advantages.ranks import relative_ranks
from tfgrpo.rewarders.advantages.spread import Spread, finite_rewards, spread_of

_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and population standard deviation of ``count`` values."""

    count: float
    mean: float
    std: float

    def std_with(self, ddof: int) -> float:
        """Standard deviation with divisor ``count - ddof``; 0 when nothing would be left to divide by."""
        return self.std * math.sqrt(self.count / (self.count - ddof)) if self.count > ddof else 0.0


@dataclass(frozen=True, slots=True)
class BatchStatistics:
    """What estimators that look beyond one group need to know of all groups together."""

    rewards: Moments
    centred: Moments
    """Of ``r - m``, with the mean of its own group."""
    nonzero: int
    """Rewards that are not zero."""
    token_rewards: Moments | None = None
    """Of ``r``, each counted once for every token of its completion; None without lengths."""
    token_centred: Moments | None = None


@dataclass(frozen=True, slots=True)
class GroupData:
    """One group with all that its estimator may look at."""

    rewards: Sequence[float]
    spread: Spread
    token_lengths: Sequence[float] | None = None
    batch: BatchStatistics | None = None
    greedy: float | None = None


def batch_statistics(
    groups: Sequence[Sequence[float]], token_lengths: Sequence[Sequence[float]] | None = None
) -> BatchStatistics:
    """Statistics of a whole batch, for ``group_advantage(…, batch=…)``.

    ``token_lengths``: tokens of each completion, in the shape of ``groups``; needed by estimators that weigh tokens.
    Raises ``ValueError`` for an empty batch or group, for NaN or infinity, and for lengths that do not fit.
    """
    values = [finite_rewards(group) for group in groups]
    if not values:
        raise ValueError("a batch needs at least one group")
    means = [spread_of(group).mean for group in values]
    flat = [reward for group in values for reward in group]
    centred = [reward - mean for group, mean in zip(values, means, strict=True) for reward in group]
    moments = (_moments(flat), _moments(centred))
    nonzero = sum(reward != 0.0 for reward in flat)
    if token_lengths is None:
        return BatchStatistics(*moments, nonzero)
    if len(token_lengths) != len(values):
        raise ValueError(f"{len(values)} groups but token lengths for {len(token_lengths)}")
    lengths = [
        length
        for group, given in zip(values, token_lengths, strict=True)
        for length in checked_lengths(given, len(group))
    ]
    return BatchStatistics(*moments, nonzero, _moments(flat, lengths), _moments(centred, lengths))


def checked_lengths(lengths: Sequence[float], expected: int) -> list[float]:
    """Token lengths of one group as floats. Raises ``ValueError`` for another number of them, and for bad ones."""
    if len(lengths) != expected:
        raise ValueError(f"{expected} rewards but {len(lengths)} token lengths")
    for index, length in enumerate(lengths):
        if not _is_length(length):
            raise ValueError(f"token length {index} is {length!r}; accepted: at least 0")
    return [float(length) for length in lengths]


def _is_length(value: object) -> bool:
    return isinstance(value, Real) and 0.0 <= float(value) < math.inf


def advantages_of(estimator: Estimator, data: GroupData) -> tuple[float, ...]:
    """Advantage of each reward. Raises ``ValueError`` when something the estimator needs was not given."""
    _check_needs(estimator, data)
    if len(data.rewards) == 1 and estimator.singleton != "zero":
        if estimator.singleton == "refuse":
            raise ValueError(f"{estimator.name}: a group of one has nothing to be compared with")
        # As in the trainers that keep it: mean 0 and standard deviation 1 are assumed.
        scale = 1.0 + estimator.epsilon if estimator.kind == "group_std" else 1.0
        return (float(data.rewards[0]) / scale,)
    too_large = f"{estimator.name}: rewards as large as these have no finite advantage"
    try:
        values = _FORMULAS[estimator.kind](estimator, data)
    except OverflowError:
        raise ValueError(too_large) from None
    if not all(map(math.isfinite, values)):
        raise ValueError(too_large)
    return values


def _check_needs(estimator: Estimator, data: GroupData) -> None:
    given = {"token_lengths": data.token_lengths, "batch": data.batch, "greedy": data.greedy}
    missing = sorted(need for need in estimator.needs if given[need] is None)
    if missing:
        raise ValueError(f"{estimator.name} needs {' and '.join(missing)}: {estimator.formula}")
    if estimator.kind == "token_whiten" and data.batch is not None and data.batch.token_rewards is None:
        raise ValueError(f"{estimator.name} needs batch statistics with token lengths: {estimator.formula}")


def _group_std(estimator: Estimator, data: GroupData) -> tuple[float, ...]:
    spread = data.spread
    scale = _scaled_std(estimator, spread) + math.ldexp(estimator.epsilon, -spread.exponent)
    return tuple(deviation / scale if scale else 0.0 for deviation in spread.deviations)


def _scaled_std(estimator: Estimator, spread: Spread) -> float:
    count = len(spread.deviations)
    std = spread.scaled_std * math.sqrt(count / (count - estimator.ddof)) if count > estimator.ddof else 0.0
    return max(std, math.ldexp(math.sqrt(estimator.variance_floor), -spread.exponent))


def _mean_only(_: Estimator, data: GroupData) -> tuple[float, ...]:
    return _deviations(data)


def _deviations(data: GroupData) -> tuple[float, ...]:
    factor = 2.0**data.spread.exponent
    return tuple(deviation * factor for deviation in data.spread.deviations)


def _batch_std(estimator: Estimator, data: GroupData) -> tuple[float, ...]:
    scale = _batch(data).rewards.std_with(estimator.ddof) + estimator.epsilon
    return tuple(deviation / scale if scale else 0.0 for deviation in _deviations(data))


def _batch_whiten(estimator: Estimator, data: GroupData) -> tuple[float, ...]:
    moments = _batch(data).centred
    scale = moments.std_with(estimator.ddof) + estimator.epsilon
    return tuple((deviation - moments.mean) / scale if scale else 0.0 for deviation in _deviations(data))


def _leave_one_out(_: Estimator, data: GroupData) -> tuple[float, ...]:
    count = len(data.rewards)
    factor = count / (count - 1) if count > 1 else 0.0
    return tuple(deviation * factor for deviation in _deviations(data))


def _token_whiten(estimator: Estimator, data: GroupData) -> tuple[float, ...]:
    batch = _batch(data)
    moments = batch.token_centred if estimator.centred else batch.token_rewards
    if moments is None or moments.count <= estimator.ddof:
        raise ValueError(f"{estimator.name} needs a batch with more than {estimator.ddof} token(s)")
    values = _deviations(data) if estimator.centred else data.rewards
    scale = math.hypot(moments.std_with(estimator.ddof), math.sqrt(estimator.epsilon))
    return tuple((value - moments.mean) / scale if scale else 0.0 for value in values)


def _length_baseline(estimator: Estimator, data: GroupData) -> tuple[float, ...]:
    lengths = checked_lengths(data.token_lengths or (), len(data.rewards))
    whole = math.fsum(lengths)
    if not whole:
        raise ValueError(f"{estimator.name}: the completions of the group have no tokens to weigh by")
    deviations = _deviations(data)
    weighed = [length * deviation for length, deviation in zip(lengths, deviations, strict=True)]
    if not all(map(math.isfinite, weighed)):
        raise OverflowError
    shift = math.fsum(weighed) / whole
    return tuple(deviation - shift for deviation in deviations)


def _greedy_baseline(_: Estimator, data: GroupData) -> tuple[float, ...]:
    try:
        (greedy,) = finite_rewards([data.greedy if data.greedy is not None else math.nan])
    except ValueError:
        raise ValueError(f"greedy is {data.greedy!r}; only finite rewards can be compared") from None
    return tuple(reward - greedy for reward in data.rewards)


def _gpg(_: Estimator, data: GroupData) -> tuple[float, ...]:
    batch = _batch(data)
    factor = batch.rewards.count / max(1, batch.nonzero)
    return tuple(deviation * factor for deviation in _deviations(data))


def _top_gap(estimator: Estimator, data: GroupData) -> tuple[float, ...]:
    if len(data.rewards) == 1:
        return (0.0,)
    second, best = sorted(data.rewards)[-2:]
    gap = best - second
    if estimator.normalised and gap:
        gap = gap / (math.ldexp(_scaled_std(estimator, data.spread), data.spread.exponent) + estimator.epsilon)
    place = data.rewards.index(best)
    return tuple(gap if index == place else 0.0 for index in range(len(data.rewards)))


def _rank(estimator: Estimator, data: GroupData) -> tuple[float, ...]:
    ranks = relative_ranks(data.rewards)
    if not estimator.normalised:
        return tuple(rank - 0.5 for rank in ranks)
    return tuple(normal_score(rank, len(ranks)) for rank in ranks)


def normal_score(rank: float, count: int) -> float:
    """Van der Waerden score: the normal quantile of ``place / (count + 1)`` for a rank between 0 and 1."""
    return 0.0 if rank == 0.5 else _NORMAL.inv_cdf((rank * (count - 1) + 1) / (count + 1))


def _batch(data: GroupData) -> BatchStatistics:
    if data.batch is None:  # pragma: no cover - what an estimator needs is checked before its formula runs
        raise ValueError("batch statistics are missing")
    return data.batch


_Formula: TypeAlias = Callable[[Estimator, GroupData], tuple[float, ...]]
_FORMULAS: Final[Mapping[Kind, _Formula]] = MappingProxyType(
    {
        "group_std": _group_std,
        "mean_only": _mean_only,
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
)


def _moments(values: Sequence[float], weights: Sequence[float] | None = None) -> Moments:
    """Population moments, each value counted ``weight`` times. Raises ``ValueError`` when they are out of range."""
    counts = [1.0] * len(values) if weights is None else weights
    whole = math.fsum(counts)
    if not whole:
        return Moments(0.0, 0.0, 0.0)
    pairs = [(value, count) for value, count in zip(values, counts, strict=True) if count]
    counted = [value for value, _ in pairs]
    if min(counted) == max(counted):
        return Moments(whole, counted[0], 0.0)
    try:
        mean = math.fsum(value * count for value, count in pairs) / whole
        variance = math.fsum((value - mean) ** 2 * (count / whole) for value, count in pairs)
    except OverflowError:
        raise ValueError("rewards as large as these have no finite spread over the batch") from None
    return Moments(whole, mean, math.sqrt(variance))
