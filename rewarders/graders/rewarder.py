"""Graders as rewarders: the item becomes a record, a missing grade an abstention."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, TypeAlias, get_args

from tfgrpo.rewarders.base import Abstained, RewardContext, Verdict, abstain_on_all
from tfgrpo.rewarders.graders.base import CLOSE, OPEN, Completion, GraderInput, parse_completion, refuse
from tfgrpo.rewarders.graders.combine import GraderSet, ItemGrade, grade_items, grade_items_here
from tfgrpo.rewarders.graders.running import TIMEOUT_S, GraderRunner
from tfgrpo.stores.errors import Problem
from tfgrpo.stores.frozen_json import FrozenDict
from tfgrpo.stores.outcomes import RewardScore

Parse: TypeAlias = Literal["auto", "think", "whole"]

NO_REFERENCE: Final = "the item has no reference answer"
_SHOWN: Final = 60


class _OwnRunner:
    """A runner that is made on first use; a copy of it in another process makes its own."""

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
    """Scores each attempt with a set of graders, off the event loop, and abstains on ungraded attempts.

    A grader's record has ``prompt``, ``answer`` and ``metadata`` of the item. Errors of graders become abstentions; after
    the time limit, ungraded attempts are abstained on. Raises ``PipelineError`` when built with an unknown ``parse`` or
    without a name.
    """

    graders: GraderSet
    rewarder_id: str
    parse: Parse = "auto"
    """Which part of an output is the answer. ``think``: the text after a ``<think>…</think>`` block. ``whole``: all of
    it. ``auto``: the text after the block, or after a lone ``</think>`` whose opening was part of the prompt; none after
    an unclosed block; all of an output without tags."""
    needs_answer: bool = False
    """Abstain on items without a reference answer."""
    _runner: _OwnRunner = field(default_factory=_OwnRunner, init=False, compare=False, repr=False)

    limits_itself: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_reading(self.rewarder_id, self.parse)

    async def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Score every attempt."""
        if self.needs_answer and not context.answer.strip():
            return abstain_on_all(self, context, NO_REFERENCE)
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
        """Score every attempt."""
        if self.needs_answer and not context.answer.strip():
            return abstain_on_all(self, context, NO_REFERENCE)
        inputs = graded_inputs(context, self.parse)
        return _verdicts(self, inputs, grade_items_here(self.graders, inputs))


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
    """Return every part, the end of the answer, and the reference if it was compared."""
    parts = ", ".join(f"{name} {reward:g}" for name, reward in grade.parts.items())
    answer = "no final answer" if item.answer is None else f"answer {_end(item.answer)}"
    reference = f", reference {_end(str(item.record['answer']))}" if compared else ""
    return f"{parts}; {answer}{reference}"


def check_reading(rewarder_id: object, parse: object) -> None:
    """Raise ``PipelineError`` for a blank name and an unknown ``parse``."""
    refuse(_reading_problems(rewarder_id, parse))


def _reading_problems(rewarder_id: object, parse: object) -> Iterator[Problem]:
    if not isinstance(rewarder_id, str) or not rewarder_id.strip():
        yield Problem("rewarder_id", repr(rewarder_id), "a name")
    if parse not in get_args(Parse):
        yield Problem("parse", repr(parse), ", ".join(get_args(Parse)))


def _end(text: str) -> str:
    """Quote the end of a text in one line: answers state their result there."""
    return repr(text if len(text) <= _SHOWN else f"…{text[-_SHOWN + 1 :]}")
