"""Graders of every kind and what they make of a batch."""

from __future__ import annotations

from tfgrpo.rewarders.graders.base import GradeResult, GraderInput
from tfgrpo.rewarders.graders.running import Graded, NotGraded


def items(count: int = 4, record: dict | None = None) -> list[GraderInput]:
    return [GraderInput.of(f"d:{n}", record or {}, "x" * n, completion_index=n) for n in range(count)]


def good(item: GraderInput) -> GradeResult:
    return GradeResult(item.sample_id, float(len(item.completion)), item.completion_index)


def rewards(grades) -> list[float | None]:
    return [grade.reward if isinstance(grade, Graded) else None for grade in grades]


def reasons(grades) -> set[str]:
    return {f"{grade.error_type}: {grade.reason}" for grade in grades if isinstance(grade, NotGraded)}


class Batch:
    """A plain grader out of a function of a batch; knows how often it was asked."""

    def __init__(self, function):
        self.function = function
        self.calls = 0

    def grade_batch(self, inputs):
        self.calls += 1
        return self.function(inputs)


class AsyncBatch(Batch):
    async def grade_batch(self, inputs):
        self.calls += 1
        return await self.function(inputs)


def per_item(each):
    """The same grader, declaring that no reward depends on the other items of a batch."""
    each.per_item = True
    return each


def raises_on(*bad: str):
    def function(inputs):
        if any(item.sample_id in bad for item in inputs):
            raise ValueError("cannot\nread  this")
        return [good(item) for item in inputs]

    return function
