"""Read the rewards of many groups into one checked array, with the statistics that all estimators use.

Groups are columns, so that sums over a group run along memory. Absent rewards are masked and ignored; NaN and infinity
are refused unless masked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, zip_longest
from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tfgrpo.rewarders.advantages.group import spread_of

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]
RewardRows: TypeAlias = npt.ArrayLike | Sequence[Sequence[float | None]]
"""An array ``[B, G]``, or one sequence per group, of any lengths, with None for an absent reward."""


class Spreads(NamedTuple):
    """Deviations and standard deviation of every group, as ``Spread`` has them for one."""

    deviations: Floats
    """``[G, B]``, divided by ``2**exponents``; 0 where a reward is absent."""
    stds: Floats
    """``[B]``, population form, scaled the same."""
    exponents: npt.NDArray[np.int64]
    """``[B]``; nearly always 0."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and population standard deviation of ``count`` values."""

    count: float
    mean: float
    std: float

    def std_with(self, ddof: int) -> float:
        """Return the standard deviation with divisor ``count - ddof``; 0 when that is not positive."""
        return self.std * math.sqrt(self.count / (self.count - ddof)) if self.count > ddof else 0.0


class BatchStatistics(NamedTuple):
    """Statistics of all groups together, for estimators that look beyond one group."""

    moments: Mapping[tuple[bool, bool], Moments]
    """By (centred, by token): of ``r - m``, with the mean of its own group, or of ``r``; each counted once, or, with
    lengths, once for every token of its completion."""
    nonzero: int
    """Rewards that are not zero."""


