"""Data of one selection: request, candidates with their outcomes and scores, choice and cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.settings.selection import SelectionSettings
from tfgrpo.stores.canonical import sha256_hex
from tfgrpo.stores.errors import SelectionFailed
from tfgrpo.stores.ledger.state import Usage
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.tasks.selection.formats import AnswerFormat, CandidateEnd, CandidateOutcome, TextFormat
from tfgrpo.tasks.shapes import PackText


@dataclass(frozen=True, slots=True)
class SelectionSpec:
    """Specification of one selection."""

    selection_id: str
    item: Item
    """The request. Its answer is for rewarders only."""
    pack: PackText
    """System text with the lessons in force, before the format's instructions and the hint."""
    settings: SelectionSettings = field(default_factory=SelectionSettings)
    format: AnswerFormat = field(default_factory=TextFormat)
    hint: str = ""

    @property
    def system(self) -> PackText:
        """System text of all candidates: pack and lessons, instructions of the format, hint."""
        text = "\n\n".join(part for part in (self.pack.system, self.format.instructions, self.hint) if part)
        return self.pack if text == self.pack.system else replace(self.pack, system=text, digest=sha256_hex(text))


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of the K candidates: outcome, answer, scores and usage."""

    index: int
    outcome: CandidateOutcome
    text: str
    """Its last answer, even if flawed; empty without one."""
    refused: tuple[tuple[str, str], ...]
    """Answers sent back for repair, each with the reason, oldest first."""
    temperature: float
    seed: int
    usage: Usage
    latency_s: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What scorers may know of how its last answer was made, with the cost and the time of all."""
    reward: float | None = None
    """None without a total."""
    advantage: float | None = None
    """Reward relative to the graded candidates of this selection; 0 throughout when all are equal."""
    scores: tuple[RewardScore, ...] = ()
    """All scores, including those of weight 0."""
    ungraded: str = ""
    """Why it was given no reward, if it was to be graded."""

    @property
    def valid(self) -> bool:
        """Whether its answer is usable."""
        return self.outcome.name == "ok"


@dataclass(frozen=True, slots=True)
class SelectionChoice:
    """The chosen candidate, or why none may be chosen."""

    index: int | None
    why: str
    over_budget: bool = False


@dataclass(frozen=True, slots=True)
class SelectionCost:
    """Calls, tokens and money of a selection, including judges and lost calls."""

    calls: int
    tokens: int
    usd: float | None
    """None when the price of any call is unknown."""
    at_risk_usd: float
    """Most that calls without usage may have cost in addition."""
    unmeasured_attempts: int = 0
    """Attempts of an agent that calls models itself, whose usage is unknown and not included."""


@dataclass(frozen=True, slots=True)
class Selection:
    """One best-of-K round."""

    spec: SelectionSpec
    candidates: tuple[Candidate, ...]
    """In order of their index, which is not the order of arrival."""
    choice: SelectionChoice
    mean_reward: float | None
    spread: float | None
    """Population standard deviation of the rewards; None without any."""
    faults: Mapping[str, str]
    """Reason for missing scores by rewarder."""
    cost: SelectionCost
    duration_s: float

    @property
    def best(self) -> Candidate:
        """The chosen candidate. Raises ``SelectionFailed`` with the reason if there is none."""
        if self.choice.index is None:
            raise SelectionFailed(self.choice.why)
        return self.candidates[self.choice.index]

    @property
    def is_over(self) -> bool:
        """Whether asking again could change nothing: one is chosen, or all have answered and their grades are known."""
        lost = any(candidate.outcome.error_type for candidate in self.candidates)
        ungraded = self.mean_reward is None and any(candidate.ungraded for candidate in self.candidates)
        return self.choice.index is not None or not (lost or ungraded)

    @property
    def outcomes(self) -> Mapping[CandidateEnd, int]:
        """Number of candidates by outcome."""
        return Counter(candidate.outcome.name for candidate in self.candidates)

    @property
    def losses(self) -> str:
        """The unusable candidates in one clause; empty without any."""
        return lost_and_flawed(self.candidates)


def lost_and_flawed(candidates: Sequence[Candidate]) -> str:
    """Return the number of unusable candidates by outcome, with the first reason of each; empty without any."""
    reasons: dict[str, list[str]] = {}
    for candidate in candidates:
        if not candidate.valid:
            reasons.setdefault(candidate.outcome.name, []).append(candidate.outcome.reason)
    return "; ".join(f"{len(each)} {name} ({first_line(each[0])})" for name, each in reasons.items())


def first_line(reason: str) -> str:
    """Return the first line of a reason, at most 160 characters."""
    first = " ".join(reason.split("\n", maxsplit=1)[0].split())
    return first if len(first) <= 160 else f"{first[:159]}…"
