"""Keep what tests on sealed items found: one line per library, append-only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime

from tfgrpo.stores.experiences.record import Strict
from tfgrpo.stores.files.lines import LineFile, read_bodies


class SealedTest(Strict):
    """A library against no lessons, on the sealed items."""

    schema_version: Literal[1] = 1
    run_id: str
    tested_at: AwareDatetime
    library_id: str
    experience_ids: tuple[str, ...]
    model: str
    simulated: bool
    estimate: float | None
    """Mean difference in points, library minus no lessons; None when nothing could be compared."""
    low: float | None
    high: float | None
    confidence: float
    pairs: int
    """Sealed items scored in both arms."""
    lost: int
    """Those without a score in one of them."""
    group_size: int
    seen: int
    """Sealed items that earlier runs of the task had attempted: they were not sealed then."""

    @property
    def result(self) -> str:
        """The finding in a few words."""
        if self.estimate is None or self.low is None or self.high is None:
            return "nothing could be compared"
        interval = f"({100 * self.confidence:.0f} %: {self.low:+.1f} … {self.high:+.1f})"
        seen = f", {self.seen} of which earlier runs had attempted" if self.seen else ""
        return f"{self.estimate:+.1f} points {interval}, {self.pairs} sealed items{seen}"


def sealed_tests(path: Path) -> Iterator[SealedTest]:
    """Yield all tests, oldest first; none without a file. Raises ``CorruptFile`` for any other line."""
    return SealedTest.of_lines(path, read_bodies(path), "a test on sealed items")


def record_test(path: Path, test: SealedTest) -> SealedTest:
    """Append a test unless its run has one on record, and return the one on record. Raises ``StoreError``."""
    with LineFile(path) as file:
        for one in sealed_tests(path):
            if one.run_id == test.run_id:
                return one
        file.append([test.model_dump(mode="json")], fsync=True)
    return test
