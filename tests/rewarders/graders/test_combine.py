"""A weighted sum with the format grader in it, times gates; what is missing is never a number."""

from __future__ import annotations

import asyncio
import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfgrpo.rewarders.graders.combine import FORMAT, GraderSet, NamedGrader, grade_items, grade_items_here
from tfgrpo.rewarders.graders.running import GraderRunner

from tfgrpo.rewarders.graders.base import FunctionGrader, GraderInput, grader

PERFECT = "<think>r</think>\n42"


def inputs(count: int = 2, completion: str = PERFECT) -> list[GraderInput]:
    return [GraderInput.of(f"d:{n}", {}, completion, completion_index=n) for n in range(count)]


def constant(value) -> FunctionGrader:
    return FunctionGrader(lambda item: value)


def named(value, weight: float = 1.0, name: str = "part", **more) -> NamedGrader:
    return NamedGrader(name, constant(value), weight, **more)


def graded(grader_set: GraderSet, items=None):
    async def run():
        with GraderRunner(timeout_s=5.0) as runner:
            return await grade_items(runner, grader_set, inputs() if items is None else items)

    return asyncio.run(run())


def test_the_format_grader_is_in_every_sum_with_weight_one():
    (grade, _) = graded(GraderSet((named(0.5, 3.0),)))
    assert grade.reward == pytest.approx(0.75 * 0.5 + 0.25 * 1.0, abs=1e-12)
    assert grade.parts == {"part": 0.5, FORMAT: 1.0}
    assert graded(GraderSet())[0].reward == 1.0
    assert graded(GraderSet(), inputs(1, "plain"))[0].reward == 0.0
    assert graded(GraderSet((named(0.5),), format_weight=0.0))[0].parts == {"part": 0.5}
    assert graded(GraderSet((named(0.5),), format_weight=3.0))[0].reward == pytest.approx(0.875)


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.floats(0, 10)), max_size=5),
    st.lists(st.floats(-2, 2), max_size=3),
)
def test_the_reward_is_the_weighted_mean_times_every_gate_and_is_not_clamped(parts, gates):
    grader_set = GraderSet(
        tuple(named(value, weight, f"p{n}") for n, (value, weight) in enumerate(parts)),
        tuple(named(value, name=f"g{n}") for n, value in enumerate(gates)),
    )
    whole = math.fsum(weight for _, weight in parts) + 1.0
    expected = (sum(value * weight for value, weight in parts) + 1.0) / whole * math.prod(gates)
    for grade in grade_items_here(grader_set, inputs()):
        assert grade.reward == pytest.approx(expected, abs=1e-9)
        assert grade.errors == {}


def test_both_ways_to_grade_say_the_same():
    grader_set = GraderSet((named(0.5), named(None, name="bad")), (named(2.0, name="gate"),))
    assert graded(grader_set) == grade_items_here(grader_set, inputs())


@pytest.mark.parametrize("place", ["additive", "multiplicative"])
def test_a_missing_part_or_gate_leaves_its_item_ungraded_and_no_other(place):
    picky = NamedGrader("picky", grader(lambda item: None if item.sample_id == "d:1" else 1.0))
    sets = {
        "additive": GraderSet((named(1.0), picky)),
        "multiplicative": GraderSet((named(1.0),), (picky,)),
    }
    first, second, third = graded(sets[place], inputs(3))
    assert first.reward == third.reward == 1.0
    assert second.reward is None
    assert second.parts == {"part": 1.0, FORMAT: 1.0}
    assert second.errors == {"picky": "the reward None is no number"}


def test_a_part_of_weight_zero_is_recorded_and_must_be_there():
    assert graded(GraderSet((named(7.0, 0.0),)))[0].reward == 1.0
    assert graded(GraderSet((named(None, 0.0),)))[0].reward is None


def test_a_grader_that_is_named_twice_is_asked_once_and_counts_twice():
    asked = []
    shared = grader(lambda item: asked.append(item.sample_id) or 0.5)
    part = NamedGrader("twice", shared)
    (grade,) = graded(GraderSet((part, part), (part,)), inputs(1))
    assert asked == ["d:0"]
    assert grade.parts == {"twice": 0.5, "twice#2": 0.5, FORMAT: 1.0, "twice#3": 0.5}
    assert grade.reward == pytest.approx(2 / 3 * 0.5)


def test_two_graders_of_one_name_are_both_asked():
    (grade,) = graded(GraderSet((named(0.0), named(1.0))), inputs(1))
    assert grade.parts == {"part": 0.0, "part#2": 1.0, FORMAT: 1.0}


def test_a_name_that_looks_like_a_repetition_costs_no_part_and_no_gate():
    repeated = (named(1.0), named(1.0), named(1.0, name="part#2"))
    assert graded(GraderSet(repeated, (named(0.5),)), inputs(1))[0].reward == 0.5


def test_a_reward_that_is_not_finite_is_ungraded():
    grade = graded(GraderSet((named(1e308),), (named(1e308, name="gate"),)))[0]
    assert grade.reward is None
    assert grade.errors == {"reward": "the combined reward is no finite number"}


def test_graders_wait_for_each_other_at_the_same_time():
    meet = threading.Barrier(3, timeout=5)

    def waits(item):
        meet.wait()
        return 1.0

    parts = tuple(NamedGrader(f"p{n}", FunctionGrader(waits)) for n in range(2))
    gate = NamedGrader("gate", FunctionGrader(waits))
    assert graded(GraderSet(parts, (gate,)), inputs(1))[0].reward == 1.0


def test_a_part_may_have_another_time_limit():
    release = threading.Event()
    slow = NamedGrader("slow", FunctionGrader(lambda item: release.wait(10)), timeout_s=0.1)
    (grade,) = graded(GraderSet((slow,)), inputs(1))
    release.set()
    assert grade.errors == {"slow": "slow: no reward within 0.1 s"}


@pytest.mark.parametrize(("own", "given", "least"), [(5.0, 0.1, 0.1), (0.1, 5.0, 0.1), (None, 0.1, 0.1)])
def test_no_part_gets_more_time_than_the_call(own, given, least):
    release = threading.Event()
    slow = NamedGrader("slow", FunctionGrader(lambda item: release.wait(10)), timeout_s=own)
    with GraderRunner() as runner:
        (grade,) = asyncio.run(grade_items(runner, GraderSet((slow,)), inputs(1), given))
        release.set()
    assert grade.errors == {"slow": f"slow: no reward within {least} s"}


def test_no_items_no_grades():
    assert graded(GraderSet((named(1.0),)), []) == ()


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_weights_without_a_meaning_are_refused(weight):
    with pytest.raises(ValueError, match="weight"):
        named(1.0, weight)
    with pytest.raises(ValueError, match="format_weight"):
        GraderSet(format_weight=weight)


def test_a_set_whose_weights_sum_to_infinity_is_refused():
    with pytest.raises(ValueError, match="sum to no finite number above 0"):
        GraderSet((named(1.0, 1.7e308), named(1.0, 1.7e308)))


def test_a_set_without_a_weight_above_zero_is_refused():
    with pytest.raises(ValueError, match="sum to no finite number above 0"):
        GraderSet((named(1.0, 0.0),), format_weight=0.0)
    with pytest.raises(ValueError, match="timeout_s of part"):
        named(1.0, timeout_s=0.0)
