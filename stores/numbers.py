"""Which numbers can be counted with? Those that a float can hold: JSON and Python know whole numbers beyond that."""

from __future__ import annotations

import math
from typing import SupportsFloat


def is_finite(value: SupportsFloat) -> bool:
    """Whether a number is neither infinite nor NaN, nor too large to be computed with."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
