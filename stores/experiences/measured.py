"""Record groups that measured single lessons: attempts at one item under a random half of them, and under the other half."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, Field

from tfgrpo.stores.experiences.record import Strict
from tfgrpo.stores.files.atomic import KeyedJsonl, read_lines


class MeasuredLine(Strict):
    """One line of ``measured.jsonl``."""

    schema_version: Literal[1] = 1
    group_id: str
    run_id: str
    simulated: bool
    model: str
    """Of the attempts: a lesson may help one model and harm another."""
    night: int = Field(ge=0)
    """Decisions of the task's gate before the run."""
    item_id: str
    drawn: tuple[str, ...]
    """Ids of the lessons in the prompt of the first half of the attempts."""
    complement: tuple[str, ...]
    """Ids of those in the prompt of the second half."""
    with_drawn: tuple[float, ...]
    """Rewards of the scored attempts of the first half."""
    with_complement: tuple[float, ...]
    spread: float = Field(gt=0.0)
    """Range of the reward, in whose shares effects are stated."""
    created_at: AwareDatetime


def append_measured(path: Path, lines: Iterable[MeasuredLine]) -> int:
    """Append the groups that are not in the file and return how many, all or none. Raises ``StoreError``."""
    return KeyedJsonl(path, lambda row: str(row["group_id"])).append(line.model_dump(mode="json") for line in lines)


def read_measured(path: Path, lines: int | None = None) -> list[MeasuredLine]:
    """Return the first ``lines`` lines, None for all. Raises ``CorruptFile`` for a line of another shape."""
    return list(islice(MeasuredLine.of_lines(path, read_lines(path), "a measuring group"), lines))
