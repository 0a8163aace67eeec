"""Read the rewards of many groups into one checked array, with the statistics that all estimators use.

Groups are columns, so that sums over a group run along memory. Absent rewards are masked and ignored; NaN and infinity
are refused unless masked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tfgrpo.rewarders.advantages.spread import spread_of

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]
RewardRows: TypeAlias = npt.ArrayLike | Sequence[Sequence[float | None]]
"""An array ``[B, G]``, or one sequence per group, of any lengths, with None for an absent reward."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Rewards of B groups as columns. Absent ones are 0 behind the mask."""

    values: Floats
    """``[G, B]``"""
    mask: Bools | None
    """``[G, B]``; None when nothing is absent."""
    counts: Floats
    """``[B]``, rewards in each group."""

    def only(self, values: Floats) -> Floats:
        """Return ``values`` with 0 where a reward is absent."""
        return values if self.mask is None else np.where(self.mask, values, 0.0)

    def present(self, values: Floats) -> Floats:
        """Return the values of the present rewards, group by group, in one row."""
        return values.ravel() if self.mask is None else values[self.mask]


@dataclass(frozen=True, slots=True)
class Spreads:
    """Deviations and standard deviation of every group, as ``advantages.spread`` has them for one."""

    deviations: Floats
    """``[G, B]``, divided by ``2**exponents``; 0 where a reward is absent."""
    stds: Floats
    """``[B]``, population form, scaled the same."""
    exponents: npt.NDArray[np.int64] | None
    """``[B]``; None when nothing is scaled."""

    def unscaled(self) -> Floats:
        """Return ``r - m``."""
        return self.deviations if self.exponents is None else np.ldexp(self.deviations, self.exponents)

    def scaled(self, constant: float) -> Floats | float:
        """Return a constant in the unit of ``stds``."""
        return constant if self.exponents is None else np.ldexp(constant, -self.exponents)


def groups_of(rewards: RewardRows, mask: RewardRows | None) -> Groups:
    """Read and check the rewards. Raises ``ValueError`` as ``batch_advantages`` does."""
    matrix, present = _matrix("rewards", rewards)
    if matrix.shape[0] == 0:
        raise ValueError("rewards: at least one group is needed")
    given = None if mask is None else _mask(mask, matrix.shape, present)
    whole = present if given is None else given if present is None else given & present
    if given is not None and present is not None and bool((given & ~present).any()):
        raise ValueError(f"rewards: {_first(given & ~present)} is absent, but the mask counts it")
    return _checked(matrix, None if whole is None or bool(whole.all()) else whole)


def like_rewards(name: str, given: RewardRows, groups: Groups) -> Floats:
    """Read another number for each reward, such as its length: finite, at least 0, ``[G, B]``, 0 where absent."""
    matrix, present = _matrix(name, given)
    expected = groups.values.shape[::-1]
    if matrix.shape != expected:
        raise ValueError(f"{name}: expected shape {expected}, as the rewards, received {matrix.shape}")
    mask = np.ones(expected, dtype=np.bool_) if groups.mask is None else groups.mask.T
    good = np.isfinite(matrix) & (matrix >= 0)
    wrong = mask & ~(good if present is None else good & present)
    if bool(wrong.any()):
        place = tuple(int(index) for index in np.argwhere(wrong)[0])
        raise ValueError(f"{name}: {_first(wrong)} is {matrix[place]:g}; accepted: at least 0")
    return np.where(mask, matrix, 0.0).T


def spreads_of(groups: Groups) -> Spreads:
    """Return deviations and standard deviation of every group."""
    values, counts = groups.values, np.maximum(groups.counts, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        means = values.sum(axis=0) / counts
        deviations = groups.only(values - means)
        # A second pass removes the rounding of the first sum, which matters with a large common offset.
        means += deviations.sum(axis=0) / counts
        deviations = groups.only(values - means)
        stds = np.sqrt(np.einsum("gb,gb->b", deviations, deviations) / counts)
        ordinary = (stds > 1e-150) & (stds < 1e150) & (stds > 1e-7 * np.abs(means))
    exponents = None
    if not ordinary.all():
        exponents = _correct_extremes(groups, deviations, stds, np.flatnonzero(~ordinary))
    return Spreads(deviations, stds, exponents)


def _correct_extremes(
    groups: Groups, deviations: Floats, stds: Floats, columns: npt.NDArray[np.intp]
) -> npt.NDArray[np.int64] | None:
    """Set flat groups to zero, and compute the few at the limits of float precision one by one."""
    lowest = groups.values if groups.mask is None else np.where(groups.mask, groups.values, np.inf)
    highest = groups.values if groups.mask is None else np.where(groups.mask, groups.values, -np.inf)
    flat = lowest[:, columns].min(axis=0) >= highest[:, columns].max(axis=0)
    deviations[:, columns[flat]] = 0.0
    stds[columns[flat]] = 0.0
    exponents = np.zeros(len(stds), dtype=np.int64)
    for column in columns[~flat]:
        rows = slice(None) if groups.mask is None else groups.mask[:, column]
        spread = spread_of(groups.values[rows, column].tolist())
        deviations[rows, column] = spread.deviations
        stds[column] = spread.scaled_std
        exponents[column] = spread.exponent
    return exponents if exponents.any() else None


def _checked(matrix: Floats, mask: Bools | None) -> Groups:
    columns = np.ascontiguousarray(matrix.T)
    if mask is not None:
        mask = np.ascontiguousarray(mask.T)
        columns = np.where(mask, columns, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = not math.isfinite(columns.sum())
    if suspicious and bool((wrong := ~np.isfinite(columns.T)).any()):
        place = tuple(int(index) for index in np.argwhere(wrong)[0])
        more = f" and {count - 1} more" if (count := int(wrong.sum())) > 1 else ""
        raise ValueError(f"rewards: {_first(wrong)} is {matrix[place]}{more}; only finite rewards can be compared")
    counts = np.full(matrix.shape[0], float(matrix.shape[1])) if mask is None else mask.sum(axis=0).astype(np.float64)
    return Groups(columns, mask, counts)


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
    flat = [value for row in rows for value in row]
    for value in flat:
        # The exact types first: nearly all are floats, and this runs once for each of them.
        if value.__class__ not in (float, int) and not isinstance(value, Real | None):
            raise ValueError(f"{name}: expected numbers, received {value!r:.40}")
    sizes = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    widest = int(sizes.max(initial=0))
    numbers = np.array(flat, dtype=np.float64)
    present = np.arange(widest)[np.newaxis, :] < sizes[:, np.newaxis]
    matrix = np.zeros((len(rows), widest))
    matrix[present] = numbers
    if None in flat:
        present[present] = np.fromiter((value is not None for value in flat), dtype=np.bool_, count=len(flat))
    return matrix, None if bool(present.all()) else present


def _mask(mask: RewardRows, shape: tuple[int, ...], present: Bools | None) -> Bools:
    """Read booleans, or 0 and 1 as trainers write them; ragged rows as long as those of the rewards."""
    if isinstance(mask, np.ndarray) and mask.dtype.kind == "b" and mask.shape == shape:
        return mask
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
        given = known[tuple(np.argwhere(wrong)[0])]
        raise ValueError(f"mask: expected truth values, or 0 and 1, received {given:g} at {_first(wrong)}")
    return known.astype(np.bool_)


def _first(wrong: Bools) -> str:
    group, index = (int(place) for place in np.argwhere(wrong)[0])
    return f"group {group}, index {index}"
