"""Tools that look figures up in the books of a company that does not exist: accounts, entries and rates.

Pure functions: every figure is generated from the arguments. Malformed arguments raise ``ValueError`` with what is accepted.
"""

from __future__ import annotations

import math
import random
import re
from datetime import date, timedelta
from typing import Literal, TypedDict

from tfgrpo.stores.json_values import stream

_PURPOSE = "bookkeeping"
_ACCOUNT = re.compile(r"[A-Z]{2}-\d{4}-\d")
_FIRST_DAY = date(2024, 1, 1)
_RATES = {"USD": 0.92, "GBP": 1.17, "CHF": 1.04, "SEK": 0.088, "PLN": 0.232}


class LedgerEntry(TypedDict):
    """One line of an account. Amounts are positive; the kind says what they do to the balance."""

    day: str
    kind: Literal["invoice", "fee", "credit note"]
    amount: float
    status: Literal["booked", "void"]


def accounts_of(customer: str) -> list[str]:
    """List the account numbers of a customer; a customer has two or three."""
    name = " ".join(customer.split())
    if not name:
        raise ValueError("customer: got an empty name; accepted: the name of a customer")
    rng = stream(0, _PURPOSE, "accounts", name.casefold())
    letters = "".join(rng.choices("ABCDEFGHKLMNPRSTUVWXYZ", k=2))
    number = rng.randrange(1000, 10000)
    return [f"{letters}-{number}-{index}" for index in range(1, rng.choice((2, 2, 3)) + 1)]


def ledger_entries(account: str) -> list[LedgerEntry]:
    """List the entries of one account, oldest first.

    Invoices and fees are owed to us, credit notes are owed by us, and void entries do not count.
    """
    if _ACCOUNT.fullmatch(account) is None:
        raise ValueError(f"account: got {account!r}; accepted: a number such as AB-1234-1")
    rng = stream(0, _PURPOSE, "entries", account)
    entries = [_entry(rng, "invoice", 4000, 90000) for _ in range(rng.choice((1, 2, 2, 3)))]
    if rng.random() < 0.35:
        entries.append(_entry(rng, "fee", 500, 4000))
    if rng.random() < 0.35:
        entries.append(_entry(rng, "credit note", 1000, 9000))
    if rng.random() < 0.25:
        entries.append(_entry(rng, "invoice", 4000, 90000, void=True))
    return sorted(entries, key=lambda entry: (entry["day"], entry["amount"]))


def _entry(
    rng: random.Random, kind: Literal["invoice", "fee", "credit note"], least: int, most: int, *, void: bool = False
) -> LedgerEntry:
    """Return an entry of a random day, of ``least`` cents or more but less than ``most``."""
    day = (_FIRST_DAY + timedelta(days=rng.randrange(700))).isoformat()
    return {"day": day, "kind": kind, "amount": rng.randrange(least, most) / 100, "status": "void" if void else "booked"}


def exchange_rate(currency: str, day: str) -> float:
    """Look up the house rate of a day: euros for one unit of the currency. Days are written YYYY-MM-DD."""
    if currency not in _RATES:
        raise ValueError(f"currency: got {currency!r}; accepted: {', '.join(sorted(_RATES))}")
    try:
        known = date.fromisoformat(day)
    except ValueError:
        raise ValueError(f"day: got {day!r}; accepted: a date such as 2025-03-14") from None
    swing = stream(0, _PURPOSE, "rate", currency, known.isoformat()).uniform(-0.06, 0.06)
    return round(_RATES[currency] * (1 + swing), 4)


def add(values: list[float]) -> float:
    """Add up amounts, exactly, and round the sum to cents. Put a minus sign before what is to be taken off."""
    total = math.fsum(values)
    if not math.isfinite(total):
        raise ValueError(f"values: got the sum {total}; accepted: finite numbers")
    return round(total, 2)
