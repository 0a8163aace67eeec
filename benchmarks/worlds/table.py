"""The policies of the table, by the names that it gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from benchmarks.worlds.credit import Credit
from benchmarks.worlds.engine import Policy
from benchmarks.worlds.policies import Ace, FirstForm, Gepa, KeepEverything, Simba
from benchmarks.worlds.second_form import AgainstNone, Measured, SignedAccounts, TestThenLearn, TwoContrasts

LOOP: Final = "this loop, as it ships"
POLICIES: Final[Mapping[str, Callable[[], Policy]]] = {
    "keep everything (the paper)": KeepEverything,
    "this loop, first form": FirstForm,
    "signed accounts, carried capital": SignedAccounts,
    "test, then learn": TestThenLearn,
    "two contrasts of each group": TwoContrasts,
    "proof against no lessons": AgainstNone,
    LOOP: Measured,
    "in the manner of SIMBA": Simba,
    "in the manner of GEPA": Gepa,
    "in the manner of ACE": Ace,
}
CREDIT: Final = "credit: one posterior"
COMPARED: Final[Mapping[str, Callable[[], Policy]]] = {
    name: Credit if name == CREDIT else POLICIES[name]
    for name in (
        "keep everything (the paper)",
        LOOP,
        CREDIT,
        "in the manner of SIMBA",
        "in the manner of GEPA",
        "in the manner of ACE",
    )
}
"""The policies that credit is compared with, and itself."""
