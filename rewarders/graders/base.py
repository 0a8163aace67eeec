"""What is a grader? What it is given for each completion, what it returns, and how a plain function becomes one.

A grader answers with a number for every item and may raise; what a failure then means is decided by who runs it.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias, overload, runtime_checkable

from tfgrpo.rewarders.text.completions import parse_completion


@dataclass(frozen=True, slots=True)
class GraderInput:
    """One completion and the record of the sample that it was generated for."""

    sample_id: str
    record: Mapping[str, Any]
    """The whole record of the dataset, keys that nothing here knows included. A malformed one may be any JSON value."""
    completion: str
    """As generated, not stripped."""
    reasoning: str | None
    answer: str | None
    """Final answer behind the reasoning block; None when the completion has no such block or nothing behind it."""
    completion_tokens: int | None = None
    completion_index: int | None = None
    """Which completion of the batch it is, when the caller says so; handed back with the result."""

    @classmethod
    def of(
        cls,
        sample_id: str,
        record: Mapping[str, Any],
        completion: str,
        *,
        completion_tokens: int | None = None,
        completion_index: int | None = None,
    ) -> GraderInput:
        """The input for a completion, cut into reasoning and answer."""
        parsed = parse_completion(completion)
        return cls(sample_id, record, completion, parsed.reasoning, parsed.answer, completion_tokens, completion_index)


@dataclass(frozen=True, slots=True)
class GradeResult:
    """The reward of one item."""

    sample_id: str
    reward: float
    completion_index: int | None = None


GradedBatch: TypeAlias = Sequence[GradeResult] | Awaitable[Sequence[GradeResult]]


@runtime_checkable
class Grader(Protocol):
    """Anything that grades a batch: one result for each input, in the order of the inputs.

    A batch that it raises on is ungraded as a whole. With a class attribute ``per_item = True`` it declares that no reward
    depends on the other items of the batch; then every item of that batch is asked for alone.
    """

    def grade_batch(self, inputs: Sequence[GraderInput], /) -> GradedBatch:
        """Grade every input; a plain method or a coroutine method. May be called from several threads at once."""
        ...


class ItemGrader(ABC):
    """A grader whose rewards do not depend on the other items of the batch."""

    per_item: ClassVar[bool] = True

    @abstractmethod
    def score_one(self, item: GraderInput) -> float:
        """Reward of one item."""

    def grade_batch(self, inputs: Sequence[GraderInput], /) -> list[GradeResult]:
        """One result for each input, in order."""
        return [GradeResult(item.sample_id, self.score_one(item), item.completion_index) for item in inputs]


@dataclass(frozen=True, slots=True)
class FunctionGrader:
    """A function of one item as a grader; it can still be called as the function that it was."""

    function: Callable[[GraderInput], float]

    def __call__(self, item: GraderInput) -> float:
        """What the function says."""
        return self.function(item)

    def grade_batch(self, inputs: Sequence[GraderInput], /) -> list[GradeResult]:
        """One call for each input; raises what the function raises."""
        return [GradeResult(item.sample_id, self.function(item), item.completion_index) for item in inputs]


@dataclass(frozen=True, slots=True)
class AsyncFunctionGrader:
    """A coroutine function of one item as a grader; the items of a batch wait at the same time."""

    function: Callable[[GraderInput], Awaitable[float]]

    def __call__(self, item: GraderInput) -> Awaitable[float]:
        """What the function says, to be awaited."""
        return self.function(item)

    async def grade_batch(self, inputs: Sequence[GraderInput], /) -> list[GradeResult]:
        """One call for each input, all at once; raises the first error that the function raises."""
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
    """Decorator: a function that is given one ``GraderInput`` and returns its reward becomes a grader.

    ``async def`` works as well. Raises ``TypeError`` when the function cannot be called with exactly one argument, which
    is better said where it is written than at the first reward.
    """
    try:
        inspect.signature(function).bind(None)
    except (TypeError, ValueError) as error:
        raise TypeError(f"a grader function takes one argument, the GraderInput: {error}") from error
    return AsyncFunctionGrader(function) if inspect.iscoroutinefunction(function) else FunctionGrader(function)
