"""The books of the simulated company are the same for whoever asks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.tasks.tools.bookkeeping import accounts_of, add, exchange_rate, ledger_entries


def test_customers_have_two_or_three_accounts_with_entries():
    for name in ("Aldana-17", "Kestrel-40", "  kestrel-40 "):
        accounts = accounts_of(name)
        assert len(accounts) in {2, 3}
        assert all(ledger_entries(account) for account in accounts)
    assert accounts_of("Kestrel-40") == accounts_of("  kestrel-40 ")


def test_entries_are_in_order_of_their_days_and_of_every_kind():
    entries = [entry for number in range(1000, 1200) for entry in ledger_entries(f"AB-{number}-1")]
    assert {entry["kind"] for entry in entries} == {"invoice", "fee", "credit note"}
    assert {entry["status"] for entry in entries} == {"booked", "void"}
    assert all(entry["amount"] > 0 for entry in entries)
    days = [entry["day"] for entry in ledger_entries("AB-1003-1")]
    assert days == sorted(days)
    assert ledger_entries("AB-1003-1") == ledger_entries("AB-1003-1")


def test_rates_differ_from_day_to_day_by_little():
    rates = {exchange_rate("USD", f"2025-03-{day:02d}") for day in range(1, 29)}
    assert len(rates) > 20
    assert all(0.8 < rate < 1.0 for rate in rates)


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
