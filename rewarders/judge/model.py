"""The language model that judges call, which a higher floor implements: what a judge reads, its options, and its repair loop.

The implementation is responsible for ledger, journal, rate limits and seeds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from string import Template
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic.dataclasses import dataclass as options_dataclass

from tfgrpo.rewarders.options import FiniteNumber, Flag, Options, Texts, Whole, accepts
from tfgrpo.stores.errors import PipelineError, Problem, RepairExhausted
from tfgrpo.stores.packaged import packaged_yaml
from tfgrpo.stores.text import pluralize

Speaker: TypeAlias = Literal["system", "user", "assistant"]
Messages: TypeAlias = tuple[tuple[Speaker, str], ...]
_TEXTS: Final[Mapping[str, Any]] = packaged_yaml(__file__, "prompts.yaml")
_LONGEST_RUBRIC: Final = 20_000
JudgeText = Annotated[str, StringConstraints(pattern=r"\S", strict=True), accepts("text")]
Rubric = Annotated[
    str,
    StringConstraints(pattern=r"\S", strict=True, max_length=_LONGEST_RUBRIC),
    accepts(f"what counts, in at most {_LONGEST_RUBRIC:,} characters"),
]
Preset: TypeAlias = Literal["reference", "grounded", "checklist"]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class JudgeQuestion:
    """One call to a model of the run: a question to one that judges, or texts for one that embeds."""

    messages: Messages
    schema_name: str = ""
    schema: Mapping[str, Any] | None = None
    rollout: int = 0
    """Index of the judged attempt; of a pair, the lower index."""
    turn: int = 0
    """Number of the question about one attempt: votes, opponents, orders. Part of the call's name and of its seed."""
    attempt: int = 0
    temperature: float = 0.3
    max_tokens: int | None = None
    model: str | None = None
    """None: the model that reflects."""
    embeds: bool = False
    """The reply is a JSON list with the vector of each message's text."""


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """The reply as text."""

    text: str
    cut_off: bool = False
    tokens: int | None = None
    """Prompt and completion; None when unknown."""
    cost_usd: float | None = None
    model: str = ""


class JudgeModel(Protocol):
    """Answers questions of judges, within one group of one run."""

    async def ask(self, question: JudgeQuestion, timeout_s: float | None = None) -> JudgeReply:
        """Answer; a run pays once for a question. Raises ``ModelCallError`` for a lost vote; other errors end the run."""
        ...


@dataclass(frozen=True, slots=True)
class JudgeLoad:
    """Questions to a judge for one group, for the forecast."""

    options: JudgeOptions
    instructions: str
    shown: int
    calls_low: int
    """When all attempts of the group are equal and every answer is usable."""
    questions: int
    """When all attempts differ."""

    @property
    def calls_high(self) -> int:
        """Calls when every question is repeated as often as allowed; a repetition carries the earlier answers."""
        return self.questions * (1 + self.options.retries)


@options_dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class Point:
    """A point of a checklist."""

    text: JudgeText
    weight: Annotated[FiniteNumber, Field(gt=0)] = 1.0


Points = Annotated[
    tuple[Annotated[Point, BeforeValidator(lambda value: {"text": value} if isinstance(value, str) else value)], ...],
    Field(min_length=1, max_length=50),
    accepts("a list of 1 to 50 points, each a text, or text and a weight above 0"),
]


