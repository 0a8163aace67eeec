"""Which numbers can be counted with? Those that a float can hold: JSON and Python know whole numbers beyond that."""

from __future__ import annotations

import math
from typing import Final, SupportsFloat

MOST: Final = 2**53
"""Beyond every number of tokens; every float up to it is exact."""


def is_finite(value: SupportsFloat) -> bool:
    """Whether a number is neither infinite nor NaN, nor too large to be computed with."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_cost(value: object) -> bool:
    """Whether a value is an amount of money: a finite number that is not negative."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and is_finite(value)


def count_of(value: object) -> int | None:
    """A count that makes sense, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        return None
    return int(value)
