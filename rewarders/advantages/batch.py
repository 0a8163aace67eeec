"""Compute advantages of many groups as arrays.

The rewards that are present are one row of numbers, group after group: ragged groups and masks need no path of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from math import nan
from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tfgrpo.rewarders.advantages.estimators import Estimator, estimator_of
from tfgrpo.rewarders.advantages.group import normal_score
from tfgrpo.stores.outcomes import MAX_SCORE

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]
_Line: TypeAlias = tuple[Floats | float, Floats | float]
RewardRows: TypeAlias = npt.ArrayLike | Sequence[Sequence[float | None]]
"""An array ``[B, G]``, or one sequence per group, of any lengths, with None for an absent reward."""


def batch_advantages(
    rewards: RewardRows,
    mask: RewardRows | None = None,
    estimator: str | Estimator = "grpo",
    *,
    token_lengths: RewardRows | None = None,
    greedy: npt.ArrayLike | None = None,
    fill: float = nan,
) -> Floats:
    """Return the advantage of every reward, ``float64[B, Gmax]``, with ``fill`` where there is none.

    ``rewards``: an array ``[B, G]``, or one sequence per group, of any lengths, with None for an absent reward.
    ``mask``: booleans, or 0 and 1, in the shape of the rewards; False marks an absent reward. ``token_lengths``: tokens
    of each completion in the shape of the rewards, for estimators that weigh by them. ``greedy``: ``[B]``, the reward
    of each greedy rollout, for ``remax``. ``fill`` is NaN by default, because an advantage of 0 is a result. A group
    without any reward is all ``fill``.

    Raises ``ValueError`` for shapes that do not fit, for NaN and rewards beyond 1e100 that the mask does not hide, for an
    unknown estimator or a missing input of it, and for a group of one that the estimator cannot compare.
    """
    chosen = estimator_of(estimator, token_lengths=token_lengths, greedy=greedy)
    matrix, present = _matrix("rewards", rewards)
    if not len(matrix):
        raise ValueError("rewards: at least one group is needed")
    if mask is not None:
        truth, _ = _matrix("mask", mask, matrix.shape)
        _require("mask", truth, (truth == 0) | (truth == 1) | (np.isnan(truth) & ~present), "true or false, 1 or 0")
        present = np.asarray(truth == 1)
    groups = _grouped(_used("reward", matrix, present), present)
    lengths = outside = None
    if "token_lengths" in chosen.needs:
        lengths = _used("token length", _matrix("token_lengths", token_lengths, matrix.shape)[0], present, 0.0)
    if "greedy" in chosen.needs:
        filled = np.isin(np.arange(len(matrix)), groups.rows)[:, np.newaxis]
        column, _ = _matrix("greedy", np.reshape(np.asarray(greedy), (-1, 1)), filled.shape)
        outside = _used("greedy reward", column, filled)
    advantages = np.full(matrix.shape, fill, dtype=np.float64)
    if groups.values.size:
        baseline, scale = _baseline_and_scale(chosen, groups, lengths, outside)
        # A flat group without epsilon has a scale of 0, and by the leave-one-out formula a group of one.
        scale = np.where(np.equal(scale, 0.0), np.inf, scale)
        advantages[present] = (_points(chosen, groups) - groups.spread(baseline)) / groups.spread(scale)
    return advantages


def multi_reward_advantages(
    parts: Mapping[str, RewardRows],
    weights: Mapping[str, float],
    mask: RewardRows | None = None,
    *,
    epsilon: float = 1e-4,
    fill: float = nan,
) -> Floats:
    """Combine several rewards of each rollout: normalise each in its group, add by weight, normalise over the batch.

    ``(z - M(z)) / (S1(z) + epsilon)`` with ``z = sum of weight * (r - m) / (s1 + epsilon)`` over the rewards, so that
    one of a large scale does not hide the others (TRL's ``normalize_then_sum``). ``parts``: rewards by name, all of
    one shape; where one is absent (None), the others of that rollout count alone. A rollout without any is ``fill``.
    Raises ``ValueError`` as ``batch_advantages`` does, and unless parts and weights have the same names.
    """
    if not parts or set(parts) != set(weights) or not all(abs(weight) <= MAX_SCORE for weight in weights.values()):
        raise ValueError(f"weights: expected a finite number for each of {sorted(parts)}, received {dict(weights)}")
    each = Estimator("part", "group_std", "(r - m) / (s1 + epsilon)", 1, epsilon)
    scores = [batch_advantages(rewards, mask, each) * weights[name] for name, rewards in parts.items()]
    if len(shapes := {score.shape for score in scores}) > 1:
        raise ValueError(f"parts: expected one shape, received {sorted(shapes)}")
    # Every z has a mean of zero in its group already, so centring by group changes nothing.
    whitened = Estimator("sum", "batch_whiten", "(z - M(z)) / (S1(z) + epsilon)", 1, epsilon)
    return batch_advantages(np.nansum(scores, axis=0), ~np.isnan(scores).all(axis=0), whitened, fill=fill)


def _matrix(name: str, given: Any, shape: tuple[int, ...] | None = None) -> tuple[Floats, Bools]:
    """Return numbers ``[B, G]`` with NaN for None and behind shorter groups, and False at both."""
    rows: Any = np.asarray(given) if hasattr(given, "__array__") else given
    if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.dtype.kind in "fiub":
        matrix, present = rows.astype(np.float64, copy=False), np.ones(rows.shape, dtype=np.bool_)
    else:
        try:
            rows = [*rows]
            columns = [*zip_longest(*rows)]
        except TypeError:
            raise ValueError(f"{name}: expected a sequence for each group, received {given!r:.60}") from None
        if refused := [kind for kind in {*map(type, chain(*columns))} if not issubclass(kind, Real | np.bool_ | None)]:
            value = next(each for each in chain(*columns) if type(each) in refused)
            raise ValueError(f"{name}: expected numbers, received {value!r:.40}")
        table = np.array(columns, dtype=object).reshape(len(columns), len(rows)).T
        present = table != None  # noqa: E711  compared element by element
        try:
            matrix = np.where(present, table, nan).astype(np.float64)
        except OverflowError:
            raise ValueError(f"{name}: expected finite numbers, received an integer that is too large") from None
    if shape is not None and matrix.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, received {matrix.shape}")
    return matrix, present


def _used(name: str, matrix: Floats, used: Bools, least: float = -MAX_SCORE) -> Floats:
    """Return the numbers that are used as one row. Raises ``ValueError`` unless they are from ``least`` to 1e100."""
    in_range = (matrix >= least) & (matrix <= MAX_SCORE)
    _require(name, matrix, in_range | ~used, f"finite numbers from {least:g} to {MAX_SCORE:g}")
    return matrix[used]


def _require(name: str, matrix: Floats, valid: Bools, accepted: str) -> None:
    if not valid.all():
        (group, index), *others = np.argwhere(~valid)
        more = f" and {len(others)} more" if others else ""
        raise ValueError(f"{name} {index} of group {group} is {matrix[group, index]:g}{more}; accepted: {accepted}")


class _Groups(NamedTuple):
    """Rewards of the groups that have any, one after the other, with the statistics of each group."""

    values: Floats
    deviations: Floats
    rows: npt.NDArray[np.intp]
    """Index of each group in the batch; ``starts``: of its first value."""
    sizes: npt.NDArray[np.intp]
    starts: npt.NDArray[np.intp]
    means: Floats

    def sums(self, values: Floats) -> Floats:
        """Return the sum over each group."""
        return np.add.reduceat(values, self.starts)

    def spread(self, statistic: Floats | float) -> Floats:
        """Return the statistic of its group for each reward."""
        return np.repeat(np.broadcast_to(statistic, self.sizes.shape), self.sizes)


def _grouped(values: Floats, present: Bools) -> _Groups:
    rows = np.flatnonzero(counts := np.count_nonzero(present, axis=1))
    sizes = counts[rows]
    starts = np.cumsum(sizes) - sizes
    # Relative to the first reward: equal rewards then differ from their mean by exactly 0.
    first = values[starts]
    means = first + np.add.reduceat(values - np.repeat(first, sizes), starts) / sizes
    return _Groups(values, values - np.repeat(means, sizes), rows, sizes, starts, means)


def _baseline_and_scale(estimator: Estimator, groups: _Groups, lengths: Floats | None, outside: Floats | None) -> _Line:
    if "batch" in estimator.needs:
        baseline, scale = _over_batch(estimator, groups, lengths)
    else:
        if lengths is not None:
            tokens = groups.sums(lengths)
            if not tokens.all():
                row = groups.rows[tokens == 0.0][0]
                raise ValueError(f"{estimator.name}: the completions of group {row} have no tokens to weigh by")
            outside = groups.means + groups.sums(lengths * groups.deviations) / tokens
        variances = groups.sums(groups.deviations**2) / np.maximum(groups.sizes - estimator.ddof, 1)
        stds: Floats = np.sqrt(np.maximum(variances, estimator.variance_floor))
        baseline, scale = estimator.baseline_and_scale(
            groups.sizes.astype(np.float64), groups.means, stds, groups.means if outside is None else outside
        )
    alone = groups.sizes == 1
    if estimator.singleton == "zero" or not alone.any():
        return baseline, scale
    single_baseline, single_scale = estimator.alone(groups.rows[alone][0])
    return np.where(alone, single_baseline, baseline), np.where(alone, single_scale, scale)


def _over_batch(estimator: Estimator, groups: _Groups, lengths: Floats | None) -> _Line:
    """Return baseline and scale of an estimator that looks at all groups together."""
    if estimator.kind == "gpg":
        return groups.means, max(1, int(np.count_nonzero(groups.values))) / groups.values.size
    centred = estimator.centred and estimator.kind != "batch_std"
    values, weights = groups.deviations if centred else groups.values, lengths
    if weights is not None:
        values, weights = values[weights > 0.0], weights[weights > 0.0]
    count = float(len(values) if weights is None else weights.sum())
    if weights is not None and count <= estimator.ddof:
        raise ValueError(f"{estimator.name} needs a batch with more than {estimator.ddof} token(s)")
    mean = float(values[0]) + np.average(values - values[0], weights=weights)
    variance = float(np.average((values - mean) ** 2, weights=weights)) * count / (count - estimator.ddof or 1.0)
    if lengths is None:
        return groups.means, variance**0.5 + estimator.epsilon
    return groups.means + mean if centred else mean, (variance + estimator.epsilon) ** 0.5


def _points(estimator: Estimator, groups: _Groups) -> Floats:
    """Return what the baseline is subtracted from: the rewards, their ranks, or how far the best is above the second."""
    values, starts = groups.values, groups.starts
    if estimator.kind == "rank":
        return _ranks(groups, normalised=estimator.normalised)
    if estimator.kind != "top_gap":
        return values
    best = np.maximum.reduceat(values, starts)
    leads = values == groups.spread(best)
    second = np.maximum.reduceat(np.where(leads, -np.inf, values), starts)
    alone = (groups.sums(leads.astype(np.float64)) == 1.0) & (groups.sizes > 1)
    return np.where(leads, groups.spread(np.where(alone, best - second, 0.0)), 0.0)


def _ranks(groups: _Groups, *, normalised: bool) -> Floats:
    """Return centred ranks, or their quantiles of the normal distribution; ties share the mean of their ranks."""
    ranks = np.zeros(groups.values.shape)
    for size in np.unique(groups.sizes[groups.sizes > 1]).tolist():
        index = groups.starts[groups.sizes == size, np.newaxis] + np.arange(size)
        order = (index[:, :1] + np.argsort(groups.values[index], axis=1)).ravel()
        ordered = groups.values[order]
        differs = np.append(True, ordered[1:] != ordered[:-1])
        differs[::size] = True
        runs = np.flatnonzero(differs)
        lengths = np.diff(runs, append=len(order))
        doubled = np.repeat(2 * (runs % size) + lengths - 1, lengths)
        share = np.arange(2 * size - 1) / (2 * size - 2)
        table = np.array([normal_score(each, size) for each in share.tolist()]) if normalised else share - 0.5
        ranks[order] = table[doubled]
    return ranks