@options_dataclass(frozen=True, slots=True)
class JudgeOptions(Options):
    """Options of a judge. Raises ``PipelineError`` with every unusable value."""

    rubric: Rubric | None = None
    """Criteria in words. None: that the output does what the task asks, correctly and in the requested form."""
    votes: Annotated[Whole, Field(ge=1, le=25), accepts("a whole number from 1 to 25")] = 1
    """Judgements of each output, or of each pair in each order; the median counts."""
    retries: Annotated[Whole, Field(ge=0, le=5), accepts("a whole number from 0 to 5")] = 1
    """Further calls after an unusable answer, before the vote is lost."""
    temperature: Annotated[FiniteNumber, Field(ge=0, le=2), accepts("a number from 0 to 2")] = 0.3
    model: JudgeText | None = None
    """Model that judges, as the endpoint calls it. None: the one that reflects."""
    max_tokens: Annotated[Whole, Field(ge=1, le=1_000_000), accepts("a whole number from 1 to 1,000,000")] | None = None
    """Longest reply. None: ``model.max_tokens``."""
    max_chars: Annotated[Whole, Field(ge=200, le=1_000_000), accepts("a whole number from 200 to 1,000,000")] = 20_000
    """Longest part of an output that is shown; the middle of a longer one is omitted."""
    reference: Flag = False
    preset: Annotated[Preset, accepts("reference, grounded, checklist")] | None = None
    """Asks whether the answer is the item's, what a source supports, or which points are met. None: a score by the rubric."""
    checklist: Points | None = None
    """Points of the preset ``checklist``, as texts or with a ``weight``, all asked about in one call."""
    source: JudgeText = "source"
    """Preset ``grounded`` only: field of the item's metadata with the source, a text or any JSON."""
    models: Annotated[Texts, Field(min_length=2), accepts("a list of at least two models")] | None = None
    """Models that judge as a panel, each with all votes; the score is their mean. More than half of them have to answer."""
    max_pairs: Annotated[Whole, Field(ge=1, le=10_000), accepts("a whole number from 1 to 10,000")] = 28
    """Comparisons only: most pairs of a group, each in both orders; more where fewer would not connect all attempts."""

    def __post_init__(self) -> None:
        """Refuse each option that means nothing together with the others."""
        checks = self.preset == "checklist"
        faults = {
            "checklist": checks != (self.checklist is not None) and "points together with preset: checklist",
            "rubric": bool(checks and self.rubric) and "a rubric or a checklist",
            "source": self.preset != "grounded" and self.source != "source" and "it together with preset: grounded",
            "model": bool(self.models and self.model) and "one of model and models",
        }
        values = {name: "nothing" if (value := getattr(self, name)) is None else f"{value!r:.200}" for name in faults}
        if problems := [Problem(name, values[name], accepted) for name, accepted in faults.items() if accepted]:
            raise PipelineError(problems)

    @property
    def rubric_text(self) -> str:
        """Rubric in force."""
        if self.checklist is not None:
            return "\n".join(f"{number}. {' '.join(point.text.split())}" for number, point in enumerate(self.checklist, 1))
        return str(self.rubric or _TEXTS[self.preset or "rubric"]).strip()

    @property
    def form(self) -> AnswerForm:
        """Kind of question about one output."""
        return _FORMS.get(self.preset or "", SCORE_FORM)

    @property
    def seats(self) -> tuple[JudgeOptions, ...]:
        """Options of each model of the panel; without one these."""
        return tuple(replace(self, model=each, models=None) for each in self.models) if self.models else (self,)


class AnswerForm(NamedTuple):
    """A kind of question: name and JSON schema of its answer, and the system message."""

    name: str
    schema: Mapping[str, Any]
    instructions: str
    """With the placeholders ``$rubric`` and ``$data``."""

    def system(self, rubric: str) -> str:
        """Return the system message."""
        return Template(self.instructions).substitute(_TEXTS, rubric=rubric)


SCORE_FORM: Final = AnswerForm(**_TEXTS["score"])
_FORMS: Final = {"reference": AnswerForm(**_TEXTS["verdict"]), "checklist": AnswerForm(**_TEXTS["checklist"])}
PAIR_FORM: Final = AnswerForm(**_TEXTS["pair"])


async def corrected(
    parse: Callable[[str], _T],
    fix: Callable[[Sequence[tuple[str, str]]], Awaitable[str]],
    max_attempts: int,
    name: str = "answer",
) -> _T:
    """Return the first text of ``fix`` that ``parse`` accepts, of at most ``max_attempts``, the first one included.

    ``fix`` gets every refused (text, reason) so far, none at first. ``parse`` raises ``ValueError`` (pydantic's is one) to
    refuse a text. Errors of ``fix`` pass through. Raises ``RepairExhausted`` with every pair.
    """
    if max_attempts < 1:
        raise ValueError(f"max_attempts must be at least 1, got {max_attempts}")
    refused: list[tuple[str, str]] = []
    while len(refused) < max_attempts:
        text = await fix(tuple(refused))
        try:
            return parse(text)
        except ValueError as error:
            refused.append((text, str(error)))
    raise RepairExhausted(f"no valid {name} after {pluralize(max_attempts, 'attempt')}: {refused[-1][1]}", refused)
