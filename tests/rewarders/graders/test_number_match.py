"""``number_match`` compares values, and takes the last one stated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stores.errors import PipelineError
from tests.rewarders.graders.kit import answered, score

RIGHT = [
    ("1080", "1,080"),
    ("1,080.00", "1080"),
    ("42.0", "42"),
    ("+42", "42"),
    ("\u221242", "-42"),
    ("\u0664\u0662", "42"),
    ("1/2", "0.5"),
    (r"\frac{1}{2}", "0.5"),
    ("50%", "0.5"),
    (r"so \boxed{42}", "#### 42"),
    ("first 3, then 42", "5 * 8 + 2 = <<40+2=42>>42\n#### 42"),
    ("Answer: 42\nin 3 steps", "42"),
    ("42", 42),
    ("0.1", 0.1),
    ("-3", -3),
]
WRONG = [
    ("1", "1,080"),
    ("1 2 3 42 5", "42"),
    ("41", "42"),
    ("none", "42"),
    ("42", "none"),
    ("42", None),
    ("1", True),
    ("42", float("nan")),
    ("42", ["42"]),
    ("42", ""),
]


@pytest.mark.parametrize(("answer", "gold"), RIGHT)
def test_the_same_value_counts_however_it_is_written(answer, gold):
    assert score("number_match", answered(answer), {"answer": gold}) == 1.0


@pytest.mark.parametrize(("answer", "gold"), WRONG)
def test_another_value_or_none_does_not(answer, gold):
    assert score("number_match", answered(answer), {"answer": gold}) == 0.0


@pytest.mark.parametrize("completion", ["<think>so 42", "<think>42</think>", "42</think>", "so <think>42</think> "])
@pytest.mark.parametrize("require_answer", [True, False])
def test_unfinished_reasoning_is_never_an_answer(completion, require_answer):
    assert score("number_match", completion, {"answer": "42"}, require_answer=require_answer) == 0.0


def test_a_completion_without_tags_may_be_the_answer_itself():
    assert score("number_match", "It is 42.", {"answer": "42"}) == 0.0
    assert score("number_match", "It is 42.", {"answer": "42"}, require_answer=False) == 1.0


def test_tolerance_is_an_absolute_difference_and_inclusive():
    assert score("number_match", answered("0.4"), {"answer": "0.3"}, tolerance=0.1) == 1.0
    assert score("number_match", answered("0.41"), {"answer": "0.3"}, tolerance=0.1) == 0.0


def test_options_without_a_meaning_are_refused_together():
    with pytest.raises(PipelineError) as caught:
        score("number_match", "", tolerance=-1, require_answer="no")
    assert [str(problem) for problem in caught.value.problems] == [
        "graders: number_match: init_kwargs.tolerance: got -1; accepted: a finite number of at least 0",
        "graders: number_match: init_kwargs.require_answer: got 'no'; accepted: true or false",
    ]


@given(st.integers(-(10**15), 10**15), st.integers(-(10**15), 10**15))
def test_a_number_with_separators_is_its_value(value, other):
    assert score("number_match", answered(f"{value:,}"), {"answer": str(value)}) == 1.0
    assert score("number_match", answered(f"{value:,}"), {"answer": other}) == float(value == other)
