"""The books of the simulated company are the same for whoever asks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.tasks.tools.bookkeeping import accounts_of, add, exchange_rate, ledger_entries


@given(st.lists(st.floats(-1e9, 1e9), max_size=20))
def test_sums_are_exact_to_the_cent_in_any_order(values):
    assert add(values) == add(list(reversed(values))) == round(math.fsum(values), 2)


@pytest.mark.parametrize(("call", "accepted"), [
    (lambda: accounts_of("  "), "the name of a customer"), (lambda: ledger_entries("17"), "such as AB-1234-1"),
    (lambda: exchange_rate("XYZ", "2025-03-01"), "CHF, GBP"), (lambda: exchange_rate("USD", "yesterday"), "such as 2025-03-14"),
    (lambda: add([math.inf]), "finite"),
])  # fmt: skip
def test_bad_arguments_are_refused_with_what_is_accepted(call, accepted):
    with pytest.raises(ValueError, match=accepted):
        call()
