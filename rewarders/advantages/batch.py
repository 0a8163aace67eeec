"""Advantage estimators by name (``estimators.jsonl``), for arrays of groups, masked where a reward is absent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from math import nan
from numbers import Real
from pathlib import Path
from statistics import NormalDist
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic.dataclasses import dataclass as checked_dataclass

from tfgrpo.rewarders.options import NonNegative
from tfgrpo.stores.outcomes import MAX_SCORE

EstimatorKind: TypeAlias = Literal[
    "group_std", "mean_only", "leave_one_out", "length_baseline", "greedy_baseline", "rank", "top_gap", "batch_std",
    "batch_whiten", "token_whiten", "gpg",
]  # fmt: skip
_NEEDS: Final[Mapping[EstimatorKind, tuple[str, ...]]] = {
    **dict.fromkeys(("batch_std", "batch_whiten", "gpg"), ("batch",)),
    "token_whiten": ("batch", "token_lengths"),
    "length_baseline": ("token_lengths",),
    "greedy_baseline": ("greedy",),
}


@checked_dataclass(frozen=True, slots=True)
class Estimator:
    """One estimator. ``dataclasses.replace`` makes a variant with other constants. Raises ``ValueError`` for invalid ones."""

    name: str
    kind: EstimatorKind
    formula: str
    """Of the rewards r of a group of size G, their mean m, deviations s0 and s1 (divisor G and G-1), M, S0 and S1 of the
    batch, and token lengths L."""
    ddof: Literal[0, 1] = 0
    """Subtracted from the number of values that a standard deviation divides by."""
    epsilon: NonNegative = 0.0
    """Added to the standard deviation; by ``token_whiten`` to the variance."""
    variance_floor: NonNegative = 0.0
    """Least variance of a group, in the square of the rewards' unit."""
    singleton: Literal["zero", "reward", "refuse"] = "zero"
    """Advantage of a group of one: the formula's, the reward itself, or a ``ValueError``."""
    centred: bool = True
    """``token_whiten``: whether the mean of the group is subtracted first."""
    normalised: bool = False
    """``top_gap``: divided by the standard deviation. ``rank``: as quantiles of the normal distribution."""
    alias: str | None = None
    """Shorter name, of which most name the trainer whose default it is."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Required inputs other than the rewards of the group. ``batch``: all groups together."""
        return _NEEDS.get(self.kind, ())


_ROWS: Final = Path(__file__).with_name("estimators.jsonl").read_text("utf-8").splitlines()
ESTIMATORS: Final[Mapping[str, Estimator]] = MappingProxyType(
    {each.name: each for each in (Estimator(**json.loads(row)) for row in _ROWS)}
)
"""Every estimator by its own name.

Sources: GRPO arXiv:2402.03300, Dr. GRPO 2503.20783 (``mean_only``), RLOO 2402.14740, REINFORCE++ 2501.03262, OPO
2505.23585, ReMax 2310.10505, pass@k 2503.19595, and the trainers themselves for constants and groups of one.
"""
PRESET_ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {each.alias: each.name for each in ESTIMATORS.values() if each.alias}
)


def estimator_of(estimator: str | Estimator, **inputs: object) -> Estimator:
    """Return an estimator by name or alias. Raises ``ValueError`` for an unknown one, and if a needed input is None."""
    chosen = estimator if isinstance(estimator, Estimator) else ESTIMATORS.get(PRESET_ALIASES.get(estimator, estimator))
    if chosen is None:
        raise ValueError(f"unknown estimator {estimator!r}; known: {', '.join([*PRESET_ALIASES, *ESTIMATORS])}")
    for name in chosen.needs:
        if name in inputs and inputs[name] is None:
            hint = "; batch_advantages takes all groups" if name == "batch" else ""
            raise ValueError(f"{chosen.name} needs {name}: {chosen.formula}{hint}")
    return chosen


_Floats: TypeAlias = npt.NDArray[np.float64]
_Bools: TypeAlias = npt.NDArray[np.bool_]
_NONE: Final[_Floats] = np.zeros((1, 1))
RewardRows: TypeAlias = npt.ArrayLike | Sequence[Sequence[float | None]]


