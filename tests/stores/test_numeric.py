"""Promises of ``tfgrpo.stores.numeric``."""

from __future__ import annotations

import math

import pytest

from tfgrpo.stores.numeric import is_finite


@pytest.mark.parametrize(
    ("value", "finite"),
    [(0, True), (-1.5, True), (2**60, True), (10**400, False), (math.inf, False), (math.nan, False)],
)
def test_a_number_is_finite_when_a_float_can_represent_it(value: float, finite: bool) -> None:
    assert is_finite(value) is finite
