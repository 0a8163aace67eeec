"""Compute advantages as arrays: one formula for each kind of estimator, for a batch and for a single group.

Arrays are ``[G, B]``: each group is a column. A single group is a batch of one column, and estimators that use the
whole batch take its statistics from the caller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from statistics import NormalDist
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from tfgrpo.rewarders.advantages.batch_groups import Floats, Groups, Spreads, groups_of, like_rewards, spreads_of
from tfgrpo.rewarders.advantages.estimators import Estimator, Kind
from tfgrpo.rewarders.advantages.spread import Spread, finite_rewards

_NORMAL: Final = NormalDist()
_PAIRWISE: Final = 48
"""Largest group whose ranks are counted pair by pair; above it, sorting is faster."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and population standard deviation of ``count`` values."""

    count: float
    mean: float
    std: float

    def std_with(self, ddof: int) -> float:
        """Return the standard deviation with divisor ``count - ddof``; 0 when that is not positive."""
        return self.std * math.sqrt(self.count / (self.count - ddof)) if self.count > ddof else 0.0


@dataclass(frozen=True, slots=True)
class BatchStatistics:
    """Statistics of all groups together, for estimators that look beyond one group."""

    rewards: Moments
    centred: Moments
    """Of ``r - m``, with the mean of its own group."""
    nonzero: int
    """Rewards that are not zero."""
    token_rewards: Moments | None = None
    """Of ``r``, each counted once for every token of its completion; None without lengths."""
    token_centred: Moments | None = None


@dataclass(frozen=True, slots=True)
class BatchData:
    """A batch with all inputs of its estimator; arrays are ``[G, B]``."""

    groups: Groups
    spreads: Spreads
    token_lengths: Floats | None = None
    greedy: Floats | None = None
    statistics: BatchStatistics | None = None
    """Of the whole batch. None: these groups are the batch."""

    def moments(self, *, centred: bool, by_token: bool = False) -> Moments:
        """Return the moments of the whole batch, of ``r - m`` or of ``r``, per completion or per token."""
        if self.statistics is None:
            values = self.spreads.unscaled() if centred else self.groups.values
            return _moments(self.groups, values, self.token_lengths if by_token else None)
        known = self.statistics
        if by_token:
            return (known.token_centred if centred else known.token_rewards) or Moments(0.0, 0.0, 0.0)
        return known.centred if centred else known.rewards


def batch_statistics(
    groups: Sequence[Sequence[float]], token_lengths: Sequence[Sequence[float]] | None = None
) -> BatchStatistics:
    """Return the statistics of a whole batch, for ``group_advantage(…, batch=…)``.

    ``token_lengths``: tokens of each completion, in the shape of ``groups``; needed by estimators that weigh tokens.
    Raises ``ValueError`` for an empty batch or group, for NaN or infinity, and for lengths that do not fit.
    """
    values = [finite_rewards(group) for group in groups]
    if not values:
        raise ValueError("a batch needs at least one group")
    whole = groups_of(values, None)
    lengths = None
    if token_lengths is not None:
        if len(token_lengths) != len(values):
            raise ValueError(f"{len(values)} groups but token lengths for {len(token_lengths)}")
        checked = [_checked_lengths(given, len(group)) for given, group in zip(token_lengths, values, strict=True)]
        lengths = like_rewards("token_lengths", checked, whole)
    with np.errstate(over="ignore", invalid="ignore"):
        data = BatchData(whole, spreads_of(whole), lengths)
        return BatchStatistics(
            data.moments(centred=False),
            data.moments(centred=True),
            int(np.count_nonzero(whole.values)),
            None if lengths is None else data.moments(centred=False, by_token=True),
            None if lengths is None else data.moments(centred=True, by_token=True),
        )


def _is_finite(value: object) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


def _checked_lengths(lengths: Sequence[float], expected: int) -> list[float]:
    if len(lengths) != expected:
        raise ValueError(f"{expected} rewards but {len(lengths)} token lengths")
    for index, length in enumerate(lengths):
        if not (_is_finite(length) and length >= 0.0):
            raise ValueError(f"token length {index} is {length!r}; accepted: at least 0")
    return [float(length) for length in lengths]


