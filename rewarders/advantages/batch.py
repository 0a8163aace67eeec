"""Compute advantages as arrays: one formula for each kind of estimator, for all groups of a batch together.

Arrays are ``[G, B]``: each group is a column. Ragged groups and absent rewards take the same path as whole ones.
Refused are NaN, a reward that is absent but counted by the mask, and a group of one under an estimator that cannot
compare it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tfgrpo.rewarders.advantages.batch_groups import (
    Batch,
    BatchStatistics,
    Floats,
    RewardRows,
    read_batch,
    with_lengths,
)
from tfgrpo.rewarders.advantages.estimators import Estimator, EstimatorName, Kind, estimator_of
from tfgrpo.rewarders.advantages.group import finite_rewards, normal_score

_PAIRWISE: Final = 128
"""Largest group whose ranks are counted pair by pair; above it, sorting is faster."""


def batch_advantages(
    rewards: RewardRows,
    mask: RewardRows | None = None,
    estimator: EstimatorName | Estimator = "grpo",
    *,
    token_lengths: RewardRows | None = None,
    greedy: npt.ArrayLike | None = None,
    fill: float = math.nan,
) -> Floats:
    """Return the advantage of every reward, ``float64[B, Gmax]``, with ``fill`` where there is none.

    ``rewards``: an array ``[B, G]``, or one sequence per group, of any lengths, with None for an absent reward.
    ``mask``: booleans, or 0 and 1, in the shape of the rewards; False marks an absent reward. ``token_lengths``: tokens
    of each completion in the shape of the rewards, for estimators that weigh by them. ``greedy``: ``[B]``, the reward
    of each greedy rollout, for ``remax``. ``fill`` is NaN by default, because an advantage of 0 is a result. A group
    without any reward is all ``fill``.

    Values equal those of ``group_advantage`` group by group, over the rewards that are present. Raises ``ValueError``
    for shapes that do not fit, for NaN and infinity that the mask does not hide, for an unknown estimator or a missing
    input of it, and where no finite advantage exists.
    """
    chosen = estimator_of(estimator)
    _check_needs(chosen, token_lengths=token_lengths, greedy=greedy)
    batch = read_batch(rewards, mask)
    if not batch.values.size:
        return batch.values.T
    columns = _advantages(chosen, _with_inputs(batch, token_lengths, greedy))
    return columns.T if batch.mask is None else np.where(batch.mask, columns, fill).T


def multi_reward_advantages(
    parts: Mapping[str, RewardRows],
    weights: Mapping[str, float],
    mask: RewardRows | None = None,
    *,
    epsilon: float = 1e-4,
    fill: float = math.nan,
) -> Floats:
    """Combine several rewards of each rollout: normalise each in its group, add by weight, normalise over the batch.

    ``(z - M(z)) / (S1(z) + epsilon)`` with ``z = sum of weight * (r - m) / (s1 + epsilon)`` over the rewards, so that
    one of a large scale does not hide the others (TRL's ``normalize_then_sum``). ``parts``: rewards by name, all of
    one shape; where one is absent (None), the others of that rollout count alone. A rollout without any is ``fill``.
    Raises ``ValueError`` as ``batch_advantages`` does, and unless parts and weights have the same names.
    """
    if not parts or set(parts) != set(weights):
        raise ValueError(f"weights: expected one for each of {sorted(parts)}, received {sorted(weights)}")
    bad = sorted(name for name, weight in weights.items() if not math.isfinite(weight))
    if bad:
        raise ValueError(f"weights: expected finite numbers, received {weights[bad[0]]} for {bad[0]!r}")
    each = Estimator("part", "group_std", "(r - m) / (s1 + epsilon)", 1, epsilon)
    scores = {name: batch_advantages(rewards, mask, each) for name, rewards in parts.items()}
    shapes = {name: score.shape for name, score in scores.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError(f"parts: expected one shape, received {shapes}")
    # What overflows here is refused below.
    with np.errstate(over="ignore", invalid="ignore"):
        stacked = np.stack([scores[name] * weights[name] for name in scores])
        sums = np.nansum(stacked, axis=0)
    present = ~np.isnan(stacked).all(axis=0)
    # Every z has a mean of zero in its group already, so centring by group changes nothing.
    whitened = Estimator("sum", "batch_whiten", "(z - M(z)) / (S1(z) + epsilon)", 1, epsilon)
    return batch_advantages(sums, present, whitened, fill=fill)


def _with_inputs(batch: Batch, token_lengths: RewardRows | None, greedy: npt.ArrayLike | None) -> Batch:
    """Return the batch with the other inputs of an estimator. Raises ``ValueError`` for those that do not fit."""
    if token_lengths is not None:
        batch = with_lengths(batch, token_lengths)
    if greedy is None:
        return batch
    try:
        rewards = np.asarray(greedy, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        raise ValueError(f"greedy: expected a finite number for each group, received {greedy!r:.60}") from None
    if rewards.shape != batch.counts.shape:
        raise ValueError(f"greedy: expected shape {batch.counts.shape}, one for each group, received {rewards.shape}")
    wrong = np.flatnonzero(~np.isfinite(rewards) & (batch.counts > 0))
    if wrong.size:
        raise ValueError(f"greedy: group {wrong[0]} has {rewards[wrong[0]]}; only finite rewards can be compared")
    return replace(batch, greedy=rewards)


def batch_statistics(
    groups: Sequence[Sequence[float]], token_lengths: Sequence[Sequence[float]] | None = None
) -> BatchStatistics:
    """Return the statistics of a whole batch, for ``group_advantage(…, batch=…)``.

    ``token_lengths``: tokens of each completion, in the shape of ``groups``; needed by estimators that weigh tokens.
    Raises ``ValueError`` for an empty batch or group, for NaN or infinity, and for lengths that do not fit.
    """
    values = [finite_rewards(group) for group in groups]
    batch = read_batch(values)
    if token_lengths is not None:
        if [*map(len, token_lengths)] != [*map(len, values)]:
            raise ValueError("token_lengths: expected one for each reward, in the shape of the groups")
        batch = with_lengths(batch, token_lengths)
    kinds = product((False, True), (False,) if token_lengths is None else (False, True))
    with np.errstate(over="ignore", invalid="ignore"):
        moments = {
            (centred, by_token): batch.moments(centred=centred, by_token=by_token) for centred, by_token in kinds
        }
    return BatchStatistics(moments, int(np.count_nonzero(batch.values)))


def _check_needs(estimator: Estimator, **given: object) -> None:
    missing = [name for name, value in given.items() if name in estimator.needs and value is None]
    if missing:
        raise ValueError(f"{estimator.name} needs {' and '.join(missing)}: {estimator.formula}")


def _advantages(estimator: Estimator, batch: Batch) -> Floats:
    """Return advantages, ``[G, B]``; values where a reward is absent have no meaning."""
    alone = np.flatnonzero(batch.counts == 1)
    if estimator.singleton == "refuse" and alone.size:
        more = f" and {len(alone) - 1} more" if len(alone) > 1 else ""
        raise ValueError(
            f"{estimator.name}: group {alone[0]}{more} has a single reward, which cannot be compared; omit the group"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        columns = _FORMULAS[estimator.kind](estimator, batch)
    if estimator.singleton == "reward" and alone.size:
        # As in the trainers that keep it: mean 0 and standard deviation 1 are assumed.
        scale = 1.0 + estimator.epsilon if estimator.kind == "group_std" else 1.0
        columns = np.where(batch.counts == 1, batch.values / scale, columns)
    finite = np.isfinite(columns) if batch.mask is None else np.isfinite(columns) | ~batch.mask
    if not finite.all():
        group = int(np.argwhere(~finite.T)[0][0])
        raise ValueError(f"{estimator.name}: rewards as large as those of group {group} have no finite advantage")
    return columns


def _group_std(estimator: Estimator, batch: Batch) -> Floats:
    deviations, _, exponents = batch.spreads
    return _divided(deviations, _scaled_stds(estimator, batch) + np.ldexp(estimator.epsilon, -exponents))


def _scaled_stds(estimator: Estimator, batch: Batch) -> Floats:
    counts = batch.counts
    _, stds, exponents = batch.spreads
    if estimator.ddof:
        stds = stds * np.sqrt(counts / np.maximum(counts - estimator.ddof, 1.0))
    if estimator.variance_floor:
        stds = np.maximum(stds, np.ldexp(estimator.variance_floor**0.5, -exponents))
    return stds


def _batch_std(estimator: Estimator, batch: Batch) -> Floats:
    scale = batch.moments(centred=False).std_with(estimator.ddof) + estimator.epsilon
    return _divided(batch.centred, np.float64(scale))


def _batch_whiten(estimator: Estimator, batch: Batch) -> Floats:
    moments = batch.moments(centred=True)
    scale = moments.std_with(estimator.ddof) + estimator.epsilon
    return _divided(batch.centred - moments.mean, np.float64(scale))


def _token_whiten(estimator: Estimator, batch: Batch) -> Floats:
    moments = batch.moments(centred=estimator.centred, by_token=True)
    if moments.count <= estimator.ddof:
        raise ValueError(f"{estimator.name} needs a batch with more than {estimator.ddof} token(s)")
    values = batch.centred if estimator.centred else batch.values
    return _divided(values - moments.mean, np.hypot(moments.std_with(estimator.ddof), estimator.epsilon**0.5))


def _length_baseline(estimator: Estimator, batch: Batch) -> Floats:
    lengths = batch.token_lengths if batch.token_lengths is not None else np.zeros_like(batch.values)
    whole = lengths.sum(axis=0)
    empty = np.flatnonzero((whole == 0.0) & (batch.counts > 0))
    if empty.size:
        raise ValueError(f"{estimator.name}: the completions of group {empty[0]} have no tokens to weigh by")
    shift = np.einsum("gb,gb->b", lengths, batch.centred) / np.where(whole == 0.0, 1.0, whole)
    shifted: Floats = batch.centred - shift
    return shifted


def _gpg(_: Estimator, batch: Batch) -> Floats:
    return batch.centred * (float(batch.counts.sum()) / max(1, int(np.count_nonzero(batch.values))))


def _top_gap(estimator: Estimator, batch: Batch) -> Floats:
    values = batch.only(batch.values, -np.inf).copy()
    places = values.argmax(axis=0)[np.newaxis, :]
    best = np.take_along_axis(values, places, axis=0)
    np.put_along_axis(values, places, -np.inf, axis=0)
    gap = np.where(batch.counts > 1, best - values.max(axis=0), 0.0)
    if estimator.normalised:
        stds = np.ldexp(_scaled_stds(estimator, batch), batch.spreads.exponents)
        gap = np.where(gap == 0.0, 0.0, gap / np.where(gap == 0.0, 1.0, stds + estimator.epsilon))
    values[:] = 0.0
    np.put_along_axis(values, places, gap, axis=0)
    return values


def _rank(estimator: Estimator, batch: Batch) -> Floats:
    counts = batch.counts
    doubled = _doubled_places(batch)
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


def _doubled_places(batch: Batch) -> npt.NDArray[np.signedinteger[Any]]:
    """Return twice the rank of each reward counted from the worst, 0 and up; ties share the mean of their ranks."""
    values = batch.only(batch.values, np.inf)
    # Counted pair by pair in the smallest type: most groups are small, and sorting them takes longer.
    places = np.full(values.shape, -1, dtype=np.min_scalar_type(-2 * len(values)))
    if len(values) > _PAIRWISE:
        for column, rewards in enumerate(values.T):
            ordered = np.sort(rewards)
            places[:, column] += ordered.searchsorted(rewards, "left") + ordered.searchsorted(rewards, "right")
        return places
    for peer in values:
        places += peer < values
        places += peer <= values
    return places


def _divided(values: Floats, scale: Floats | np.float64) -> Floats:
    """Return ``values / scale``, and 0 where the scale is 0: such a group is flat and has no epsilon."""
    if np.all(scale):
        return values / scale
    return np.where(scale == 0.0, 0.0, values / np.where(scale == 0.0, 1.0, scale))


_Formula: TypeAlias = Callable[[Estimator, Batch], Floats]
_FORMULAS: Final[Mapping[Kind, _Formula]] = MappingProxyType(
    {
        "group_std": _group_std,
        "mean_only": lambda _, batch: batch.centred,
        "batch_std": _batch_std,
        "batch_whiten": _batch_whiten,
        "leave_one_out": lambda _, batch: batch.centred * (batch.counts / np.maximum(batch.counts - 1.0, 1.0)),
        "token_whiten": _token_whiten,
        "length_baseline": _length_baseline,
        "greedy_baseline": lambda _, batch: batch.values - (np.nan if batch.greedy is None else batch.greedy),
        "gpg": _gpg,
        "top_gap": _top_gap,
        "rank": _rank,
    }
)
