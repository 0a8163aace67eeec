"""Running averages of successes by label, and the prompt hint of earlier best-of-K systems.

Only rewards of at least 0.5 count, so no average is below that. Kept for comparison with those systems; selections use
the statistics over all observations (``tfgrpo.stores.patterns.stats``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from tfgrpo.stores.numeric import two_decimals
from tfgrpo.stores.patterns.stats import SUCCESS, PatternStats

HEADING: Final = "Previously successful process patterns (avoid exact duplication):"


@dataclass(frozen=True, slots=True)
class RunningAverage:
    """Successes of one set of labels."""

    hits: int
    total: float

    @property
    def average(self) -> float:
        """Mean reward of the successes."""
        return self.total / self.hits


@dataclass(frozen=True, slots=True)
class LabelAverages:
    """Successes by label key. Frozen: ``remember`` returns a new table."""

    entries: Mapping[str, RunningAverage] = field(default_factory=lambda: MappingProxyType({}))
    """In the order of their last success."""

    @classmethod
    def of(cls, patterns: Iterable[PatternStats]) -> LabelAverages:
        """Return the table of all observations in ``patterns``."""
        entries: dict[str, RunningAverage] = {}
        for pattern in sorted(patterns, key=lambda pattern: pattern.round):
            if pattern.hits:
                before = entries.pop(pattern.label, RunningAverage(0, 0.0))
                entries[pattern.label] = RunningAverage(before.hits + pattern.hits, before.total + pattern.total)
        return cls(MappingProxyType(entries))

    def __len__(self) -> int:
        return len(self.entries)

    def remember(self, rewards: Iterable[tuple[str, float]]) -> LabelAverages:
        """Return the table after a round of (label key, reward), in order. NaN and rewards below 0.5 are ignored."""
        entries = dict(self.entries)
        for label, reward in rewards:
            if reward >= SUCCESS:
                before = entries.pop(label, RunningAverage(0, 0.0))
                entries[label] = RunningAverage(before.hits + 1, before.total + reward)
        return LabelAverages(MappingProxyType(entries))

    def hint(self, most: int) -> str:
        """Return the best averages as numbered lines below a heading; ties by hits, then the latest. Empty for none."""
        latest = reversed(list(self.entries.items()))
        best = sorted(latest, key=lambda entry: (-entry[1].average, -entry[1].hits))[:most]
        lines = [
            f"{number}. {label} (avg reward: {two_decimals(entry.average)})"
            for number, (label, entry) in enumerate(best, 1)
        ]
        return "\n".join([HEADING, *lines]).rstrip() if lines else ""
