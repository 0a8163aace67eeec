"""What is one selection, as a value? What was asked, the candidates with their typed ends, which was chosen, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.settings.selection import TEMPERATURE_CYCLE
from tfgrpo.stores.canonical import sha256_hex
from tfgrpo.stores.errors import SelectionFailed
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.stores.usage import Usage
from tfgrpo.tasks.selection.formats import AnswerFormat, TextFormat
from tfgrpo.tasks.shapes import PackText

LossName: TypeAlias = Literal["transport_error", "timeout", "actor_error", "refused"]
FlawName: TypeAlias = Literal["parse_error", "validation_error"]
CandidateEnd: TypeAlias = Literal["ok"] | FlawName | LossName


@dataclass(frozen=True, slots=True)
class SelectionSpec:
    """Everything a selection needs besides the runtime it runs in."""

    selection_id: str
    item: Item
    """What is asked. Its answer is for rewarders only."""
    pack: PackText
    """System text with the lessons in force; the format's instructions and hints are put behind it."""
    k: int = 4
    min_success: int = 1
    max_repairs: int = 3
    none_valid: Literal["raise", "best_effort"] = "raise"
    temperatures: tuple[float, ...] = TEMPERATURE_CYCLE
    format: AnswerFormat = field(default_factory=TextFormat)
    hint: str = ""
    """What the memory says, ready for the prompt; empty for nothing."""

    @property
    def system(self) -> PackText:
        """The system text of all candidates: pack and lessons, the form of the answer, the hint."""
        text = "\n\n".join(part for part in (self.pack.system, self.format.instructions, self.hint) if part)
        return self.pack if text == self.pack.system else replace(self.pack, system=text, digest=sha256_hex(text))

    def temperature(self, index: int) -> float:
        """Of a candidate and of its repairs."""
        return self.temperatures[index % len(self.temperatures)]


@dataclass(frozen=True, slots=True)
class Sound:
    """The answer can be used."""

    name: Literal["ok"] = "ok"


@dataclass(frozen=True, slots=True)
class Flawed:
    """There is an answer, and it cannot be used: it cannot be read, or it breaks a rule."""

    name: FlawName
    reason: str


@dataclass(frozen=True, slots=True)
class LostCandidate:
    """No answer came: the call broke, took too long, was not affordable, or the actor broke."""

    name: LossName
    error_type: str
    reason: str


CandidateOutcome: TypeAlias = Sound | Flawed | LostCandidate


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of the K: how it ended, what it was worth, what it took."""

    index: int
    outcome: CandidateOutcome
    text: str
    """Its last answer, also a flawed one; empty when there is none."""
    value: Any
    """What its answer was read as: a process model or a JSON value; None for text, and where it cannot be read."""
    refused: tuple[tuple[str, str], ...]
    """Answers that were sent back for repair, each with the reason, oldest first."""
    temperature: float
    seed: int
    usage: Usage
    latency_s: float
    fatal: bool = False
    """Whether no further call could have succeeded: the endpoint refuses the key."""

    @property
    def valid(self) -> bool:
        """Whether its answer can be used."""
        return isinstance(self.outcome, Sound)


@dataclass(frozen=True, slots=True)
class Grade:
    """What the rewarders said of one candidate."""

    reward: float | None
    """None when no total could be given."""
    advantage: float | None
    """Reward relative to the graded candidates of this selection; 0 throughout when all are equal."""
    scores: tuple[RewardScore, ...]
    """The parts, also those of weight 0."""
    reason: str = ""
    """Why there is no reward."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The candidate that is handed out."""

    index: int
    why: str


@dataclass(frozen=True, slots=True)
class NotChosen:
    """No candidate may be handed out."""

    why: str
    over_budget: bool = False
    """Whether the ledger's refusals are the reason."""


Choice: TypeAlias = Chosen | NotChosen


@dataclass(frozen=True, slots=True)
class Cost:
    """What a selection took, judges and lost calls included."""

    calls: int
    tokens: int
    usd: float | None
    """None when the price of any call is unknown."""
    at_risk_usd: float
    """What calls without usage may have cost on top."""
    unmeasured_attempts: int = 0
    """Attempts of an agent that calls models by itself; what they spent comes on top, unknown."""


@dataclass(frozen=True, slots=True)
class Selection:
    """One best-of-K round."""

    spec: SelectionSpec
    candidates: tuple[Candidate, ...]
    """In order of their index, which is not the order of arrival."""
    grades: Mapping[int, Grade]
    """By index; of the candidates that were graded at all."""
    choice: Choice
    mean_reward: float | None
    spread: float | None
    """Population standard deviation of the rewards; None without any."""
    faults: Mapping[str, str]
    """Why a rewarder's verdicts are missing, by rewarder."""
    cost: Cost
    duration_s: float

    @property
    def best(self) -> Candidate:
        """The chosen candidate. Raises ``SelectionFailed`` saying why there is none."""
        if isinstance(self.choice, NotChosen):
            raise SelectionFailed(self.choice.why)
        return self.candidates[self.choice.index]

    @property
    def outcomes(self) -> Mapping[CandidateEnd, int]:
        """Candidates by how they ended."""
        return Counter(candidate.outcome.name for candidate in self.candidates)

    @property
    def losses(self) -> str:
        """The candidates that cannot be used, in one clause; empty when all can."""
        return lost_and_flawed(self.candidates)


def lost_and_flawed(candidates: tuple[Candidate, ...]) -> str:
    """How many candidates cannot be used, by their ends, each with its first reason; empty when all can."""
    by_end: dict[str, list[str]] = {}
    for candidate in candidates:
        outcome = candidate.outcome
        if not isinstance(outcome, Sound):
            by_end.setdefault(outcome.name, []).append(outcome.reason)
    return "; ".join(f"{len(reasons)} {name} ({first_line(reasons[0])})" for name, reasons in by_end.items())


def first_line(reason: str) -> str:
    """A reason as it stands in a sentence: without the excerpt below it, and not endless."""
    first = " ".join(reason.split("\n", maxsplit=1)[0].split())
    return first if len(first) <= 160 else f"{first[:159]}…"
