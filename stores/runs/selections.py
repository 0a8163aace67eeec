"""History of the best-of-K rounds of a task: ``selections.jsonl``, append-only, without prompts and answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field

from tfgrpo.stores.experiences.record import Strict
from tfgrpo.stores.files.lines import LineFile, read_bodies


class SelectionRound(Strict):
    """One round."""

    schema_version: Literal[1] = 1
    selection_id: str
    at: datetime
    item_id: str
    model: str
    simulated: bool
    stage: str
    """Stage of the rewards; empty when rewarders were named."""
    measure: str
    """Names of the rewarders that counted."""
    format: str
    k: int = Field(ge=1)
    outcomes: Mapping[str, int]
    """Candidates by outcome."""
    answered: int = Field(ge=0)
    """Candidates with an answer."""
    valid: int = Field(ge=0)
    """Of those, the usable ones, repaired ones too."""
    chosen: int | None
    """Index of the chosen candidate; None when there was none."""
    reward: float | None
    """Reward of the chosen candidate; None when it has none."""
    mean_reward: float | None
    """Over the graded candidates."""
    calls: int | None = Field(ge=0)
    """None when an agent called models without the ledger; likewise ``tokens``."""
    tokens: int | None = Field(ge=0)
    cost_usd: float | None
    """None when the price of any call is unknown."""
    duration_s: float = Field(ge=0.0)


def record_round(path: Path, entry: SelectionRound) -> bool:
    """Append a round, and return whether it was not there yet. Raises ``StoreError`` when the disk refuses."""
    return LineFile(path, "selection_id").add([entry.model_dump(mode="json")]) > 0


def recorded_rounds(path: Path, *, simulated: bool) -> Iterator[SelectionRound]:
    """Yield the rounds with the simulated or with real models, oldest first; none without a file.

    Raises ``CorruptFile`` for any other line.
    """
    rounds = SelectionRound.of_lines(path, read_bodies(path), "a selection")
    return (entry for entry in rounds if entry.simulated is simulated)
