"""Graders as rewarders: the item becomes a record, a missing grade an abstention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, TypeAlias, get_args

from tfgrpo.rewarders.base import Abstained, RewardContext, Verdict, abstain_on_all
from tfgrpo.rewarders.graders.base import CLOSE, OPEN, Completion, GraderInput, parse_completion
from tfgrpo.rewarders.graders.combine import GraderSet, ItemGrade, grade_items, grade_items_here
from tfgrpo.rewarders.graders.running import TIMEOUT_S, GraderRunner
from tfgrpo.stores.errors import PipelineError, Problem
from tfgrpo.stores.frozen_json import FrozenDict
from tfgrpo.stores.outcomes import RewardScore

Parse: TypeAlias = Literal["auto", "think", "whole"]

NO_REFERENCE: Final = "the item has no reference answer"
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class _Graders:
    """A set of graders with the rules for reading outputs and items."""

    graders: GraderSet
    rewarder_id: str
    parse: Parse = "auto"
    """Which part of an output is the answer. ``think``: the text after a ``<think>…</think>`` block. ``whole``: all of
    it. ``auto``: the text after the block, or after a lone ``</think>`` whose opening was part of the prompt; none after
    an unclosed block; all of an output without tags."""
    needs_answer: bool = False
    """Abstain on items without a reference answer."""

    def __post_init__(self) -> None:
        if problems := reading_problems(self.rewarder_id, self.parse):
            raise PipelineError(problems)

    def _verdicts(self, inputs: Sequence[GraderInput], graded: Sequence[ItemGrade]) -> tuple[Verdict, ...]:
        return tuple(self._verdict(item, grade) for item, grade in zip(inputs, graded, strict=True))

    def _verdict(self, item: GraderInput, grade: ItemGrade) -> Verdict:
        if grade.reward is None:
            return Abstained(self.rewarder_id, grade.reasons, grade.broke)
        details = FrozenDict({"parts": FrozenDict(grade.parts)}) if len(grade.parts) > 1 else None
        return RewardScore(self.rewarder_id, grade.reward, _evidence(item, grade, compared=self.needs_answer), details)


@dataclass(frozen=True, slots=True)
class GraderRewarder(_Graders):
    """Scores each attempt with a set of graders, off the event loop, and abstains on ungraded attempts.

    A grader's record has ``prompt``, ``answer`` and ``metadata`` of the item. Errors of graders become abstentions; after
    the time limit, ungraded attempts are abstained on. Raises ``PipelineError`` when built with an unknown ``parse`` or
    without a name.
    """

    _runner: GraderRunner = field(default_factory=GraderRunner, init=False, compare=False, repr=False)

    limits_itself: ClassVar[bool] = True

    async def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Score every attempt."""
        if self.needs_answer and not context.answer.strip():
            return abstain_on_all(self, context, NO_REFERENCE)
        inputs = graded_inputs(context, self.parse)
        return self._verdicts(
            inputs, await grade_items(self._runner, self.graders, inputs, context.time_limit_s or TIMEOUT_S)
        )


@dataclass(frozen=True, slots=True)
class QuickGraderRewarder(_Graders):
    """As ``GraderRewarder``, for graders that are cheap enough for the event loop."""

    quick: ClassVar[bool] = True

    def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Score every attempt."""
        if self.needs_answer and not context.answer.strip():
            return abstain_on_all(self, context, NO_REFERENCE)
        inputs = graded_inputs(context, self.parse)
        return self._verdicts(inputs, grade_items_here(self.graders, inputs))


def graded_inputs(context: RewardContext, parse: Parse) -> list[GraderInput]:
    """Return the inputs of graders for the attempts of a group."""
    record = {"prompt": context.prompt, "answer": context.answer or None, "metadata": dict(context.metadata)}
    split = [(attempt, _split(attempt.output, parse)) for attempt in context.outputs]
    return [
        GraderInput(context.item_id, record, each.raw, each.reasoning, each.answer, attempt.tokens, attempt.index)
        for attempt, each in split
    ]


def _split(output: str, parse: Parse) -> Completion:
    if parse == "think" or (parse == "auto" and OPEN in output):
        return parse_completion(output)
    if parse == "auto" and CLOSE in output:
        reasoning, _, answer = output.partition(CLOSE)
        return Completion(output, reasoning.strip() or None, answer.strip() or None)
    return Completion(output, None, output.strip() or None)


def _evidence(item: GraderInput, grade: ItemGrade, *, compared: bool) -> str:
    """Return every part, the end of the answer, and the reference if it was compared."""
    parts = ", ".join(f"{name} {reward:g}" for name, reward in grade.parts.items())
    answer = "no final answer" if item.answer is None else f"answer {_end(item.answer)}"
    reference = f", reference {_end(str(item.record['answer']))}" if compared else ""
    return f"{parts}; {answer}{reference}"


def reading_problems(rewarder_id: object, parse: object) -> list[Problem]:
    """Return the problems of a blank name and of an unknown ``parse``."""
    problems = []
    if not isinstance(rewarder_id, str) or not rewarder_id.strip():
        problems.append(Problem("rewarder_id", repr(rewarder_id), "a name"))
    if parse not in get_args(Parse):
        problems.append(Problem("parse", repr(parse), ", ".join(get_args(Parse))))
    return problems


def _end(text: str) -> str:
    """Quote the end of a text in one line: answers state their result there."""
    return repr(text if len(text) <= _SHOWN else f"…{text[-_SHOWN + 1 :]}")
