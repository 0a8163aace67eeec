"""The key that names one group of a run in its files, journal and seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from tfgrpo.stores.outcomes import Arm, Phase


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Which group of a run this is."""

    epoch: int
    phase: Phase
    arm: Arm
    batch: int
    item: str
    """Id of the item."""
    draw: int = 0
    """How often the item was drawn before in this epoch; above 0 only when drawing with replacement."""
    run: str = ""
    """Id of the run."""

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self:
        """Return the key of a line of ``groups.jsonl``, without the run; raise ``KeyError`` if a field is missing."""
        phase: Phase = "train" if row["arm"] == "train" else "eval"
        # Runs from before draws with replacement have no draw.
        return cls(row["epoch"], phase, row["arm"], row["batch"], row["item_id"], row.get("draw", 0))

    @property
    def draw_id(self) -> str:
        """Name of this draw of the item, for journal keys and seeds: each draw has replies of its own."""
        return self.item if self.draw == 0 else f"{self.item}~{self.draw}"
