"""Remember the structures that earlier selections of a task tried, and their rewards, in ``patterns.jsonl``.

Observations are appended; when there are many more lines than structures, the file is replaced by one line each. Lines
are signed with the stamp of their pack: edited lines, and those of another version of the pack, do not count.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.experiences.record import PackStamp, is_signed, sign_record
from tfgrpo.stores.files.atomic import replacing
from tfgrpo.stores.files.lines import LineFile, Row, lines_of

_SHRINK: Final = 2.0
"""Observations at the overall mean added to every structure, so that one lucky draw leads no list."""
SUCCESS: Final = 0.5
"""Reward from which an observation counts as a success, among ``hits``."""
SCHEMA_VERSION: Final = 1
MAX_TEXT_CHARS: Final = 2_000
"""Longest structure that is remembered; a longer one would fill a prompt."""
MAX_PATTERNS: Final = 1_000
"""Structures kept of one scope, far more than a prompt shows; the least frequent and oldest are dropped first."""
HALF_LIFE: Final = 50.0
"""Rounds after which an observation has half its weight: lessons and models change, and old rounds prove less."""
_SLACK: Final = 256
_FOREIGN: Final = 4_000
"""Lines of other scopes that a compaction keeps, the newest."""


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

    def faded(self, now: int) -> PatternStats:
        """Return the statistics at a later round: observations ``HALF_LIFE`` rounds ago have half their weight."""
        factor = 0.5 ** (max(0, now - self.round) / HALF_LIFE)
        return replace(self, weight=self.weight * factor, weighted=self.weighted * factor, round=max(now, self.round))


def with_observation(before: PatternStats | None, seen: Observation, now: int) -> PatternStats:
    """Return the statistics after one more observation in round ``now``."""
    if before is None:
        none_yet = PatternStats(seen.structure, seen.label, "", 0, 0.0, 0.0, 0.0, now, 0, 0.0)
        return with_observation(none_yet, seen, now)
    faded = before.faded(now)
    success = seen.reward >= SUCCESS
    count = before.count + 1
    return replace(
        faded,
        text=seen.text or before.text,
        count=count,
        mean=before.mean + (seen.reward - before.mean) / count,
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


_STATS: Final = tuple(field.name for field in fields(PatternStats))


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
    skipped: int = 0
    """Lines that are damaged, were changed, or are of another version of the pack."""

    def ranked(self) -> Ranked:
        """Return structures to follow, to avoid, and tried."""
        return rank_patterns(self.patterns, self.round)


@dataclass(frozen=True, slots=True)
class PatternMemory:
    """The memory of one scope in one file, for any number of threads and processes at once."""

    path: Path
    scope: MemoryScope
    clock: Clock = utc_now

    def read(self) -> Remembered:
        """Return the memory; empty without a file."""
        return self._folded()[0]

    def observe(self, observations: Sequence[Observation], selection_id: str) -> Remembered:
        """Append one round, all or none, without over-long structures, and return the new memory.

        Raises ``StoreError`` when the disk refuses; the file is then as before.
        """
        kept = [seen for seen in observations if max(len(seen.text), len(seen.label)) <= MAX_TEXT_CHARS]
        if not kept:
            return self.read()
        with LineFile(self.path) as file:
            before, foreign, count = self._folded()
            now = before.round + 1
            at = self.clock().isoformat()
            fresh = [
                self._line("observed", {**asdict(seen), "round": now, "selection_id": selection_id}, at)
                for seen in kept
            ]
            patterns = {pattern.structure: pattern for pattern in before.patterns}
            for each in kept:
                patterns[each.structure] = with_observation(patterns.get(each.structure), each, now)
            after = Remembered(self._capped(patterns, now), now, before.skipped)
            if count + len(fresh) <= 2 * (len(after.patterns) + len(foreign)) + _SLACK:
                file.append(fresh)
            else:
                whole = [self._line("pattern", asdict(pattern), at) for pattern in after.patterns]
                with replacing(self.path) as anew:
                    LineFile(anew).append([*foreign[-_FOREIGN:], *whole])
        return after

    def _capped(self, patterns: Mapping[str, PatternStats], now: int) -> tuple[PatternStats, ...]:
        if len(patterns) <= MAX_PATTERNS:
            return tuple(patterns.values())
        weights = {name: pattern.faded(now).weight for name, pattern in patterns.items()}
        heaviest = sorted(patterns, key=lambda name: (-weights[name], -patterns[name].round, name))
        kept = set(heaviest[:MAX_PATTERNS])
        return tuple(pattern for name, pattern in patterns.items() if name in kept)

    def _folded(self) -> tuple[Remembered, list[Row], int]:
        """Return the memory of this scope, the lines of others, and the number of all lines."""
        patterns: dict[str, PatternStats] = {}
        foreign: list[Row] = []
        now = skipped = count = 0
        for count, line in enumerate(lines_of(self.path), start=1):  # noqa: B007
            if not line.length:
                skipped += line.damaged
                continue
            value = json.loads(line.body)
            if not value.items() >= self.scope.columns().items():
                foreign.append(value)
                continue
            if not is_signed(value, self.scope.pack):
                skipped += 1
                foreign.append(value)
                continue
            now = max(now, value["round"])
            self._take(value, patterns)
        return Remembered(self._capped(patterns, now), now, skipped), foreign, count

    def _take(self, value: Mapping[str, Any], patterns: dict[str, PatternStats]) -> None:
        name = value["structure"]
        if value["kind"] == "pattern":
            patterns[name] = PatternStats(**{key: value[key] for key in _STATS})
            return
        seen = Observation(name, value["label"], value["text"], value["reward"])
        patterns[name] = with_observation(patterns.get(name), seen, value["round"])

    def _line(self, kind: str, content: Mapping[str, Any], at: str) -> Row:
        line = {"schema_version": SCHEMA_VERSION, "kind": kind, **self.scope.columns(), **content, "created_at": at}
        return {**line, "stamp_signature": sign_record(line, self.scope.pack)}
