"""Check numbers and arrays from outside: JSON and Python allow integers that no float can represent."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final, SupportsFloat

MAX_SAFE_INTEGER: Final = 2**53
"""Every integer up to it is exact as a float; more than any number of tokens."""
_CENT: Final = Decimal("0.01")


def is_finite(value: SupportsFloat) -> bool:
    """Return whether a number is neither infinite nor NaN, nor too large for a float."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def plain_sum(values: Iterable[float]) -> float:
    """Return the sum, rounded at each step: as of Python 3.12 ``sum`` is more exact, and a reward is the same everywhere."""
    total = 0.0
    for value in values:
        total += value
    return total


def is_cost(value: object) -> bool:
    """Return whether a value is an amount of money: a finite number that is not negative."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and is_finite(value)


def count_or_none(value: object) -> int | None:
    """Return a plausible count as ``int``, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SAFE_INTEGER:
        return None
    return int(value)


def is_count(value: object) -> bool:
    """Return whether a value is an integer of at least 0, and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_number(value: object, *, allow_nan: bool) -> bool:
    """Return whether a value is a number, finite unless ``allow_nan``, and not a boolean."""
    return isinstance(value, float | int) and not isinstance(value, bool) and (allow_nan or is_finite(value))


def as_list(value: object) -> list[Any] | None:
    """Return a list, tuple or array (anything with ``tolist``) as a list; None for everything else, also a text."""
    if isinstance(value, list | tuple):
        return list(value)
    tolist = getattr(value, "tolist", None)
    if not callable(tolist):
        return None
    values = tolist()
    return values if isinstance(values, list) else None


def two_decimals(value: float) -> str:
    """Return two decimals, halves of the decimal value rounded up: 0.575 is 0.58, unlike in ``format``."""
    exact = Decimal(repr(value))
    return str(exact.quantize(_CENT, ROUND_HALF_UP)) if exact.is_finite() else str(exact)


def at_most(value: float) -> str:
    """Return three significant digits of a bound from 0, rounded up: ``13.5`` of 13.461, ``43,300,000``, ``0.0169``."""
    step = 10.0 ** (math.floor(math.log10(value)) - 2) if value else 1.0
    return f"{float(f'{math.ceil(round(value / step, 9)) * step:.3g}'):,.15g}"


def two_digits(value: float) -> str:
    """Return two significant digits, where ``.2g`` writes 1e+02 for a hundred: ``100``, ``1,200``, ``0.0079``."""
    return f"{float(f'{value:.2g}'):,.15g}"
