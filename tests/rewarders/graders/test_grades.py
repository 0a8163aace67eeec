"""Results find their items by name or position, and a bad one costs its own item only."""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.rewarders.graders.base import GradeResult, GraderInput, NotGraded
from tfgrpo.rewarders.graders.grades import as_grade, matched
from tfgrpo.stores.errors import RewardError


def inputs_of(*names: tuple[str, int | None] | str) -> list[GraderInput]:
    pairs = [name if isinstance(name, tuple) else (name, None) for name in names]
    return [GraderInput.of(sample_id, {}, "x", completion_index=index) for sample_id, index in pairs]


def rewards(grades) -> list[float | None]:
    return [None if isinstance(grade, NotGraded) else grade for grade in grades]


@pytest.mark.parametrize(
    ("value", "reward"),
    [
        (1, 1.0),
        (True, 1.0),
        ("0.5", 0.5),
        (Fraction(1, 4), 0.25),
        (Decimal("0.5"), 0.5),
        (np.float32(0.5), 0.5),
        (np.array(0.25), 0.25),
        (-3.0, -3.0),
    ],
)
def test_what_is_a_number_in_any_form_is_a_reward(value, reward):
    assert as_grade(value) == reward


class Odd:
    def __float__(self):
        raise RuntimeError("no")

    def __repr__(self):
        raise RuntimeError("no")

    @property
    def reward(self):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "value",
    [None, "good", float("nan"), float("inf"), -float("inf"), "nan", [1.0], 10**400, object(), "x" * 500, Odd()],
)
def test_a_reward_that_is_no_finite_number_is_ungraded_with_a_short_reason(value):
    grade = as_grade(value)
    assert isinstance(grade, NotGraded)
    assert grade.error_type == "NotANumber"
    assert len(grade.reason) < 120


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20)), unique=True, max_size=12), st.randoms())
def test_results_in_any_order_find_the_items_that_they_name(names, rng):
    inputs = inputs_of(*names)
    said = [GradeResult(name, float(place), index) for place, (name, index) in enumerate(names)]
    rng.shuffle(said)
    assert rewards(matched(inputs, said)) == [float(place) for place in range(len(names))]


@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=12),
    st.randoms(),
)
def test_results_of_items_without_an_index_keep_their_order_within_a_name(names, rng):
    """Position within each name: a grader that groups by sample is understood, one in request order as well."""
    inputs = inputs_of(*names)
    grouped = sorted(range(len(names)), key=lambda place: names[place])
    for order in (grouped, range(len(names))):
        said = [GradeResult(names[place], float(place)) for place in order]
        assert rewards(matched(inputs, said)) == [float(place) for place in range(len(names))]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), unique=True, min_size=1, max_size=8),
    st.data(),
)
def test_a_missing_result_costs_its_own_item_only(names, data):
    inputs = inputs_of(*names)
    kept = data.draw(st.lists(st.sampled_from(range(len(names))), unique=True, min_size=1))
    said = [GradeResult(names[place][0], float(place), names[place][1]) for place in kept]
    assert rewards(matched(inputs, said)) == [float(n) if n in kept else None for n in range(len(names))]


def test_names_that_are_echoed_without_an_index_are_enough():
    inputs = inputs_of(("a", 4), ("b", 5), ("c", 6))
    said = [GradeResult("c", 3.0), GradeResult("a", 1.0), GradeResult("b", 2.0)]
    assert rewards(matched(inputs, said)) == [1.0, 2.0, 3.0]


def test_an_index_alone_is_enough():
    said = [{"reward": 2.0, "completion_index": 5}, {"reward": 1.0, "completion_index": 4}]
    assert rewards(matched(inputs_of(("a", 4), ("a", 5)), said)) == [1.0, 2.0]


@pytest.mark.parametrize(
    "said",
    [
        [1.0, 2.0, 3.0],
        [{"reward": 1}, {"reward": 2}, {"reward": 3}],
        [GradeResult("?", 1), GradeResult("?", 2), GradeResult("?", 3)],
        [GradeResult("a", 1), GradeResult("a", 2), GradeResult("a", 3)],
        [GradeResult(["a"], 1), GradeResult(["b"], 2), GradeResult(["c"], 3)],
        np.array([1.0, 2.0, 3.0]),
        iter([1.0, 2.0, 3.0]),
    ],
)
def test_without_names_that_tell_anything_the_position_counts(said):
    assert rewards(matched(inputs_of("a", "b", "c"), said)) == [1.0, 2.0, 3.0]


def test_too_few_without_names_leave_the_last_ungraded_and_too_many_are_cut_off():
    inputs = inputs_of("a", "b", "c")
    assert rewards(matched(inputs, [1.0, 2.0])) == [1.0, 2.0, None]
    assert rewards(matched(inputs, [1.0, 2.0, 3.0, 4.0])) == [1.0, 2.0, 3.0]
    assert rewards(matched(inputs, [])) == [None, None, None]


def test_an_endless_answer_is_not_read_to_its_end():
    assert rewards(matched(inputs_of("a"), iter(lambda: 1.0, 2.0))) == [1.0]


def test_a_result_with_an_unknown_name_is_dropped():
    said = [GradeResult("c", 3.0), GradeResult("x", 9.0), GradeResult("a", 1.0)]
    assert rewards(matched(inputs_of("a", "b", "c"), said)) == [1.0, None, 3.0]


def test_two_results_for_one_item_count_only_when_they_agree():
    inputs = inputs_of("a", "b")
    agreeing = [GradeResult("a", 1.0), GradeResult("b", 2.0), GradeResult("b", 2.0)]
    assert rewards(matched(inputs, agreeing)) == [1.0, 2.0]
    differing = [GradeResult("a", 1.0), GradeResult("b", 2.0), GradeResult("b", 3.0)]
    first, second = matched(inputs, differing)
    assert first == 1.0
    assert isinstance(second, NotGraded)
    assert second.error_type == "TwoResults"


@pytest.mark.parametrize("bad", [None, {}, {"score": 1}, object(), float("nan"), Odd()])
def test_a_result_without_a_reward_costs_its_own_item_only(bad):
    assert rewards(matched(inputs_of("a", "b", "c"), [1.0, bad, 3.0])) == [1.0, None, 3.0]


def test_a_result_without_a_name_among_named_ones_is_dropped():
    said = [GradeResult("c", 3.0), 9.0, GradeResult("a", 1.0)]
    assert rewards(matched(inputs_of("a", "b", "c"), said)) == [1.0, None, 3.0]


@pytest.mark.parametrize("reward", [float("nan"), "good", None])
def test_a_grade_without_a_finite_number_is_none(reward):
    assert isinstance(as_grade(reward), NotGraded)


def test_a_grade_among_the_results_stays_as_it_is():
    grades = (NotGraded("no licence", "LicenceError"), 0.5)
    assert matched(inputs_of("a", "b"), grades) == grades


@pytest.mark.parametrize("said", [None, 1.0, "abc", b"abc", {"results": []}])
def test_what_is_no_list_of_results_is_an_error(said):
    with pytest.raises(RewardError, match="expected a list of results"):
        matched(inputs_of("a"), said)


def test_shuffling_a_large_batch_changes_nothing():
    names = [(f"d:{n % 50}", n) for n in range(400)]
    said = [{"sample_id": name, "completion_index": index, "reward": index / 400} for name, index in names]
    random.Random(7).shuffle(said)
    assert rewards(matched(inputs_of(*names), said)) == [n / 400 for n in range(400)]
