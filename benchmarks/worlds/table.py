"""The policies of the table, by the names that it gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

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
