"""A function of one item is a grader, and still a function."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rewarders.graders.base import Grader, GradeResult, GraderInput, grader

ITEMS = [GraderInput.of(f"s:{n}", {"answer": n}, "x" * n, completion_index=n) for n in range(3)]


@grader
def length(item: GraderInput) -> float:
    return float(len(item.completion))


@grader
async def slow_length(item: GraderInput) -> float:
    await asyncio.sleep(0.05)
    return float(len(item.completion))


def test_a_decorated_function_grades_a_batch_in_order():
    assert isinstance(length, Grader)
    assert length.grade_batch(ITEMS) == [GradeResult(f"s:{n}", float(n), n) for n in range(3)]
    assert length(ITEMS[2]) == 2.0


async def test_a_decorated_coroutine_function_waits_for_all_items_at_once():
    began = asyncio.get_running_loop().time()
    results = await slow_length.grade_batch(ITEMS * 10)
    assert asyncio.get_running_loop().time() - began < 1.0
    assert results == [GradeResult(f"s:{n}", float(n), n) for n in range(3)] * 10
    assert await slow_length(ITEMS[2]) == 2.0
    assert await slow_length.grade_batch([]) == []


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
