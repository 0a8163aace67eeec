"""Keep what every lesson is credited with, ``credit.jsonl``: measured differences, and what reflections say.

A *row* is a difference of two sides of attempts at one item, with the lessons that only one side carried. A *word* is what one
contrast of attempts, or a person, says for or against a lesson. Rows decide; words say where to look first. Both are appended
once and never changed: what is known of a lesson is a fold over them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AwareDatetime, Field, TypeAdapter
from pydantic.dataclasses import dataclass

from tfgrpo.stores.experiences.store import STRICT, read_lines_as
from tfgrpo.stores.files.lines import LineFile, read_bodies
from tfgrpo.stores.json_values import canonical_json, sha256_hex

RowSource: TypeAlias = Literal["learning", "sweep", "measure", "outcome"]
Said: TypeAlias = Literal["taught", "confirmed", "contradicted", "recurs", "helped", "misled", "brought in"]
"""``recurs``: the causes of several contrasts of a batch name it. ``helped``, ``misled``: what a contrast says of a lesson in
its prompts. ``brought in``: by a person."""
# Share of the range: how far outside of it a sum of weighted parts may be.
_ROUNDING: Final = 1e-9
PERSON_GROUPS: Final = 4.0
"""Support of a lesson that a person imports: that of four groups."""
_ID_DIGITS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class Row:
    """The attempts at one item by two sides. A group without lessons on trial is one side, and its row names no lesson."""

    schema_version: Literal[1] = 1
    kind: Literal["row"] = "row"
    line_id: str
    """``run/group``; of the sweep ``run/sweep/item``."""
    run_id: str
    night: int = Field(ge=0)
    """Nights that the task had ended before the run."""
    source: RowSource
    item_id: str
    one: tuple[str, ...]
    """Ids of the lessons that only this side carried."""
    other: tuple[str, ...]
    rewards_one: tuple[float, ...]
    """Rewards of the scored attempts, as shares of the declared range."""
    rewards_other: tuple[float, ...]
    lost_one: int = Field(default=0, ge=0)
    lost_other: int = Field(default=0, ge=0)
    conditions: str
    """Digest of model, actor, pack and rewarders: rows under others are not about these."""
    simulated: bool
    created_at: AwareDatetime

    @property
    def difference(self) -> float | None:
        """Mean reward of the first side minus that of the second; None if a side has no scored attempt."""
        if not self.rewards_one or not self.rewards_other:
            return None
        return fmean(self.rewards_one) - fmean(self.rewards_other)

    @property
    def sides(self) -> tuple[Hashable, Sequence[float], Sequence[float]]:
        """Run, source and lessons, equal for rows whose sides are, whichever came first; and the rewards of each side."""
        sides = ((self.one, self.rewards_one), (self.other, self.rewards_other))
        one, other = sorted(sides, key=itemgetter(0))  # by ids alone: both may have none
        return (self.run_id, self.source, one[0], other[0]), one[1], other[1]


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class Word:
    """What one contrast, or a person, says of one lesson."""

    schema_version: Literal[1] = 1
    kind: Literal["word"] = "word"
    line_id: str = ""
    """Digest of what is said and where, so that a resumed run writes it once; set by ``named``."""
    run_id: str
    night: int = Field(ge=0)
    experience_id: str
    said: Said
    amount: float
    """Contrasts in favour of the lesson; below zero against it."""
    opposite: str | None = None
    epoch: int = Field(default=0, ge=0)
    batch: int = Field(default=0, ge=0)
    group_id: str = ""
    """Empty for what no group of attempts says."""
    contrast: int = Field(default=0, ge=0)
    item_id: str = ""
    foreign: bool = False
    """Whether the item is no witness: strangers wrote it, or it says the lesson itself."""
    why: str = ""
    simulated: bool
    created_at: AwareDatetime

    def named(self) -> Word:
        """Return the word with its id."""
        unlike = {"schema_version", "line_id", "night", "why"} | ({"created_at"} if self.epoch else set())
        content = canonical_json(_WORD.dump_python(self, mode="json", exclude=unlike))
        return replace(self, line_id=f"word-{sha256_hex(content)[:_ID_DIGITS]}")


CreditLine: TypeAlias = Row | Word
_WORD: Final = TypeAdapter(Word)
_LINE: Final[TypeAdapter[CreditLine]] = TypeAdapter(Annotated[CreditLine, Field(discriminator="kind")])


class CreditFile:
    """``credit.jsonl`` as its writers see it: a line that is in the file is not written again."""

    def __init__(self, path: Path) -> None:
        self.lines = LineFile(path, "line_id")

    def append(self, lines: Iterable[CreditLine]) -> int:
        """Append the lines that are not in the file and return how many, all or none. Raises ``StoreError``."""
        return self.lines.add(_LINE.dump_python(line, mode="json") for line in lines)


def read_credit(path: Path, lines: int | None = None, *, nights: tuple[int, bool] | None = None) -> list[CreditLine]:
    """Return the first ``lines`` lines, None for all.

    With ``nights``, their number and whether they are simulated: of these the sweeps, the last ones that left a line, and of
    each before one line, so that as many are counted. Raises ``CorruptFile`` for any other line.
    """
    read = read_lines_as(_LINE.validate_json, path, islice(read_bodies(path), lines), "a line of credit")
    if nights is None:
        return list(read)
    number, simulated = nights
    ours = [line for line in read if line.simulated is simulated]
    since = min(sorted({line.night for line in ours})[-number:], default=0)
    first_of_night: dict[int, CreditLine] = {}
    return [
        line
        for line in ours
        if line is first_of_night.setdefault(line.night, line)
        or line.night >= since
        or (isinstance(line, Row) and line.source == "sweep")
    ]


def count_credit(path: Path) -> int:
    """Return the number of lines; 0 without a file."""
    return sum(1 for _ in read_bodies(path))


def share_of_range(rewards: Sequence[float], score_range: tuple[float, float]) -> tuple[float, ...]:
    """Return rewards as shares of their declared range; one outside of it counts as its end."""
    low, high = score_range
    return tuple(min(1.0, max(0.0, (reward - low) / (high - low))) for reward in rewards if math.isfinite(reward))


def outside_range(rewards: Iterable[float], score_range: tuple[float, float]) -> str:
    """Return a warning of rewards outside their declared range; empty without any."""
    low, high = score_range
    margin = _ROUNDING * (high - low)
    if all(low - margin <= reward <= high + margin for reward in rewards):
        return ""
    declared = f"rewards outside {low:g} to {high:g}, their declared range"
    return f"{declared}: each counts as the end of it; score_range declares another"
