"""Promises of ``tfgrpo.stores.numeric``."""

from __future__ import annotations

import math

import pytest

from tfgrpo.stores.numeric import at_most, is_finite, two_digits


@pytest.mark.parametrize(
    ("value", "finite"), [(0, True), (-1.5, True), (2**60, True), (10**400, False), (math.inf, False), (math.nan, False)]
)
def test_a_number_is_finite_when_a_float_can_represent_it(value: float, finite: bool) -> None:
    assert is_finite(value) is finite


@pytest.mark.parametrize(
    ("value", "shown"),
    [(100.0, "100"), (1234.5, "1,200"), (2.35e6, "2,400,000"), (17.4, "17"), (0.00789, "0.0079"), (0.0, "0")],
)
def test_two_digits_are_written_without_an_exponent(value: float, shown: str) -> None:
    assert two_digits(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(3100, "3,100"), (3101, "3,110"), (999.1, "1,000"), (13.4661, "13.5"), (0.01681, "0.0169"), (7, "7"), (0, "0")],
)
def test_a_bound_is_rounded_up(value: float, shown: str) -> None:
    assert at_most(value) == shown
