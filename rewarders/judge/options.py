"""Options of a judge, checked with all problems at once, and the messages that it is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator
from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.judge.model import Speaker
from tfgrpo.rewarders.judge.reading import LOWEST, Scale
from tfgrpo.rewarders.options import FiniteNumber, Flag, Options, Texts, Whole, accepts, refusal
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.stores.errors import PipelineError, Problem
from tfgrpo.stores.packaged import packaged_yaml

Strength: TypeAlias = Literal["wins", "bradley_terry"]
Messages: TypeAlias = tuple[tuple[Speaker, str], ...]

_TEXTS: Final[Mapping[str, Any]] = packaged_yaml(__file__, "prompts.yaml")
_LONGEST_RUBRIC: Final = 20_000
Text = Annotated[str, StringConstraints(pattern=r"\S", strict=True), accepts("text")]
Preset: TypeAlias = Literal["reference", "grounded", "checklist"]
Panel: TypeAlias = Literal["mean", "majority"]


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class Point:
    """A point of a checklist."""

    text: Text
    weight: Annotated[FiniteNumber, Field(gt=0)] = 1.0
    """Share in the score, relative to the other points."""


Points = Annotated[
    tuple[Annotated[Point, BeforeValidator(lambda given: {"text": given} if isinstance(given, str) else given)], ...],
    Field(min_length=1, max_length=50),
    accepts("a list of 1 to 50 points, each a text, or text and a weight above 0"),
]


@dataclass(frozen=True, slots=True)
class JudgeOptions(Options):
    """Options of a judge. Raises ``PipelineError`` with every unusable value."""

    rubric: Text | None = None
    """Criteria in words. None: that the output does what the task asks, correctly and in the requested form."""
    rubric_file: Text | None = None
    """File with the rubric, relative to the working directory; instead of ``rubric``."""
    votes: Annotated[Whole, Field(ge=1, le=25), accepts("a whole number from 1 to 25")] = 1
    """Judgements of each output, or of each pair in each order; the median counts."""
    scale: Annotated[Scale, accepts("unit, signed")] = "unit"
    """Scale of the judge's answer: ``unit``, 0 to 1, or ``signed``, -1 to 1. The score is from 0 to 1 either way."""
    retries: Annotated[Whole, Field(ge=0, le=5), accepts("a whole number from 0 to 5")] = 1
    """Further calls after an unusable answer, before the vote is lost."""
    temperature: Annotated[FiniteNumber, Field(ge=0, le=2), accepts("a number from 0 to 2")] = 0.3
    """Of the judge's calls."""
    model: Text | None = None
    """Model that judges, as the endpoint calls it. None: the one that reflects."""
    max_tokens: Annotated[Whole, Field(ge=1, le=1_000_000), accepts("a whole number from 1 to 1,000,000")] | None = None
    """Longest reply. None: ``model.max_tokens``."""
    max_chars: Annotated[Whole, Field(ge=200, le=1_000_000), accepts("a whole number from 200 to 1,000,000")] = 20_000
    """Longest part of an output that is shown; the middle of a longer one is omitted."""
    reference: Flag = False
    """Whether the judge is shown the item's answer."""
    preset: Annotated[Preset, accepts("reference, grounded, checklist")] | None = None
    """``reference``: whether the answer is the item's; ``grounded``: the share that a source supports; ``checklist``: the share
    of its points that are met. None: a score by the rubric."""
    checklist: Points | None = None
    """Points of the preset ``checklist``, as texts or with a ``weight``, all asked about in one call."""
    source: Text = "source"
    """Preset ``grounded`` only: field of the item's metadata with the source, a text or any JSON."""
    models: Annotated[Texts, Field(min_length=2), accepts("a list of at least two models")] | None = None
    """Models that judge as a panel, instead of ``model``, each with all votes. More than half of them have to answer."""
    panel: Annotated[Panel, accepts("mean, majority")] = "mean"
    """Score of a panel: the mean of its models, or 1 if most of them give at least 0.5, 0 if fewer than half do, else 0.5."""
    strength: Annotated[Strength, accepts("wins, bradley_terry")] = "wins"
    """Comparisons only: ``wins``, the share of comparisons won with ties as half; ``bradley_terry``, fitted strengths."""
    max_pairs: Annotated[Whole, Field(ge=1, le=10_000), accepts("a whole number from 1 to 10,000")] = 28
    """Comparisons only: most pairs of a group that are compared, each in both orders; more where fewer would not connect
    all attempts of the group."""

    @field_validator("rubric_file")
    @classmethod
    def _only_one(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("rubric") is not None:
            raise refusal("one of rubric and rubric_file", "a rubric as well")
        return value

    @property
    def rubric_text(self) -> str:
        """Rubric in force. A file is read on every access; raises ``OSError`` or ``ValueError``."""
        if self.checklist is not None:
            return "\n".join(
                f"{number}. {' '.join(point.text.split())}" for number, point in enumerate(self.checklist, 1)
            )
        if self.rubric_file is None:
            return (self.rubric or _TEXTS[self.preset or "rubric"]).strip()
        return Path(self.rubric_file).read_text(encoding="utf-8-sig").strip()

    @property
    def form(self) -> AnswerForm:
        """Kind of question about one output."""
        return _FORMS.get(self.preset or "", SCORE_FORM)

    @property
    def seats(self) -> tuple[JudgeOptions, ...]:
        """Options of each model of the panel; without one these."""
        return tuple(replace(self, model=each, models=None) for each in self.models) if self.models else (self,)


def judge_options(given: Mapping[str, Any]) -> JudgeOptions:
    """Read the options of a pipeline file. Raises ``PipelineError`` with every problem, an unreadable rubric included."""
    options = JudgeOptions(**{str(key): value for key, value in given.items()})
    if problems := [Problem(*each) for each in _contradictions(options)]:
        raise PipelineError(problems)
    _check_rubric(options)
    return options


def _contradictions(options: JudgeOptions) -> Iterator[tuple[str, str, str]]:
    """Yield each option that means nothing beside the others: its name, what it is, and what is accepted."""
    preset, points = options.preset, options.checklist
    if (preset == "checklist") != (points is not None):
        yield (
            "checklist",
            "nothing" if points is None else f"{len(points)} points",
            "a list of points together with preset: checklist",
        )
    if preset == "checklist" and (options.rubric or options.rubric_file):
        yield "rubric", "a rubric beside a checklist", "one of them"
    if preset in ("reference", "checklist") and options.scale != "unit":
        yield "scale", options.scale, f"unit: the preset {preset} asks for no number"
    if preset != "grounded" and options.source != "source":
        yield "source", repr(options.source), "it together with preset: grounded"
    if options.models and options.model:
        yield "model", repr(options.model), "one of model and models"
    if options.panel != "mean" and not options.models:
        yield "panel", options.panel, "it together with models"


def _check_rubric(options: JudgeOptions) -> None:
    name = "rubric" if options.rubric_file is None else "rubric_file"
    try:
        text = options.rubric_text
    except (OSError, ValueError) as error:
        reason = error.strerror or type(error).__name__ if isinstance(error, OSError) else "no UTF-8"
        given = f"{options.rubric_file!r}: {reason}"
        raise PipelineError.one(name, given, "a text file in UTF-8 that says what counts") from None
    if not text:
        raise PipelineError.one(name, "nothing", "what counts, in words")
    if len(text) > _LONGEST_RUBRIC:
        raise PipelineError.one(name, f"{len(text):,} characters", f"at most {_LONGEST_RUBRIC:,}")


class AnswerForm(NamedTuple):
    """A kind of question: name and JSON schema of its answer, and the system message."""

    name: str
    schema: Mapping[str, Any]
    instructions: str
    """With the placeholders ``$rubric``, ``$data`` and ``$lowest``."""

    def system(self, rubric: str, scale: Scale = "unit") -> str:
        """Return the system message. ``scale``: that of a score."""
        return Template(self.instructions).substitute(_TEXTS, rubric=rubric, lowest=f"{LOWEST[scale]:g}")


SCORE_FORM: Final = AnswerForm(**_TEXTS["score"])
"""For judging one output."""
_FORMS: Final = {"reference": AnswerForm(**_TEXTS["verdict"]), "checklist": AnswerForm(**_TEXTS["checklist"])}
PAIR_FORM: Final = AnswerForm(**_TEXTS["pair"])
"""For comparing two outputs."""


def messages(instructions: str, task: str, reference: str | None, outputs: Mapping[str, str]) -> Messages:
    """Return the question: instructions, and task, reference and outputs as data.

    The data are members of one JSON object, so that no text in them can close its own quotation and act as an instruction.
    """
    payload = {"task": task, **outputs}
    if reference:
        payload["reference_answer"] = reference
    return (("system", instructions), ("user", canonical_json(payload)))


def shortened(text: str, most: int) -> str:
    """Return ``text`` without its middle when it is longer than ``most`` characters, with the number omitted."""
    if len(text) <= most:
        return text
    head = most // 2
    return f"{text[:head]}\n[… {len(text) - most:,} characters left out …]\n{text[len(text) - (most - head) :]}"
