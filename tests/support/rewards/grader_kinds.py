"""Graders of every kind, their inputs and their grades."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tfgrpo.rewarders.graders.base import Grade, GradeResult, GraderInput, NotGraded


def items(count: int = 4, record: dict[str, Any] | None = None) -> list[GraderInput]:
    return [GraderInput.of(f"d:{n}", record or {}, "x" * n, completion_index=n) for n in range(count)]


def good(item: GraderInput) -> GradeResult:
    return GradeResult(item.sample_id, float(len(item.completion)), item.completion_index)


def rewards(grades: Iterable[Grade]) -> list[float | None]:
    return [None if isinstance(grade, NotGraded) else grade for grade in grades]


def reasons(grades: Iterable[Grade]) -> set[str]:
    return {f"{grade.error_type}: {grade.reason}" for grade in grades if isinstance(grade, NotGraded)}


class Batch:
    """A blocking grader from a function of a batch; counts its calls."""

    def __init__(self, function: Callable[[Sequence[GraderInput]], Any]) -> None:
        self.function = function
        self.calls = 0

    def grade_batch(self, inputs: Sequence[GraderInput], /) -> Any:
        self.calls += 1
        return self.function(inputs)


class AsyncBatch(Batch):
    async def grade_batch(self, inputs: Sequence[GraderInput], /) -> Any:
        self.calls += 1
        return await self.function(inputs)


def per_item(grader: Any) -> Any:
    """Return the grader, marked as one whose rewards do not depend on the other items of the batch."""
    grader.per_item = True
    return grader


def raises_on(*bad: str) -> Callable[[Sequence[GraderInput]], list[GradeResult]]:
    def function(inputs: Sequence[GraderInput]) -> list[GradeResult]:
        if any(item.sample_id in bad for item in inputs):
            raise ValueError("cannot\nread  this")
        return [good(item) for item in inputs]

    return function
