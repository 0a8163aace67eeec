"""How do graders score the attempts of a group? As rewarders: the item becomes a record, a missing grade an abstention.

What a grade is made of is decided in ``tfgrpo.rewarders.graders.combine``; which names make one, in ``naming``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

from tfgrpo.rewarders.base import Abstained, Attempt, RewardContext, Verdict
from tfgrpo.rewarders.graders.base import GraderInput
from tfgrpo.rewarders.graders.combine import GraderSet, ItemGrade, grade_items, grade_items_here
from tfgrpo.rewarders.graders.options import refuse
from tfgrpo.rewarders.graders.running import TIMEOUT_S, GraderRunner
from tfgrpo.rewarders.text.completions import CLOSE, OPEN, Completion, parse_completion
from tfgrpo.stores.errors import Problem
from tfgrpo.stores.frozen_json import FrozenDict
from tfgrpo.stores.outcomes import RewardScore

Parse: TypeAlias = Literal["auto", "think", "whole"]

_SHOWN: Final = 60


class _OwnRunner:
    """A runner that is made when first used; a copy of it in another process makes its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the runner, which two event loops may ask for at once
        self._runner: GraderRunner | None = None

    def __reduce__(self) -> tuple[type[_OwnRunner], tuple[()]]:
        return type(self), ()

    def get(self) -> GraderRunner:
        with self._lock:
            self._runner = self._runner or GraderRunner()
            return self._runner


@dataclass(frozen=True, slots=True)
class GraderRewarder:
    """Scores each attempt with a set of graders, off the event loop, and abstains on what they could not grade.

    A grader's record has ``prompt``, ``answer`` and ``metadata`` of the item. Never raises for what a grader does; a time limit
    that passes costs the attempts that were not graded by then. Raises ``PipelineError`` when built with a ``parse`` that
    does not exist, or without a name.
    """

    graders: GraderSet
    rewarder_id: str
    parse: Parse = "auto"
    """What of an output is the answer. ``think``: what is behind a ``<think>…</think>`` block, else nothing. ``whole``: all
    of it. ``auto``: what is behind the block, or behind a lone ``</think>`` whose opening was part of the prompt; nothing
    of a block that is not closed; all of an output without tags."""
    needs_answer: bool = False
    """Whether to abstain on items without a reference answer."""
    _runner: _OwnRunner = field(default_factory=_OwnRunner, init=False, compare=False, repr=False)

    limits_itself: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_reading(self.rewarder_id, self.parse)

    async def score(self, context: RewardContext) -> Sequence[Verdict]:
        """One verdict for each attempt."""
        if self.needs_answer and not context.answer.strip():
            return _without_reference(self.rewarder_id, context)
        limit_s = context.time_limit_s or TIMEOUT_S
        inputs = graded_inputs(context, self.parse)
        graded = await grade_items(self._runner.get(), self.graders, inputs, limit_s)
        return _verdicts(self, inputs, graded)


@dataclass(frozen=True, slots=True)
class QuickGraderRewarder:
    """As ``GraderRewarder``, for graders that are cheap enough for the event loop."""

    graders: GraderSet
    rewarder_id: str
    parse: Parse = "auto"
    needs_answer: bool = False

    quick: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_reading(self.rewarder_id, self.parse)

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """One verdict for each attempt."""
        if self.needs_answer and not context.answer.strip():
            return _without_reference(self.rewarder_id, context)
        inputs = graded_inputs(context, self.parse)
        return _verdicts(self, inputs, grade_items_here(self.graders, inputs))


def graded_inputs(context: RewardContext, parse: Parse) -> list[GraderInput]:
    """What graders are given for the attempts of a group."""
    record = {"prompt": context.prompt, "answer": context.answer or None, "metadata": dict(context.metadata)}
    return [_input(context.item_id, record, attempt, parse) for attempt in context.outputs]


def _input(sample_id: str, record: Mapping[str, Any], attempt: Attempt, parse: Parse) -> GraderInput:
    cut = _cut(attempt.output, parse)
    return GraderInput(sample_id, record, cut.raw, cut.reasoning, cut.answer, attempt.tokens, attempt.index)


def _cut(output: str, parse: Parse) -> Completion:
    if parse == "think" or (parse == "auto" and OPEN in output):
        return parse_completion(output)
    if parse == "auto" and CLOSE in output:
        reasoning, _, answer = output.partition(CLOSE)
        return Completion(output, reasoning.strip() or None, answer.strip() or None)
    return Completion(output, None, output.strip() or None)


def _verdicts(
    rewarder: GraderRewarder | QuickGraderRewarder, inputs: Sequence[GraderInput], graded: Sequence[ItemGrade]
) -> tuple[Verdict, ...]:
    verdicts: list[Verdict] = []
    for item, grade in zip(inputs, graded, strict=True):
        if grade.reward is None:
            verdicts.append(Abstained(rewarder.rewarder_id, grade.reasons, grade.broke))
        else:
            details = FrozenDict({"parts": FrozenDict(grade.parts)}) if len(grade.parts) > 1 else None
            evidence = _evidence(item, grade, compared=rewarder.needs_answer)
            verdicts.append(RewardScore(rewarder.rewarder_id, grade.reward, evidence, details))
    return tuple(verdicts)


def _evidence(item: GraderInput, grade: ItemGrade, *, compared: bool) -> str:
    """Every part, the end of what was graded, and what it was compared with."""
    parts = ", ".join(f"{name} {reward:g}" for name, reward in grade.parts.items())
    answer = "no final answer" if item.answer is None else f"answer {_end(item.answer)}"
    reference = f", reference {_end(str(item.record['answer']))}" if compared else ""
    return f"{parts}; {answer}{reference}"


def _without_reference(rewarder_id: str, context: RewardContext) -> tuple[Verdict, ...]:
    return tuple(Abstained(rewarder_id, "the item has no reference answer") for _ in context.outputs)


def check_reading(rewarder_id: object, parse: object) -> None:
    """Refuse a name that is none, and a ``parse`` that does not exist. Raises ``PipelineError`` with both."""
    refuse(_name_problems(rewarder_id), _parse_problems(parse))


def _name_problems(rewarder_id: object) -> Iterator[Problem]:
    if not isinstance(rewarder_id, str) or not rewarder_id.strip():
        yield Problem("rewarder_id", repr(rewarder_id), "a name")


def _parse_problems(parse: object) -> Iterator[Problem]:
    if parse not in get_args(Parse):
        yield Problem("parse", repr(parse), ", ".join(get_args(Parse)))


def _end(text: str) -> str:
    """The last of a text, quoted in one line: that is where answers state their result."""
    return repr(text if len(text) <= _SHOWN else f"…{text[-_SHOWN + 1 :]}")
