"""Prices are exact, round up, and stay unknown when unknown."""

from __future__ import annotations

from fractions import Fraction

from tfgrpo.stores.ledger.state import Price


def test_a_list_price_per_million_is_taken_at_its_decimal_value() -> None:
    assert Price.per_million(0.15, 0.6, 0.075) == Price(150, 600, 75)
    assert Price.per_million(0.0375, 0.1).input_nano == Fraction(75, 2)


def test_known_costs_by_hand() -> None:
    price = Price.per_million(2.5, 10.0, 1.25)
    assert price.cost(1000, 200) == 1000 * 2500 + 200 * 10_000
    assert price.cost(1000, 200, cached=400) == 600 * 2500 + 400 * 1250 + 200 * 10_000
    assert Price.per_million(0.0375, 0.0).cost(1, 0) == 38, "37.5 nano-dollars, rounded up"


def test_cached_tokens_cost_like_others_unless_priced_and_never_exceed_the_prompt() -> None:
    assert Price(3, 5).cost(10, 0, cached=4) == 30
    assert Price(3, 5, 1).cost(10, 0, cached=99) == 10
