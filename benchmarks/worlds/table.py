"""The policies of the tables, by the names that they have there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from benchmarks.worlds.credit import Credit
from benchmarks.worlds.engine import Policy
from benchmarks.worlds.policies import Ace, Gepa, KeepEverything, Simba

CREDIT: Final = "credit: this loop"
POLICIES: Final[Mapping[str, Callable[[], Policy]]] = {
    CREDIT: Credit,
    "keep everything (the paper)": KeepEverything,
    "in the manner of SIMBA": Simba,
    "in the manner of GEPA": Gepa,
    "in the manner of ACE": Ace,
}
SHIPPED: Final = "accounts and a gate (39ff3f5f)"
"""The form of this loop before credit. Its code is gone; the figures are those of that commit, of the same thirty seeds."""
SHIPPED_AREAS: Final[Mapping[str, str]] = {
    "plain": "+20.6 ± 0.7",
    "noisy": "+18.2 ± 0.8",
    "misjudged": "+18.2 ± 0.8",
    "small": "+0.5 ± 0.3",
    "tempting": "+4.9 ± 1.4",
    "opposed": "+9.7 ± 1.4",
    "twins": "+13.3 ± 0.7",
    "crowded": "+7.8 ± 1.1",
    "unlearnable": "+0.0 ± 0.0",
    "many": "+9.0 ± 0.4",
    "little insight": "+16.4 ± 0.8",
    "no insight": "+11.9 ± 0.7",
}
SHIPPED_COSTS: Final = (189, "43", "52", "1838", "94", "56", 0.2, 1.0, 0.5)
"""In the order of the columns of the costs."""