def advantages_of_group(
    estimator: Estimator,
    rewards: Sequence[float],
    spread: Spread,
    token_lengths: Sequence[float] | None,
    statistics: BatchStatistics | None,
    greedy: float | None,
) -> tuple[float, ...]:
    """Return the advantage of each reward of one group. Raises ``ValueError`` as ``group_advantage`` does."""
    given = {"token_lengths": token_lengths, "batch": statistics, "greedy": greedy}
    missing = sorted(need for need in estimator.needs if given[need] is None)
    if missing:
        raise ValueError(f"{estimator.name} needs {' and '.join(missing)}: {estimator.formula}")
    if estimator.kind == "token_whiten" and statistics is not None and statistics.token_rewards is None:
        raise ValueError(f"{estimator.name} needs batch statistics with token lengths: {estimator.formula}")
    if len(rewards) == 1 and estimator.singleton != "zero":
        if estimator.singleton == "refuse":
            raise ValueError(f"{estimator.name}: a group of one cannot be compared")
        # As in the trainers that keep it: mean 0 and standard deviation 1 are assumed.
        return (rewards[0] / (1.0 + estimator.epsilon if estimator.kind == "group_std" else 1.0),)
    if greedy is not None and not _is_finite(greedy):
        raise ValueError(f"greedy is {greedy!r}; only finite rewards can be compared")
    lengths = None
    if token_lengths is not None:
        lengths = np.array(_checked_lengths(token_lengths, len(rewards)))[:, np.newaxis]
    exponents = np.array([spread.exponent]) if spread.exponent else None
    spreads = Spreads(np.array(spread.deviations)[:, np.newaxis], np.array([spread.scaled_std]), exponents)
    groups = Groups(np.array(rewards)[:, np.newaxis], None, np.array([float(len(rewards))]))
    data = BatchData(groups, spreads, lengths, None if greedy is None else np.array([greedy]), statistics)
    values = advantages_of_batch(estimator, data)
    if not np.isfinite(values).all():
        raise ValueError(f"{estimator.name}: rewards as large as these have no finite advantage")
    return tuple(values[:, 0].tolist())


def advantages_of_batch(estimator: Estimator, data: BatchData) -> Floats:
    """Return advantages, ``[G, B]``; values where a reward is absent have no meaning."""
    with np.errstate(over="ignore", invalid="ignore"):
        return _FORMULAS[estimator.kind](estimator, data)


def _group_std(estimator: Estimator, data: BatchData) -> Floats:
    scale = _scaled_stds(estimator, data) + data.spreads.scaled(estimator.epsilon)
    return _divided(data.spreads.deviations, scale)


def _scaled_stds(estimator: Estimator, data: BatchData) -> Floats:
    counts = data.groups.counts
    stds = data.spreads.stds
    if estimator.ddof:
        stds = stds * np.sqrt(counts / np.maximum(counts - estimator.ddof, 1.0))
    if estimator.variance_floor:
        stds = np.maximum(stds, data.spreads.scaled(estimator.variance_floor**0.5))
    return stds


def _batch_std(estimator: Estimator, data: BatchData) -> Floats:
    moments = data.moments(centred=False)
    return _divided(data.spreads.unscaled(), np.float64(moments.std_with(estimator.ddof) + estimator.epsilon))


def _batch_whiten(estimator: Estimator, data: BatchData) -> Floats:
    moments = data.moments(centred=True)
    scale = np.float64(moments.std_with(estimator.ddof) + estimator.epsilon)
    return _divided(data.spreads.unscaled() - moments.mean, scale)


def _leave_one_out(_: Estimator, data: BatchData) -> Floats:
    counts = data.groups.counts
    return data.spreads.unscaled() * (counts / np.maximum(counts - 1.0, 1.0))


def _token_whiten(estimator: Estimator, data: BatchData) -> Floats:
    values = data.spreads.unscaled() if estimator.centred else data.groups.values
    moments = data.moments(centred=estimator.centred, by_token=True)
    if moments.count <= estimator.ddof:
        raise ValueError(f"{estimator.name} needs a batch with more than {estimator.ddof} token(s)")
    return _divided(values - moments.mean, np.hypot(moments.std_with(estimator.ddof), estimator.epsilon**0.5))


def _length_baseline(estimator: Estimator, data: BatchData) -> Floats:
    lengths = data.token_lengths if data.token_lengths is not None else np.zeros_like(data.groups.values)
    whole = lengths.sum(axis=0)
    empty = np.flatnonzero((whole == 0.0) & (data.groups.counts > 0))
    if empty.size:
        raise ValueError(f"{estimator.name}: the completions of group {empty[0]} have no tokens to weigh by")
    deviations = data.spreads.unscaled()
    shift = np.einsum("gb,gb->b", lengths, deviations) / np.where(whole == 0.0, 1.0, whole)
    shifted: Floats = deviations - shift
    return shifted


def _greedy_baseline(_: Estimator, data: BatchData) -> Floats:
    return data.groups.values - (data.greedy if data.greedy is not None else np.nan)


