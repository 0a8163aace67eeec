"""Summarise a column of numbers: count, sum, mean and percentiles, with unknown values counted apart.

Percentiles are exact, with linear interpolation between the two nearest values (Hyndman and Fan 1996, type 7, numpy's
default): the q-th of n sorted values is at position q/100 * (n - 1), from 0. Exactness costs eight bytes per value.
"""

from __future__ import annotations

import math
from array import array
from typing import Final, TypeAlias

import numpy as np

Summary: TypeAlias = dict[str, int | float | None]
PERCENTS: Final = (50, 90, 99)
METHOD: Final = "linear interpolation between order statistics (type 7)"


class Column:
    """A column of numbers; None is counted as unknown and enters no sum."""

    __slots__ = ("_unknown", "_values")

    def __init__(self) -> None:
        self._values = array("d")
        self._unknown = 0

    def add(self, value: float | None) -> None:
        """Add one value. Raises ``ValueError`` for NaN and infinity."""
        if value is None:
            self._unknown += 1
            return
        if not math.isfinite(value):
            raise ValueError(f"{value} cannot be summed up")
        self._values.append(value)

    def summary(self) -> Summary:
        """Return ``count``, ``unknown``, ``sum``, ``mean``, ``p50``, ``p90``, ``p99``; the last five None without values."""
        if not self._values:
            figures: Summary = dict.fromkeys(("sum", "mean", *(f"p{percent}" for percent in PERCENTS)))
        else:
            total = math.fsum(self._values)
            points = np.percentile(self._values, PERCENTS, method="linear")
            figures = {"sum": total, "mean": total / len(self._values)}
            figures |= {f"p{percent}": float(point) for percent, point in zip(PERCENTS, points, strict=True)}
        return {"count": len(self._values), "unknown": self._unknown, **figures}