@dataclass(frozen=True)
class Batch:
    """Rewards of B groups as columns, with the other inputs of an estimator. Absent rewards are 0 behind the mask."""

    values: Floats
    """``[G, B]``, as the mask and the lengths."""
    mask: Bools | None
    """None when nothing is absent."""
    token_lengths: Floats | None = None
    greedy: Floats | None = None
    """``[B]``"""

    @cached_property
    def counts(self) -> Floats:
        """Rewards in each group, ``[B]``."""
        size, groups = self.values.shape
        return np.full(groups, float(size)) if self.mask is None else self.mask.sum(axis=0).astype(np.float64)

    def only(self, values: Floats, absent: float = 0.0) -> Floats:
        """Return ``values`` with another number where a reward is absent."""
        return values if self.mask is None else np.where(self.mask, values, absent)

    @cached_property
    def spreads(self) -> Spreads:
        """Deviations and standard deviations."""
        counts = np.maximum(self.counts, 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            means = self.values.sum(axis=0) / counts
            deviations = self.only(self.values - means)
            # A second pass removes the rounding of the first sum, which matters with a large common offset.
            means += deviations.sum(axis=0) / counts
            deviations = self.only(self.values - means)
            stds = np.sqrt(np.einsum("gb,gb->b", deviations, deviations) / counts)
            ordinary = (stds > 1e-150) & (stds < 1e150) & (stds > 1e-7 * np.abs(means))
        spreads = Spreads(deviations, stds, np.zeros(len(stds), dtype=np.int64))
        if not ordinary.all():
            self._correct_extremes(spreads, np.flatnonzero(~ordinary))
        return spreads

    @cached_property
    def centred(self) -> Floats:
        """``r - m``, ``[G, B]``."""
        deviations, _, exponents = self.spreads
        return np.ldexp(deviations, exponents) if exponents.any() else deviations

    def moments(self, *, centred: bool, by_token: bool = False) -> Moments:
        """Return the moments of the whole batch, of ``r - m`` or of ``r``, per completion or per token.

        Raises ``ValueError`` out of range.
        """
        present = ... if self.mask is None else self.mask
        flat = (self.centred if centred else self.values)[present].ravel()
        counts = self.token_lengths[present].ravel() if by_token and self.token_lengths is not None else None
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

    def _correct_extremes(self, spreads: Spreads, columns: npt.NDArray[np.intp]) -> None:
        """Set flat groups to zero, and compute the few at the limits of float precision one by one."""
        lowest, highest = self.only(self.values, math.inf)[:, columns], self.only(self.values, -math.inf)[:, columns]
        flat = lowest.min(axis=0) >= highest.max(axis=0)
        spreads.deviations[:, columns[flat]] = 0.0
        spreads.stds[columns[flat]] = 0.0
        for column in columns[~flat]:
            rows = slice(None) if self.mask is None else self.mask[:, column]
            spread = spread_of(self.values[rows, column].tolist())
            spreads.deviations[rows, column] = spread.deviations
            spreads.stds[column] = spread.scaled_std
            spreads.exponents[column] = spread.exponent


def read_batch(rewards: RewardRows, mask: RewardRows | None = None) -> Batch:
    """Read and check the rewards. Raises ``ValueError`` as ``batch_advantages`` does."""
    matrix, present = _matrix("rewards", rewards)
    if matrix.shape[0] == 0:
        raise ValueError("rewards: at least one group is needed")
    if mask is not None:
        counted = _mask(mask, matrix.shape, present)
        if present is not None and bool((counted & ~present).any()):
            raise ValueError(f"rewards: {_first(counted & ~present)} is absent, but the mask counts it")
        present = counted
    whole = None if present is None or bool(present.all()) else np.ascontiguousarray(present.T)
    columns = np.ascontiguousarray(matrix.T)
    if whole is not None:
        columns = np.where(whole, columns, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        # One sum is cheaper than a look at every value, which follows only when it is not finite.
        suspicious = not math.isfinite(columns.sum())
    if suspicious and bool((wrong := ~np.isfinite(columns.T)).any()):
        more = f" and {count - 1} more" if (count := int(wrong.sum())) > 1 else ""
        raise ValueError(f"rewards: {_first(wrong, matrix)}{more}; only finite rewards can be compared")
    return Batch(columns, whole)


def with_lengths(batch: Batch, given: RewardRows) -> Batch:
    """Return the batch with the token length of each completion: finite, at least 0, and 0 where absent."""
    matrix, present = _matrix("token_lengths", given)
    expected = batch.values.shape[::-1]
    if matrix.shape != expected:
        raise ValueError(f"token_lengths: expected shape {expected}, as the rewards, received {matrix.shape}")
    if present is not None:
        matrix = np.where(present, matrix, np.nan)
    mask = np.ones(expected, dtype=np.bool_) if batch.mask is None else batch.mask.T
    wrong = mask & ~(np.isfinite(matrix) & (matrix >= 0))
    if bool(wrong.any()):
        raise ValueError(f"token_lengths: {_first(wrong, matrix)}; accepted: at least 0")
    return replace(batch, token_lengths=np.where(mask, matrix, 0.0).T)


def _matrix(name: str, given: RewardRows) -> tuple[Floats, Bools | None]:
    """Return the numbers as an array, and a mask of those present; None when all are."""
    if isinstance(given, list | tuple):
        return _padded(name, given)
    array = np.asarray(given)
    if array.dtype.kind == "O":
        return _padded(name, array.tolist())
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name}: expected numbers, received {array.dtype}")
    if array.ndim != 2:
        raise ValueError(f"{name}: expected shape (groups, group size), received {array.shape}")
    return array.astype(np.float64, copy=False), None


def _padded(name: str, given: Sequence[Any]) -> tuple[Floats, Bools | None]:
    rows = [row.tolist() if hasattr(row, "tolist") else row for row in given]
    for index, row in enumerate(rows):
        if not isinstance(row, list | tuple):
            raise ValueError(f"{name}: expected a sequence for each group, received {row!r:.40} at group {index}")
    for value in chain.from_iterable(rows):
        # The exact types first: nearly all are floats, and this runs once for each of them.
        if value.__class__ not in (float, int) and not isinstance(value, Real | None):
            raise ValueError(f"{name}: expected numbers, received {value!r:.40}")
    width = max(map(len, rows), default=0)
    matrix = np.array([*zip_longest(*rows)], dtype=object).reshape(width, len(rows)).T
    present: Bools = matrix != None  # noqa: E711  compared element by element
    try:
        numbers = np.where(present, matrix, 0.0).astype(np.float64)
    except OverflowError:
        raise ValueError(f"{name}: expected finite numbers, received an integer that is too large") from None
    return numbers, None if bool(present.all()) else present


def _mask(mask: RewardRows, shape: tuple[int, ...], present: Bools | None) -> Bools:
    """Read booleans, or 0 and 1 as trainers write them; ragged rows as long as those of the rewards."""
    try:
        values, there = _matrix("mask", mask)
    except ValueError:
        raise ValueError("mask: expected truth values, one sequence for each group") from None
    if values.shape != shape:
        raise ValueError(f"mask: expected shape {shape}, as the rewards, received {values.shape}")
    lost = np.zeros(shape, dtype=np.bool_) if there is None else ~there if present is None else present & ~there
    if bool(lost.any()):
        raise ValueError(f"mask: {_first(lost)} has a reward and no truth value")
    known = values if there is None else np.where(there, values, 0.0)
    wrong = (known != 0.0) & (known != 1.0)
    if bool(wrong.any()):
        raise ValueError(f"mask: expected truth values, or 0 and 1, received {known[wrong][0]:g} at {_first(wrong)}")
    return known.astype(np.bool_)


def _first(wrong: Bools, values: Floats | None = None) -> str:
    """Return the first place that is wrong, with its value."""
    group, index = (int(place) for place in np.argwhere(wrong)[0])
    return f"group {group}, index {index}" + ("" if values is None else f" is {values[group, index]:g}")
