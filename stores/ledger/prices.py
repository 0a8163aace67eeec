"""Prices per token by model, in nano-dollars (1e-9 USD), without rounding drift.

A model without a price has an unknown cost, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

NANO = 1_000_000_000
"""Nano-dollars in a dollar."""


@dataclass(frozen=True, slots=True)
class Price:
    """Price of one model per token, in nano-dollars; a fraction where the list price per million needs one."""

    input_nano: int | Fraction
    output_nano: int | Fraction
    cached_nano: int | Fraction | None = None
    """Of prompt tokens from the endpoint's cache; None: as other prompt tokens."""

    def __post_init__(self) -> None:
        if min(self.input_nano, self.output_nano, self.cached_nano or 0) < 0:
            raise ValueError("a price cannot be negative")

    @classmethod
    def per_million(cls, input_usd: float, output_usd: float, cached_usd: float | None = None) -> Price:
        """Return the price for list prices in USD per million tokens, at their decimal value: 0.1 is one tenth."""
        return cls(_nano(input_usd), _nano(output_usd), None if cached_usd is None else _nano(cached_usd))

    def cost(self, prompt: int, completion: int, cached: int = 0) -> int:
        """Return the nano-dollars of one call, rounded up. ``cached`` tokens are part of ``prompt``."""
        hits = min(cached, prompt)
        cached_nano = self.input_nano if self.cached_nano is None else self.cached_nano
        return math.ceil((prompt - hits) * self.input_nano + hits * cached_nano + completion * self.output_nano)


def _nano(usd_per_million: float) -> Fraction:
    return Fraction(str(usd_per_million)) * (NANO // 1_000_000)


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Prices by model name in requests."""

    prices: Mapping[str, Price]

    def price(self, model: str) -> Price | None:
        """Return the price, or None when it is unknown."""
        return self.prices.get(model)
