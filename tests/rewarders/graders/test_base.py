"""A function of one item is a grader, and still a function."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tfgrpo.rewarders.graders.base import Grader, GradeResult, GraderInput, grader

ITEMS = [GraderInput.of(f"s:{n}", {"answer": n}, "x" * n, completion_index=n) for n in range(3)]


@grader
def length(item: GraderInput) -> float:
    return float(len(item.completion))


def test_a_decorated_function_grades_a_batch_in_order():
    assert isinstance(length, Grader)
    assert length.grade_batch(ITEMS) == [GradeResult(f"s:{n}", float(n), n) for n in range(3)]
    assert length(ITEMS[2]) == 2.0


async def test_a_decorated_coroutine_function_waits_for_all_items_at_once():
    meeting = asyncio.Barrier(len(ITEMS))

    @grader
    async def length_together(item: GraderInput) -> float:
        await meeting.wait()  # nobody gets past it before all are there
        return float(len(item.completion))

    async with asyncio.timeout(10):
        assert await length_together.grade_batch(ITEMS) == [GradeResult(f"s:{n}", float(n), n) for n in range(3)]
        assert await asyncio.gather(*map(length_together, ITEMS)) == [0.0, 1.0, 2.0]
    assert await length_together.grade_batch([]) == []


def test_a_function_that_cannot_take_one_item_is_refused_where_it_is_written():
    for wrong in (lambda: 1.0, lambda output, answer: 1.0, lambda *, item: 1.0):
        with pytest.raises(TypeError, match="one argument, the GraderInput"):
            grader(wrong)
    assert grader(lambda item, least=1: float(least))(ITEMS[0]) == 1.0


def test_any_object_with_the_method_is_a_grader():
    class Own:
        def grade_batch(self, inputs: Sequence[GraderInput]) -> list[GradeResult]:
            return []

    assert isinstance(Own(), Grader)
    assert not isinstance(object(), Grader)
