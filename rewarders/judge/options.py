"""Options of a judge, checked with all problems at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from tfgrpo.rewarders.base import RewardContext
from tfgrpo.rewarders.judge.model import JudgeLoad, JudgeQuestion
from tfgrpo.rewarders.judge.prompt import DEFAULT_RUBRIC, AnswerForm, messages, shortened
from tfgrpo.rewarders.judge.reading import Scale
from tfgrpo.stores.errors import PipelineError, Problem
from tfgrpo.stores.numeric import is_finite

Strength: TypeAlias = Literal["wins", "bradley_terry"]

_LONGEST_RUBRIC: Final = 20_000
_WHOLE: Final = {
    "votes": (1, 25),
    "retries": (0, 5),
    "max_tokens": (1, 1_000_000),
    "max_chars": (200, 1_000_000),
    "max_pairs": (1, 10_000),
}
"""Accepted range of each whole number."""
_CHOICES: Final = {"scale": get_args(Scale), "strength": get_args(Strength)}


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """Options of a judge. Raises ``ValueError`` with every unusable value."""

    rubric: str | None = None
    """Criteria in words. None: that the output does what the task asks, correctly and in the requested form."""
    rubric_file: str | None = None
    """File with the rubric, relative to the working directory; instead of ``rubric``."""
    votes: int = 1
    """Judgements of each output, or of each pair in each order; the median counts."""
    scale: Scale = "unit"
    """Scale of the judge's answer: ``unit``, 0 to 1, or ``signed``, -1 to 1. The score is from 0 to 1 either way."""
    retries: int = 1
    """Further calls after an unusable answer, before the vote is lost."""
    temperature: float = 0.3
    """Of the judge's calls."""
    model: str | None = None
    """Model that judges, as the endpoint calls it. None: the one that reflects."""
    max_tokens: int | None = None
    """Longest reply. None: ``model.max_tokens``."""
    max_chars: int = 20_000
    """Longest part of an output that is shown; the middle of a longer one is omitted."""
    reference: bool = False
    """Whether the judge is shown the item's answer."""
    strength: Strength = "wins"
    """Comparisons only: ``wins``, the share of comparisons won with ties as half; ``bradley_terry``, fitted strengths."""
    max_pairs: int = 28
    """Comparisons only: most pairs of a group that are compared, each in both orders; more where fewer would not connect
    all attempts of the group."""

    def __post_init__(self) -> None:
        faults = list(_faults(asdict(self)))
        if faults:
            raise ValueError(
                "; ".join(f"{fault.name} is {fault.given}; accepted: {fault.accepted}" for fault in faults)
            )

    @property
    def rubric_text(self) -> str:
        """Rubric in force. A file is read on every access; raises ``OSError`` or ``ValueError``."""
        if self.rubric_file is None:
            return (self.rubric or DEFAULT_RUBRIC).strip()
        return Path(self.rubric_file).read_text(encoding="utf-8-sig").strip()

    def question(
        self, system: str, context: RewardContext, shown: Mapping[str, str], form: AnswerForm, rollout: int, turn: int
    ) -> JudgeQuestion:
        """Return the question about the shown outputs; ``rollout`` and ``turn`` name the call."""
        texts = {name: shortened(output, self.max_chars) for name, output in shown.items()}
        return JudgeQuestion(
            messages=messages(system, context.prompt, context.answer if self.reference else None, texts),
            schema_name=form.name,
            schema=form.schema,
            rollout=rollout,
            turn=turn,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            model=self.model,
        )

    def load(self, system: str, *, shown: int, calls_low: int, questions: int) -> JudgeLoad:
        """Return the load of one group with at most this number of questions."""
        return JudgeLoad(
            model=self.model,
            calls_low=calls_low,
            calls_high=questions * (1 + self.retries),
            instructions=system,
            shown=shown,
            max_chars=self.max_chars,
            max_tokens=self.max_tokens,
            retries=self.retries,
        )


def judge_options(given: Mapping[str, Any], where: str) -> JudgeOptions:
    """Read the options of a pipeline file. Raises ``PipelineError`` with every problem, an unreadable rubric included.

    ``where`` is the location in messages.
    """
    defaults = {field.name: field.default for field in fields(JudgeOptions)}
    accepted = ", ".join(sorted(defaults))
    problems = [Problem(f"{where}.{name}", repr(given[name]), accepted) for name in given if name not in defaults]
    values = {**defaults, **{name: value for name, value in given.items() if name in defaults}}
    problems += [Problem(f"{where}.{fault.name}", fault.given, fault.accepted) for fault in _faults(values)]
    if not problems:
        options = JudgeOptions(**values)
        fault = _rubric_fault(options)
        if fault is None:
            return options
        problems = [Problem(f"{where}.{fault.name}", fault.given, fault.accepted)]
    raise PipelineError(problems)


class _Fault(NamedTuple):
    name: str
    given: str
    accepted: str


def _faults(values: Mapping[str, Any]) -> Iterator[_Fault]:
    if values["rubric"] is not None and values["rubric_file"] is not None:
        yield _Fault("rubric_file", "a rubric as well", "one of rubric and rubric_file")
    for name, value in values.items():
        accepted = _accepted(name, value)
        if accepted:
            yield _Fault(name, repr(value), accepted)


def _accepted(name: str, value: Any) -> str:
    """Return what an option accepts when the value is not accepted; empty when it is."""
    if name in _WHOLE:
        low, high = _WHOLE[name]
        fine = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        fine = fine or (value is None and name == "max_tokens")
        return "" if fine else f"a whole number from {low} to {high:,}"
    if name in _CHOICES:
        return "" if value in _CHOICES[name] else ", ".join(_CHOICES[name])
    if name == "reference":
        return "" if isinstance(value, bool) else "true or false"
    if name == "temperature":
        fine = isinstance(value, int | float) and not isinstance(value, bool) and is_finite(value) and 0 <= value <= 2
        return "" if fine else "a number from 0 to 2"
    return "" if value is None or (isinstance(value, str) and value.strip()) else "text"


def _rubric_fault(options: JudgeOptions) -> _Fault | None:
    name = "rubric" if options.rubric_file is None else "rubric_file"
    try:
        text = options.rubric_text
    except (OSError, ValueError) as error:
        reason = error.strerror or type(error).__name__ if isinstance(error, OSError) else "no UTF-8"
        return _Fault(name, f"{options.rubric_file!r}: {reason}", "a text file in UTF-8 that says what counts")
    if not text:
        return _Fault(name, "nothing", "what counts, in words")
    if len(text) > _LONGEST_RUBRIC:
        return _Fault(name, f"{len(text):,} characters", f"at most {_LONGEST_RUBRIC:,}")
    return None