def _gpg(_: Estimator, data: BatchData) -> Floats:
    if data.statistics is None:
        count, nonzero = float(data.groups.counts.sum()), int(np.count_nonzero(data.groups.values))
    else:
        count, nonzero = data.statistics.rewards.count, data.statistics.nonzero
    unscaled: Floats = data.spreads.unscaled() * (count / max(1, nonzero))
    return unscaled


def _top_gap(estimator: Estimator, data: BatchData) -> Floats:
    groups = data.groups
    values = groups.values.copy() if groups.mask is None else np.where(groups.mask, groups.values, -np.inf)
    places = values.argmax(axis=0)[np.newaxis, :]
    best = np.take_along_axis(values, places, axis=0)
    np.put_along_axis(values, places, -np.inf, axis=0)
    gap = np.where(groups.counts > 1, best - values.max(axis=0), 0.0)
    if estimator.normalised:
        stds = _scaled_stds(estimator, data)
        if data.spreads.exponents is not None:
            stds = np.ldexp(stds, data.spreads.exponents)
        gap = np.where(gap == 0.0, 0.0, gap / np.where(gap == 0.0, 1.0, stds + estimator.epsilon))
    values[:] = 0.0
    np.put_along_axis(values, places, gap, axis=0)
    return values


def _rank(estimator: Estimator, data: BatchData) -> Floats:
    counts = data.groups.counts
    doubled = _doubled_places(data.groups)
    if not estimator.normalised:
        centred: Floats = (doubled / np.maximum(2.0 * (counts - 1.0), 1.0) - 0.5) * (counts > 1)
        return centred
    scores = np.zeros(doubled.shape)
    for count in np.unique(counts[counts > 1]):
        columns = np.flatnonzero(counts == count)
        table = np.array(
            [normal_score(place / (2.0 * (count - 1.0)), int(count)) for place in range(2 * int(count) - 1)]
        )
        inside = np.clip(doubled[:, columns], 0, len(table) - 1)
        scores[:, columns] = table[inside]
    return scores


def _doubled_places(groups: Groups) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return twice the rank of each reward counted from the worst, 0 and up; ties share the mean of their ranks."""
    values = groups.values if groups.mask is None else np.where(groups.mask, groups.values, np.inf)
    size = values.shape[0]
    places = np.full(values.shape, -1, dtype=np.int64 if size > _PAIRWISE else np.int16)
    if size <= _PAIRWISE:
        for peer in values:
            places += peer < values
            places += peer <= values
    else:
        for column, rewards in enumerate(values.T):
            ordered = np.sort(rewards)
            places[:, column] += ordered.searchsorted(rewards, "left") + ordered.searchsorted(rewards, "right")
    return places


def normal_score(rank: float, count: int) -> float:
    """Return the van der Waerden score of a rank from 0 to 1: the normal quantile of ``position / (count + 1)``."""
    return 0.0 if rank == 0.5 else _NORMAL.inv_cdf((rank * (count - 1) + 1) / (count + 1))


def _divided(values: Floats, scale: Floats | np.float64) -> Floats:
    """Return ``values / scale``, and 0 where the scale is 0: such a group is flat and has no epsilon."""
    if np.all(scale):
        return values / scale
    return np.where(scale == 0.0, 0.0, values / np.where(scale == 0.0, 1.0, scale))


def _moments(groups: Groups, values: Floats, weights: Floats | None = None) -> Moments:
    """Return population moments over the batch, each value counted ``weight`` times. Raises ``ValueError`` out of range."""
    flat = groups.present(values)
    counts = None if weights is None else groups.present(weights)
    whole = float(flat.size if counts is None else counts.sum())
    if not whole:
        return Moments(0.0, 0.0, 0.0)
    if counts is not None and not counts.all():
        flat, counts = flat[counts > 0.0], counts[counts > 0.0]
    if flat.min() == flat.max():
        return Moments(whole, float(flat[0]), 0.0)
    first = float(np.average(flat, weights=counts))
    mean = first + float(np.average(flat - first, weights=counts))
    std = float(np.average((flat - mean) ** 2, weights=counts)) ** 0.5
    if not (np.isfinite(mean) and np.isfinite(std)):
        raise ValueError("rewards as large as these have no finite spread over the batch")
    return Moments(whole, mean, std)


_Formula: TypeAlias = Callable[[Estimator, BatchData], Floats]
_FORMULAS: Final[Mapping[Kind, _Formula]] = MappingProxyType(
    {
        "group_std": _group_std,
        "mean_only": lambda _, data: data.spreads.unscaled(),
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
