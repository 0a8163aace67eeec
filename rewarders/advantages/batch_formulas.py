"""How is an advantage computed for many groups at once? One array formula for each kind of estimator.

They give what ``tfgrpo.rewarders.advantages.formulas`` gives group by group, to the rounding of the last digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from tfgrpo.rewarders.advantages.batch_groups import Floats, Groups, Spreads
from tfgrpo.rewarders.advantages.estimators import Estimator, Kind
from tfgrpo.rewarders.advantages.formulas import Moments, normal_score

_PAIRWISE: Final = 48
"""Largest group whose ranks are counted pair by pair; above it, sorting is faster."""


@dataclass(frozen=True, slots=True)
class BatchData:
    """A batch with all that its estimator may look at; arrays are ``[G, B]``."""

    groups: Groups
    spreads: Spreads
    token_lengths: Floats | None = None
    greedy: Floats | None = None


def advantages_of_batch(estimator: Estimator, data: BatchData) -> Floats:
    """Advantages, ``[G, B]``; what stands where a reward is absent means nothing."""
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


def _mean_only(_: Estimator, data: BatchData) -> Floats:
    return data.spreads.unscaled()


def _batch_std(estimator: Estimator, data: BatchData) -> Floats:
    moments = _moments(data.groups, data.groups.values)
    return _divided(data.spreads.unscaled(), np.float64(moments.std_with(estimator.ddof) + estimator.epsilon))


def _batch_whiten(estimator: Estimator, data: BatchData) -> Floats:
    centred = data.spreads.unscaled()
    moments = _moments(data.groups, centred)
    return _divided(centred - moments.mean, np.float64(moments.std_with(estimator.ddof) + estimator.epsilon))


def _leave_one_out(_: Estimator, data: BatchData) -> Floats:
    counts = data.groups.counts
    return data.spreads.unscaled() * (counts / np.maximum(counts - 1.0, 1.0))


def _token_whiten(estimator: Estimator, data: BatchData) -> Floats:
    values = data.spreads.unscaled() if estimator.centred else data.groups.values
    moments = _moments(data.groups, values, data.token_lengths)
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
    factor = data.groups.counts.sum() / max(1, np.count_nonzero(data.groups.values))
    unscaled: Floats = data.spreads.unscaled() * factor
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
    """Twice the place of each reward from the worst, 0 and up; ties share the mean of their places."""
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


def _divided(values: Floats, scale: Floats | np.float64) -> Floats:
    """``values / scale``, and 0 where the scale is 0: such a group is flat and has no epsilon."""
    if np.all(scale):
        return values / scale
    return np.where(scale == 0.0, 0.0, values / np.where(scale == 0.0, 1.0, scale))


def _moments(groups: Groups, values: Floats, weights: Floats | None = None) -> Moments:
    """Population moments over the batch. Raises ``ValueError`` when they are out of range."""
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
