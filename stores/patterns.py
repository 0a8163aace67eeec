"""Remember the structures that earlier selections of a task tried, and their rewards, in ``patterns.jsonl``.

Lines are only appended, one an observation. They are signed with the stamp of their pack: edited lines, and those of another
version of the pack, do not count.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.experiences.store import PackStamp, is_signed_record, sign_record
from tfgrpo.stores.files.lines import LineFile, LineRow, lines_of

_SHRINK: Final = 2.0
"""Observations at the overall mean added to every structure, so that one lucky draw leads no list."""
PATTERNS_SCHEMA: Final = 1
MAX_TEXT_CHARS: Final = 2_000
"""Longest structure that is remembered; a longer one would fill a prompt."""
MAX_PATTERNS: Final = 1_000
"""Structures remembered of one scope, far more than a prompt shows; the least frequent and oldest are dropped first."""
HALF_LIFE: Final = 50.0
"""Rounds after which an observation has half its weight: lessons and models change, and old rounds prove less."""


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


_OBSERVED: Final = tuple(field.name for field in fields(Observation))


@dataclass(frozen=True, slots=True)
class PatternStats:
    """All observations of one structure."""

    structure: str
    label: str
    text: str
    count: int
    mean: float
    weight: float
    """Observations, the older ones counting less, as of ``round``."""
    weighted: float
    """Sum of the rewards, weighted alike."""
    round: int
    """Round in which it was last seen; rounds count from 1."""

    def faded(self, now: int) -> PatternStats:
        """Return the statistics at a later round: observations ``HALF_LIFE`` rounds ago have half their weight."""
        factor = 0.5 ** (max(0, now - self.round) / HALF_LIFE)
        return replace(self, weight=self.weight * factor, weighted=self.weighted * factor, round=max(now, self.round))


def with_observation(before: PatternStats | None, seen: Observation, now: int) -> PatternStats:
    """Return the statistics after one more observation in round ``now``."""
    before = before or PatternStats(seen.structure, seen.label, seen.text, 0, 0.0, 0.0, 0.0, now)
    faded, count = before.faded(now), before.count + 1
    return replace(
        faded,
        text=seen.text or before.text,
        count=count,
        mean=before.mean + (seen.reward - before.mean) / count,
        weight=faded.weight + 1.0,
        weighted=faded.weighted + seen.reward,
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


def rank_patterns(patterns: Sequence[PatternStats], now: int) -> Ranked:
    """Rank structures by their fading means, each shrunk towards the mean of all by two observations.

    Ties are ordered by weight, then by last round, then by key.
    """
    current = [pattern.faded(now) for pattern in patterns]
    latest = {pattern.structure: pattern.round for pattern in patterns}
    weight = math.fsum(pattern.weight for pattern in current)
    overall = math.fsum(pattern.weighted for pattern in current) / weight if weight else 0.0

    def value(pattern: PatternStats) -> float:
        return (pattern.weighted + _SHRINK * overall) / (pattern.weight + _SHRINK)

    def seen(pattern: PatternStats) -> tuple[float, int, str]:
        return -pattern.weight, -latest[pattern.structure], pattern.structure

    # Rounding must not put a structure that equals the mean below it.
    slack = 1e-12 * max(1.0, abs(overall))
    good = sorted((each for each in current if value(each) >= overall - slack), key=lambda it: (-value(it), *seen(it)))
    bad = sorted((each for each in current if value(each) < overall - slack), key=lambda it: (value(it), *seen(it)))
    return Ranked(tuple(good), tuple(bad), tuple(sorted(current, key=seen)))


@dataclass(frozen=True, slots=True)
class MemoryScope:
    """Scope of a memory: observations of one domain, measure and kind of model are no evidence about others."""

    domain: str
    measure: str
    """Names of the rewarders that count."""
    simulated: bool
    pack: PackStamp

    def columns(self) -> dict[str, Any]:
        """Return the columns of every line; the stamp is in the signature."""
        return {
            "domain": self.domain,
            "measure": self.measure,
            "simulated": self.simulated,
            "pack_id": self.pack.pack_id,
        }


@dataclass(frozen=True, slots=True)
class Remembered:
    """Memory of a scope at the time it was read."""

    patterns: tuple[PatternStats, ...] = ()
    """In the order in which they were first seen."""
    round: int = 0
    """Rounds that were remembered."""


@dataclass(frozen=True, slots=True)
class PatternMemory:
    """The memory of one scope in one file, for any number of threads and processes at once."""

    path: Path
    scope: MemoryScope
    clock: Clock = utc_now

    def read(self) -> Remembered:
        """Return the memory; empty without a file."""
        patterns: dict[str, PatternStats] = {}
        now = 0
        for value in (json.loads(line.body) for line in lines_of(self.path) if line.length):
            if not value.items() >= self.scope.columns().items() or not is_signed_record(value, self.scope.pack):
                continue
            seen, now = Observation(*(value[name] for name in _OBSERVED)), max(now, value["round"])
            patterns[seen.structure] = with_observation(patterns.get(seen.structure), seen, value["round"])
        weights = {name: pattern.faded(now).weight for name, pattern in patterns.items()}
        heaviest = sorted(patterns, key=lambda name: (-weights[name], -patterns[name].round, name))[:MAX_PATTERNS]
        kept = set(heaviest)
        return Remembered(tuple(each for name, each in patterns.items() if name in kept), now)

    def observe(self, observations: Sequence[Observation], selection_id: str) -> None:
        """Append one round, all or none, without over-long structures.

        Raises ``StoreError`` when the disk refuses; the file is then as before.
        """
        kept = [seen for seen in observations if max(len(seen.text), len(seen.label)) <= MAX_TEXT_CHARS]
        if not kept:
            return
        with LineFile(self.path) as file:
            of_all: LineRow = {
                "schema_version": PATTERNS_SCHEMA,
                **self.scope.columns(),
                "round": self.read().round + 1,
                "selection_id": selection_id,
                "created_at": self.clock().isoformat(),
            }
            lines: list[LineRow] = [{**of_all, **asdict(seen)} for seen in kept]
            file.append({**line, "stamp_signature": sign_record(line, self.scope.pack)} for line in lines)