def batch_advantages(
    rewards: RewardRows,
    mask: RewardRows | None = None,
    estimator: str | Estimator = "grpo",
    *,
    token_lengths: RewardRows | None = None,
    greedy: npt.ArrayLike | None = None,
    fill: float = nan,
) -> _Floats:
    """Return the advantage of every reward, ``float64[B, Gmax]``, with ``fill`` where there is none.

    ``mask``: booleans, or 0 and 1, in the shape of the rewards; False marks an absent reward. ``token_lengths``: tokens
    of each completion in the shape of the rewards, for estimators that weigh by them. ``greedy``: ``[B]``, the reward
    of each greedy rollout, for ``remax``. ``fill`` is NaN by default, because an advantage of 0 is a result.

    Raises ``ValueError`` for shapes that do not fit, for NaN and rewards beyond 1e100 that the mask does not hide, and for
    an estimator that is unknown, lacks an input or cannot compare a group of one.
    """
    chosen = estimator_of(estimator, token_lengths=token_lengths, greedy=greedy)
    matrix, present = _matrix("rewards", rewards)
    if not len(matrix):
        raise ValueError("rewards: at least one group is needed")
    if mask is not None:
        truth, _ = _matrix("mask", mask, matrix.shape)
        _require("mask", truth, (truth == 0) | (truth == 1) | (np.isnan(truth) & ~present), "true or false, 1 or 0")
        present = np.asarray(truth == 1)
    values, tokens, outside = _used("reward", matrix, present), _NONE, _NONE
    if "token_lengths" in chosen.needs:
        tokens = _used("token length", _matrix("token_lengths", token_lengths, matrix.shape)[0], present, 0.0)
    if "greedy" in chosen.needs:
        some = np.asarray(present.any(axis=1, keepdims=True))
        column, _ = _matrix("greedy", np.reshape(np.asarray(greedy), (-1, 1)), some.shape)
        outside = _used("greedy reward", column, some)
    if not present.any():
        return np.full(matrix.shape, fill, dtype=np.float64)
    groups = _Groups(values, present, tokens, outside)
    alone = groups.sizes == 1.0
    if chosen.singleton == "refuse" and alone.any():
        group = np.flatnonzero(alone)[0]
        raise ValueError(f"{chosen.name}: group {group} has a single reward, which cannot be compared; omit the group")
    advantages = _FORMULAS[chosen.kind](chosen, groups)
    if chosen.singleton == "reward":
        # As in the trainers that keep the reward: mean 0 and standard deviation 1 are assumed.
        advantages = np.where(alone, values / (1.0 + chosen.epsilon * (chosen.kind == "group_std")), advantages)
    return np.where(present, advantages, fill)


