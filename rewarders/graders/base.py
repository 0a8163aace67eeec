"""Graders: their input, their result, the protocol, and functions as graders.

A grader returns a number for every item and may raise; the runner decides what a failure means.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, TypeAlias, overload, runtime_checkable

OPEN: Final = "<think>"
CLOSE: Final = "</think>"


def parse_completion(text: str) -> tuple[str | None, str | None]:
    """Return reasoning and answer, split at the first ``<think>`` and the first ``</think>``; None when empty or absent.

    The tags are literal: no attributes, no other case. Without both, or with the first close before the first open, there
    is neither reasoning nor answer. Text before the block is ignored, and later tags belong to the answer.
    """
    opened = text.find(OPEN)
    closed = text.find(CLOSE)
    if opened < 0 or closed < opened:
        return None, None
    reasoning = text[opened + len(OPEN) : closed].strip()
    answer = text[closed + len(CLOSE) :].strip()
    return reasoning or None, answer or None


@dataclass(frozen=True, slots=True)
class GraderInput:
    """One completion and the record of the sample that it was generated for."""

    sample_id: str
    record: Mapping[str, Any]
    """The whole record of the dataset, unknown keys included. A malformed one may be any JSON value."""
    completion: str
    """As generated, not stripped."""
    reasoning: str | None
    answer: str | None
    """Final answer after the reasoning block; None when the completion has no such block or no text after it."""
    completion_tokens: int | None = None
    completion_index: int | None = None
    """Index of the completion in the batch, if the caller sets it; returned with the result."""

    @classmethod
    def of(
        cls,
        sample_id: str,
        record: Mapping[str, Any],
        completion: str,
        completion_tokens: int | None = None,
        completion_index: int | None = None,
    ) -> GraderInput:
        """Return the input for a completion, split into reasoning and answer."""
        return cls(sample_id, record, completion, *parse_completion(completion), completion_tokens, completion_index)


def field(item: GraderInput, name: str) -> Any:
    """Return a field of the record; None when it is absent, or when the record is no object."""
    return item.record.get(name) if isinstance(item.record, Mapping) else None


def metadata(item: GraderInput, name: str) -> Any:
    """Return a field of the record's metadata; None when it, or the metadata, is absent or no object."""
    values = field(item, "metadata")
    return values.get(name) if isinstance(values, Mapping) else None


def final_answer(item: GraderInput) -> str | None:
    """Return the final answer; None when there is none, or when it is white space."""
    return item.answer if item.answer and not item.answer.isspace() else None


def answer_or_completion(item: GraderInput, *, require_answer: bool) -> str | None:
    """Return the final answer, else the whole completion unless ``require_answer``."""
    answer = final_answer(item)
    return answer if answer is not None or require_answer else item.completion


@dataclass(slots=True)
class GradeResult:
    """The reward of one item. Mutable: grader files of the existing system change the rewards that they made."""

    sample_id: str
    reward: float
    completion_index: int | None = None


@dataclass(frozen=True, slots=True)
class NotGraded:
    """The grader gave no usable reward. Never a number."""

    reason: str
    error_type: str
    """Name of the exception, or ``NoResult``, ``NotANumber`` or ``TwoResults``."""
    broke: bool = False
    """The grader failed: it raised or is unavailable. A ``RewardError`` that it raises concerns the item instead."""


Grade: TypeAlias = float | NotGraded
"""A reward, which is finite, of any sign and size, or the reason why there is none."""
GradedBatch: TypeAlias = Sequence[GradeResult | Grade] | Awaitable[Sequence[GradeResult | Grade]]


@runtime_checkable
class Grader(Protocol):
    """Grades a batch: one result for each input, in the order of the inputs.

    A batch for which it raises is ungraded as a whole. With a class attribute ``per_item = True`` it declares that no
    reward depends on the other items of the batch; then every item of a failed batch is graded alone.
    """

    def grade_batch(self, inputs: Sequence[GraderInput], /) -> GradedBatch:
        """Grade every input. A plain or a coroutine method; may be called from several threads at once."""
        ...


class ItemGrader(ABC):
    """A grader whose rewards do not depend on the other items of the batch."""

    per_item: ClassVar[bool] = True

    @abstractmethod
    def score_one(self, item: GraderInput) -> float:
        """Return the reward of one item."""

    def grade_batch(self, inputs: Sequence[GraderInput], /) -> list[GradeResult]:
        """Return one result for each input, in order."""
        return [GradeResult(item.sample_id, self.score_one(item), item.completion_index) for item in inputs]


@dataclass(frozen=True, slots=True)
class FunctionGrader(ItemGrader):
    """A function of one item as a grader, which can still be called as the function."""

    function: Callable[[GraderInput], float]

    def __call__(self, item: GraderInput) -> float:
        """Call the function."""
        return self.function(item)

    score_one = __call__


@dataclass(frozen=True, slots=True)
class AsyncFunctionGrader:
    """A coroutine function of one item as a grader; the items of a batch run concurrently."""

    function: Callable[[GraderInput], Awaitable[float]]

    def __call__(self, item: GraderInput) -> Awaitable[float]:
        """Call the function."""
        return self.function(item)

    async def grade_batch(self, inputs: Sequence[GraderInput], /) -> list[GradeResult]:
        """Call the function for all inputs at once; its first error passes through."""
        rewards = await asyncio.gather(*(self.function(item) for item in inputs))
        return [
            GradeResult(item.sample_id, reward, item.completion_index)
            for item, reward in zip(inputs, rewards, strict=True)
        ]


@overload
def grader(function: Callable[[GraderInput], float]) -> FunctionGrader: ...
@overload
def grader(function: Callable[[GraderInput], Awaitable[float]]) -> AsyncFunctionGrader: ...
def grader(function: Callable[[GraderInput], Any]) -> FunctionGrader | AsyncFunctionGrader:
    """Make a grader of a function from one ``GraderInput`` to its reward, plain or ``async``; a decorator.

    Raises ``TypeError`` when the function cannot be called with exactly one argument.
    """
    try:
        inspect.signature(function).bind(None)
    except (TypeError, ValueError) as error:
        raise TypeError(f"a grader function takes one argument, the GraderInput: {error}") from error
    return AsyncFunctionGrader(function) if inspect.iscoroutinefunction(function) else FunctionGrader(function)
