"""Statistics of all observations of one structure: count, mean, variance and an exponentially fading weight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

_SHRINK: Final = 2.0
"""Observations at the overall mean added to every structure, so that one lucky draw leads no list."""
SUCCESS: Final = 0.5
"""Reward from which an observation counts as a success in the running averages of ``tfgrpo.stores.patterns.memory``."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One answer that was scored, as a structure."""

    structure: str
    """Key of the structure: equal for equivalent answers."""
    label: str
    """Key of its labels alone."""
    text: str
    """The structure as shown in prompts."""
    reward: float
    """Finite. Higher is better."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.reward):
            raise ValueError(f"a reward is finite, got {self.reward}")


@dataclass(frozen=True, slots=True)
class PatternStats:
    """All observations of one structure."""

    structure: str
    label: str
    text: str
    count: int
    mean: float
    m2: float
    """Sum of squared deviations from the mean (Welford 1962)."""
    best: float
    weight: float
    """Observations, the older ones counting less, as of ``round``."""
    weighted: float
    """Sum of the rewards, weighted alike."""
    round: int
    """Round in which it was last seen; rounds count from 1."""
    hits: int
    """Successes: observations with a reward of at least 0.5."""
    total: float
    """Sum of their rewards."""

    @property
    def std_error(self) -> float | None:
        """Standard error of the mean; None for a single observation."""
        return math.sqrt(self.m2 / (self.count - 1) / self.count) if self.count > 1 else None

    def faded(self, now: int, half_life: float) -> PatternStats:
        """Return the statistics at a later round: observations ``half_life`` rounds ago have half their weight."""
        factor = 0.5 ** (max(0, now - self.round) / half_life)
        return replace(self, weight=self.weight * factor, weighted=self.weighted * factor, round=max(now, self.round))


def with_observation(before: PatternStats | None, seen: Observation, now: int, half_life: float) -> PatternStats:
    """Return the statistics after one more observation in round ``now``."""
    success = seen.reward >= SUCCESS
    if before is None:
        return PatternStats(
            structure=seen.structure,
            label=seen.label,
            text=seen.text,
            count=1,
            mean=seen.reward,
            m2=0.0,
            best=seen.reward,
            weight=1.0,
            weighted=seen.reward,
            round=now,
            hits=int(success),
            total=seen.reward if success else 0.0,
        )
    faded = before.faded(now, half_life)
    count = before.count + 1
    deviation = seen.reward - before.mean
    mean = before.mean + deviation / count
    return replace(
        faded,
        text=seen.text or before.text,
        count=count,
        mean=mean,
        m2=before.m2 + deviation * (seen.reward - mean),
        best=max(before.best, seen.reward),
        weight=faded.weight + 1.0,
        weighted=faded.weighted + seen.reward,
        hits=before.hits + int(success),
        total=before.total + (seen.reward if success else 0.0),
    )


@dataclass(frozen=True, slots=True)
class Ranked:
    """Structures to follow, to avoid, and tried."""

    good: tuple[PatternStats, ...]
    """Not below the mean of all, best first."""
    bad: tuple[PatternStats, ...]
    """Below the mean of all, worst first."""
    tried: tuple[PatternStats, ...]
    """All, by weight and last round."""


def rank_patterns(patterns: Sequence[PatternStats], now: int, half_life: float) -> Ranked:
    """Rank structures by their fading means, each shrunk towards the mean of all by two observations.

    Ties are ordered by weight, then by last round, then by key.
    """
    current = [pattern.faded(now, half_life) for pattern in patterns]
    latest = {pattern.structure: pattern.round for pattern in patterns}
    weight = math.fsum(pattern.weight for pattern in current)
    overall = math.fsum(pattern.weighted for pattern in current) / weight if weight else 0.0

    def value(pattern: PatternStats) -> float:
        return (pattern.weighted + _SHRINK * overall) / (pattern.weight + _SHRINK)

    def seen(pattern: PatternStats) -> tuple[float, int, str]:
        return -pattern.weight, -latest[pattern.structure], pattern.structure

    slack = 1e-12 * max(1.0, abs(overall))
    good = sorted((each for each in current if value(each) >= overall - slack), key=lambda it: (-value(it), *seen(it)))
    bad = sorted((each for each in current if value(each) < overall - slack), key=lambda it: (value(it), *seen(it)))
    return Ranked(tuple(good), tuple(bad), tuple(sorted(current, key=seen)))
