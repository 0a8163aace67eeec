"""Which pitfalls do the word problems of the ``arithmetic`` world hold? Ten: four of counting, six of amounts."""

from __future__ import annotations

from typing import Final

from tfgrpo.tasks.models.simulated.worlds.pitfalls.amounts import (
    CENTS_EUROS,
    DISCOUNT_TAX,
    REFUND_SIGN,
    REVERSE_TAX,
    ROUND_END,
    STACKED,
)
from tfgrpo.tasks.models.simulated.worlds.pitfalls.counts import FENCE_POSTS, HOURS_MINUTES, INCLUSIVE_DAYS, PER_PERSON

ARITHMETIC_PITFALLS: Final = (
    DISCOUNT_TAX,
    INCLUSIVE_DAYS,
    HOURS_MINUTES,
    CENTS_EUROS,
    ROUND_END,
    PER_PERSON,
    STACKED,
    FENCE_POSTS,
    REFUND_SIGN,
    REVERSE_TAX,
)
