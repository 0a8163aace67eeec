"""What a task remembers of its best-of-K rounds: their history, the curriculum stage that follows, and structures tried.

``selections.jsonl`` is append-only, without prompts and answers. Validity is rewarded first, then behaviour, which
never is without a reference. A reached stage is left only when the figures fall clearly below the thresholds, so that
it does not flicker. ``patterns.jsonl`` has one line an observation of a structure and its reward, signed with the stamp
of its pack: edited lines, and those of another version of the pack, do not count.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from operator import mul
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Literal, NamedTuple

from pydantic import Field

from tfgrpo.pipelines.settings.tree import SelectionStage
from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.experiences.store import PackStamp, Strict, is_signed_record, read_lines_as, sign_record
from tfgrpo.stores.files.lines import LineFile, LineRow, lines_of, read_bodies

PATTERNS_SCHEMA: Final = 1
# A longer structure would fill a prompt.
MAX_TEXT_CHARS: Final = 2_000
# Of one scope, far more than a prompt shows; the least frequent and oldest are dropped first.
MAX_PATTERNS: Final = 1_000
# Rounds after which an observation has half its weight: lessons and models change, and old rounds prove less.
HALF_LIFE: Final = 50.0
VALIDITY: Final[SelectionStage] = "VALIDITY_GAP"
BEHAVIOUR: Final[SelectionStage] = "BEHAVIORAL_CONSOLIDATION"
# High rounds in a row to advance; also the last rounds that decide about falling back.
_ROUNDS: Final = 10
# To be exceeded by the chosen candidate of a high round and by the mean of the stage, and by the share of usable answers.
_MIN_REWARD: Final = 0.8
_MIN_VALID: Final = 0.95
# Fall below a threshold that ends the stage: ten rounds vary by less.
_MARGIN: Final = 0.1


@dataclass(frozen=True, slots=True)
class Observation:
    """One answer that was scored, as a structure."""

    structure: str
    """Key of the structure: equal for equivalent answers."""
    text: str
    """The structure as shown in prompts."""
    reward: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.reward):
            raise ValueError(f"a reward is finite, got {self.reward}")


_OBSERVED: Final = tuple(field.name for field in fields(Observation))


@dataclass(frozen=True, slots=True)
class PatternStats:
    """All observations of one structure, as of one round."""

    structure: str
    text: str
    count: int
    mean: float
    weight: float
    """Observations; those ``HALF_LIFE`` rounds ago count half."""
    weighted: float
    """The same of their rewards."""
    round: int
    """Round in which it was last seen; rounds count from 1."""


def pattern_stats(observed: Sequence[tuple[int, Observation]], now: int) -> PatternStats:
    """Return the statistics, as of round ``now``, of the observations of one structure, each with its round."""
    rewards = [seen.reward for _, seen in observed]
    weights = [0.5 ** ((now - at) / HALF_LIFE) for at, _ in observed]
    text = next((seen.text for _, seen in reversed(observed) if seen.text), "")
    sums = math.fsum(weights), math.fsum(map(mul, weights, rewards))
    return PatternStats(observed[0][1].structure, text, len(rewards), fmean(rewards), *sums, max(at for at, _ in observed))


class Ranked(NamedTuple):
    """Structures not below the mean of all, best first; those below it, worst first; and all, by weight and last round."""

    good: list[PatternStats]
    bad: list[PatternStats]
    tried: list[PatternStats]


def _most_seen(pattern: PatternStats) -> tuple[float, int, str]:
    return -pattern.weight, -pattern.round, pattern.structure


def rank_patterns(patterns: Sequence[PatternStats]) -> Ranked:
    """Rank structures by their fading means; ties are ordered by weight, then by last round, then by key."""
    weight = math.fsum(pattern.weight for pattern in patterns)
    overall = math.fsum(pattern.weighted for pattern in patterns) / weight if weight else 0.0

    def value(pattern: PatternStats) -> float:
        # Shrunk towards the mean of all by two observations, so that one lucky draw leads no list.
        return (pattern.weighted + 2.0 * overall) / (pattern.weight + 2.0)

    # Rounding must not put a structure that equals the mean below it.
    least, tried = overall - 1e-12 * max(1.0, abs(overall)), sorted(patterns, key=_most_seen)
    good = sorted((each for each in tried if value(each) >= least), key=value, reverse=True)
    return Ranked(good, sorted((each for each in tried if value(each) < least), key=value), tried)


@dataclass(frozen=True, slots=True)
class MemoryScope:
    """Scope of a memory: observations of one domain, measure and kind of model are no evidence about others."""

    domain: str
    measure: str
    simulated: bool
    pack: PackStamp

    def columns(self) -> dict[str, Any]:
        """Return the columns of every line; the stamp is in the signature."""
        return {"domain": self.domain, "measure": self.measure, "simulated": self.simulated, "pack_id": self.pack.pack_id}


class Remembered(NamedTuple):
    """Memory of a scope at the time it was read, what was seen most and last first."""

    patterns: tuple[PatternStats, ...] = ()
    round: int = 0


@dataclass(frozen=True, slots=True)
class PatternMemory:
    """The memory of one scope in one file, for any number of threads and processes at once."""

    path: Path
    scope: MemoryScope
    clock: Clock = utc_now

    def read(self) -> Remembered:
        """Return the memory; empty without a file."""
        observed: dict[str, list[tuple[int, Observation]]] = {}
        for value in (json.loads(line.body) for line in lines_of(self.path) if line.length):
            if value.items() >= self.scope.columns().items() and is_signed_record(value, self.scope.pack):
                seen = Observation(*(value[name] for name in _OBSERVED))
                observed.setdefault(seen.structure, []).append((value["round"], seen))
        now = max((at for each in observed.values() for at, _ in each), default=0)
        patterns = [pattern_stats(each, now) for each in observed.values()]
        return Remembered(tuple(sorted(patterns, key=_most_seen)[:MAX_PATTERNS]), now)

    def observe(self, observations: Sequence[Observation], selection_id: str) -> None:
        """Append one round, all or none, without over-long structures. Raises ``StoreError`` when the disk refuses."""
        kept = [seen for seen in observations if len(seen.text) <= MAX_TEXT_CHARS]
        if not kept:
            return
        with LineFile(self.path) as file:
            # Under the lock of the file, so that no two rounds have one number.
            of_all: LineRow = {"schema_version": PATTERNS_SCHEMA, **self.scope.columns(), "round": self.read().round + 1}
            of_all |= {"selection_id": selection_id, "created_at": self.clock().isoformat()}
            lines: list[LineRow] = [{**of_all, **asdict(seen)} for seen in kept]
            file.append({**line, "stamp_signature": sign_record(line, self.scope.pack)} for line in lines)


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
    format: str
    k: int = Field(ge=1)
    outcomes: Mapping[str, int]
    answered: int = Field(ge=0)
    valid: int = Field(ge=0)
    """The usable ones of those, repaired ones too."""
    chosen: int | None
    reward: float | None
    mean_reward: float | None
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
    """Yield the rounds with the simulated or with real models, oldest first. Raises ``CorruptFile`` for any other line."""
    rounds = read_lines_as(SelectionRound.model_validate_json, path, read_bodies(path), "a selection")
    return (entry for entry in rounds if entry.simulated is simulated)


@dataclass(frozen=True, slots=True)
class StageDecision:
    """The stage to work in, and the reason."""

    stage: SelectionStage
    why: str


def decide_stage(
    history: Sequence[SelectionRound] | None, *, reference: bool, choice: SelectionStage | Literal["auto"] = "auto"
) -> StageDecision:
    """Return the stage of the next round, which has a ``reference`` or none.

    ``history``: all rounds, oldest first; None without a task, where a reference counts at once.
    """
    if choice == VALIDITY:
        return StageDecision(VALIDITY, "validity was asked for")
    if reference and (history is None or choice == BEHAVIOUR):
        return StageDecision(BEHAVIOUR, "a reference is there, and it counts")
    if not history:
        return StageDecision(VALIDITY, "there is no history yet")
    reached, since = StageDecision(VALIDITY, f"not good enough to move on, after {len(history)} rounds"), 0
    for end in range(_ROUNDS, len(history) + 1):
        # A stage counts only the rounds since it was reached.
        rounds = history[since:end]
        validity = reached.stage == VALIDITY
        if len(rounds) >= _ROUNDS and (why := _completed(rounds) if validity else _failed(rounds[-_ROUNDS:])):
            reached, since = StageDecision(BEHAVIOUR if validity else VALIDITY, why), end
    if reached.stage == BEHAVIOUR and not reference:
        return StageDecision(VALIDITY, f"there is no reference, although {reached.why}")
    return reached


def _completed(rounds: Sequence[SelectionRound]) -> str:
    mean, valid = _figures(rounds)
    high = all(each.reward is not None and each.reward > _MIN_REWARD for each in rounds[-_ROUNDS:])
    if not high or mean is None or mean <= _MIN_REWARD or valid is None or valid <= _MIN_VALID:
        return ""
    return f"{_ROUNDS} rounds in a row were above {_MIN_REWARD:g}, with {valid:.0%} usable answers"


def _failed(rounds: Sequence[SelectionRound]) -> str:
    mean, valid = _figures(rounds)
    if mean is not None and mean < _MIN_REWARD - _MARGIN:
        return f"the mean reward of the last {_ROUNDS} rounds fell to {mean:.2f}"
    if valid is not None and valid < _MIN_VALID - _MARGIN:
        return f"the share of usable answers of the last {_ROUNDS} rounds fell to {valid:.0%}"
    return ""


def _figures(rounds: Sequence[SelectionRound]) -> tuple[float | None, float | None]:
    rewards = [each.reward for each in rounds if each.reward is not None]
    answered = sum(each.answered for each in rounds)
    valid = sum(each.valid for each in rounds) / answered if answered else None
    return sum(rewards) / len(rewards) if rewards else None, valid