def multi_reward_advantages(
    parts: Mapping[str, RewardRows],
    weights: Mapping[str, float],
    mask: RewardRows | None = None,
    *,
    epsilon: float = 1e-4,
    fill: float = nan,
) -> _Floats:
    """Combine several rewards of each rollout: normalise each in its group, add by weight, normalise over the batch.

    ``(z - M(z)) / (S1(z) + epsilon)`` with ``z = sum of weight * (r - m) / (s1 + epsilon)`` over the rewards (TRL's
    ``normalize_then_sum``). Where one is absent (None), the others of that rollout count alone. Raises ``ValueError``.
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


def _matrix(name: str, values: Any, shape: tuple[int, ...] | None = None) -> tuple[_Floats, _Bools]:
    """Return numbers ``[B, G]`` with NaN for None and behind shorter groups, and False at both."""
    rows: Any = np.asarray(values) if hasattr(values, "__array__") else values
    if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.dtype.kind in "fiub":
        matrix, present = rows.astype(np.float64, copy=False), np.ones(rows.shape, dtype=np.bool_)
    else:
        try:
            columns = [*zip_longest(*rows)]
            if not all(issubclass(kind, Real | np.bool_ | None) for kind in {*map(type, chain(*columns))}):
                raise TypeError
            table = np.array(columns, dtype=object).reshape(len(columns), len(rows)).T
            present = table != None  # noqa: E711  compared element by element
            matrix = np.where(present, table, nan).astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            accepted = "numbers, in a sequence for each group"
            raise ValueError(f"{name}: expected {accepted}, received {values!r:.60}") from None
    if shape is not None and matrix.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, received {matrix.shape}")
    return matrix, present


def _used(name: str, matrix: _Floats, used: _Bools, least: float = -MAX_SCORE) -> _Floats:
    """Return 0 for what is not used. Raises ``ValueError`` unless the rest is from ``least`` to 1e100."""
    in_range = (matrix >= least) & (matrix <= MAX_SCORE)
    _require(name, matrix, in_range | ~used, f"finite numbers from {least:g} to {MAX_SCORE:g}")
    return np.where(used, matrix, 0.0)


def _require(name: str, matrix: _Floats, valid: _Bools, accepted: str) -> None:
    if not valid.all():
        (group, index), *others = np.argwhere(~valid)
        more = f" and {len(others)} more" if others else ""
        raise ValueError(f"{name} {index} of group {group} is {matrix[group, index]:g}{more}; accepted: {accepted}")


@dataclass
class _Groups:
    """Rewards ``[B, G]``, 0 where there is none, and what the estimators need of them; columns ``[B, 1]`` are of groups."""

    values: _Floats
    present: _Bools
    tokens: _Floats
    greedy: _Floats

    def __post_init__(self) -> None:
        self.sizes = np.count_nonzero(self.present, axis=1, keepdims=True).astype(np.float64)
        # Rewards beside one of the group; 1 when there is none, to divide by.
        self.others = np.maximum(self.sizes - 1.0, 1.0)
        self.best = np.where(self.sizes > 0.0, self.with_absent(-np.inf).max(axis=1, keepdims=True), 0.0)
        # From the mean of the group, relative to its best: equal rewards then differ from it by exactly 0.
        below = (self.values - self.best) * self.present
        self.deviations = (below - _sums(below) / np.maximum(self.sizes, 1.0)) * self.present

    def with_absent(self, value: float) -> _Floats:
        return self.values if self.present.all() else np.where(self.present, self.values, value)

    def std(self, estimator: Estimator) -> _Floats:
        variances = _sums(self.deviations**2) / (self.others if estimator.ddof else np.maximum(self.sizes, 1.0))
        return np.sqrt(np.maximum(variances, estimator.variance_floor)) + estimator.epsilon


def _sums(values: _Floats) -> _Floats:
    sums: _Floats = np.einsum("ij->i", values)
    return sums[:, np.newaxis]


def _over(values: _Floats, scale: _Floats | float) -> _Floats:
    # A flat group without epsilon has a scale of 0 and advantages of 0.
    return np.divide(values, scale, out=np.zeros_like(values), where=np.not_equal(scale, 0.0))


def _mean_and_variance(estimator: Estimator, values: _Floats, weights: _Floats | None = None) -> tuple[float, float]:
    """Return both over the whole batch, relative to its first value as those of a group are to its best."""
    count = float(len(values) if weights is None else weights.sum())
    mean = values[0] + np.average(values - values[0], weights=weights)
    variance = np.average((values - mean) ** 2, weights=weights) * count / (count - estimator.ddof or 1.0)
    return float(mean), float(variance)


def _batch_scaled(estimator: Estimator, groups: _Groups) -> _Floats:
    over = groups.values if estimator.kind == "batch_std" else groups.deviations
    _, variance = _mean_and_variance(estimator, over[groups.present])
    return _over(groups.deviations, variance**0.5 + estimator.epsilon)


def _token_whitened(estimator: Estimator, groups: _Groups) -> _Floats:
    values, has_tokens = groups.deviations if estimator.centred else groups.values, groups.tokens > 0.0
    if groups.tokens.sum() <= estimator.ddof:
        raise ValueError(f"{estimator.name} needs a batch with more than {estimator.ddof} token(s)")
    mean, variance = _mean_and_variance(estimator, values[has_tokens], groups.tokens[has_tokens])
    return _over(values - mean, (variance + estimator.epsilon) ** 0.5)


def _length_weighted(estimator: Estimator, groups: _Groups) -> _Floats:
    tokens = _sums(groups.tokens)
    if (empty := (tokens == 0.0) & (groups.sizes > 0.0)).any():
        group = np.flatnonzero(empty)[0]
        raise ValueError(f"{estimator.name}: the completions of group {group} have no tokens to weigh by")
    return groups.deviations - _over(_sums(groups.tokens * groups.deviations), tokens)


def _lead(estimator: Estimator, groups: _Groups) -> _Floats:
    if groups.values.shape[1] == 1:
        return np.zeros_like(groups.values)
    second = np.partition(groups.with_absent(-np.inf), -2, axis=1)[:, -2:-1]
    lead = np.where(groups.sizes > 1.0, groups.best - second, 0.0)
    lead = np.where((groups.values == groups.best) & groups.present, lead, 0.0)
    return _over(lead, groups.std(estimator)) if estimator.normalised else lead


def _ranked(estimator: Estimator, groups: _Groups) -> _Floats:
    """Return centred ranks, or their quantiles of the normal distribution; ties share the mean of their ranks."""
    values = groups.with_absent(np.inf)
    order = np.argsort(values, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    ranks, edge = np.arange(values.shape[1]), np.ones((len(values), 1), dtype=np.bool_)
    # Each run of equal values has a first and a last rank; their sum is twice the mean.
    differs = ordered[:, 1:] != ordered[:, :-1]
    first = np.maximum.accumulate(np.where(np.hstack((edge, differs)), ranks, 0), axis=1)
    ends = np.where(np.hstack((differs, edge)), ranks, ranks.size)
    last = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
    doubled = np.empty_like(order)
    np.put_along_axis(doubled, order, first + last, axis=1)
    if not estimator.normalised:
        return np.where(groups.sizes > 1.0, doubled / (2.0 * groups.others) - 0.5, 0.0)
    scores = np.zeros_like(values)
    for size in np.unique(groups.sizes[groups.sizes > 0.0]).astype(int).tolist():
        rows = groups.sizes[:, 0] == size
        quantiles = [NormalDist().inv_cdf((twice / 2 + 1) / (size + 1)) for twice in range(2 * size - 1)]
        scores[rows] = np.take(quantiles, doubled[rows], mode="clip")
    return scores


_FORMULAS: Final[Mapping[EstimatorKind, Callable[[Estimator, _Groups], _Floats]]] = {
    "group_std": lambda estimator, groups: _over(groups.deviations, groups.std(estimator)),
    "mean_only": lambda _, groups: groups.deviations,
    "leave_one_out": lambda _, groups: groups.deviations * (groups.sizes / groups.others),
    "length_baseline": _length_weighted,
    "greedy_baseline": lambda _, groups: groups.values - groups.greedy,
    "rank": _ranked,
    "top_gap": _lead,
    "batch_std": _batch_scaled,
    "batch_whiten": _batch_scaled,
    "token_whiten": _token_whitened,
    "gpg": lambda _, groups: groups.deviations * groups.sizes.sum() / max(1, np.count_nonzero(groups.values)),
}
