"""``number_match`` compares values, and takes the last one stated."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rewards.graders import answered, score
from tfgrpo.rewarders.graders.builtin.number_match import reference_value
from tfgrpo.stores.errors import PipelineError, RewardError

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
    (r"so \fbox{42}, not 41", r"\fbox{42}"),
    ("first 3\nthen 42", "5 * 8 + 2 = <<40+2=42>>42\n#### 42"),
    ("Answer: 42\nin 3 steps", "42"),
    ("42", 42),
    ("0.1", 0.1),
    ("-3", -3),
]
WRONG = [
    ("1", "1,080"),
    ("41", "42"),
    ("none", "42"),
]
REFERENCES = r"""
42  1,080  -42  0.5  50%  50\%  $5  $1,234.56  1e5  10^3  10^{6}  3/4  \frac{1}{2}  .5  +3  1'000  \boxed{42}  **42**
$42$  \(42\)  (5)  42 apples  42km  60 km/h  42 m^2  42 \text{ cm}^2  42\textrm{ cm}  3 1/2  3 \times 10^5  30^\circ  ½
2½  −42  5 μm  3²  10⁻³  The answer is 42.  No. 5  x = 5  x_1 = 5  3 * 4 = 12  Total cost: $42  a 5-day trip  Answer: 42 apples
6.02 × 10²³  so \boxed{42} is it, as 40 + 2 says  5 cm²  the only root is 3  the negative ones are 3  40+2=<<40+2=42>>42 #### 42
5 million  2 dozen  one half
\boxed{\boxed{5}}  \boxed{\fbox{\boxed{-1,080}}}  \boxed{12\text{ boxes}}  in 7 boxes, \boxed{7} each
"""
NO_REFERENCES = r"""
7!  2i  3i  2x  5k  5M  2π  √2  ±3  ≤5  3-7  3,14  12:30  1.2.3  |5|  1/x  2/\pi  e^2  2\pi  2\sqrt{3}  \sqrt{2}
\frac{\pi}{2}  \frac{2}{x}  0.(3)  3, 7  2+3i  2-3i  2 + x  x - 5  5 - x  2(x+1)  f(5)  log 8  3 or 7  x = 3 or x = 7
x=3,y=7  (1, 2)  [1,2]  [5, ∞)  2024-01-05  0.333...  0.\overline{3}  3^{1/2}  2 \cdot \pi  5 \pm x
12:05  2-5  555-1234  y = 2x + 3  2x + 3 = 7  x != 5  101₂  ∛27  ⌊3⌋  Negative $3$  3 squared  the square root of 3
\boxed{3} and \boxed{7}  \boxed{3, 7}  Answer: 3 and 7  #### 3, 7  nothing
\boxed{3+\boxed{5}}  Answer: \boxed{3} or \boxed{7}  \boxed{\boxed{3}} or \boxed{7}
"""


def texts(several: str) -> list[str]:
    return re.split(r"  |\n", several.strip())


@pytest.mark.parametrize(("answer", "gold"), RIGHT)
def test_the_same_value_counts_however_it_is_written(answer, gold):
    assert score("number_match", answered(answer), {"answer": gold}) == 1.0


@pytest.mark.parametrize(("answer", "gold"), WRONG)
def test_another_value_or_none_does_not(answer, gold):
    assert score("number_match", answered(answer), {"answer": gold}) == 0.0


@pytest.mark.parametrize("reference", texts(REFERENCES))
def test_a_reference_that_is_one_number_is_right_itself(reference):
    assert (
        score("number_match", answered(f"\\boxed{{{reference_value(reference).text}}}"), {"answer": reference}) == 1.0
    )


@pytest.mark.parametrize("reference", [*texts(NO_REFERENCES), None, True, float("nan"), ["3, 7", None], ""])
@pytest.mark.parametrize("answer", ["2", "3", "5", "7", "none"])
def test_an_answer_is_never_right_or_wrong_about_a_part_of_a_reference(reference, answer):
    with pytest.raises(RewardError, match="is no single number"):
        score("number_match", answered(answer), {"answer": reference})


@pytest.mark.parametrize("completion", ["<think>so 42", "<think>42</think>", "42</think>", "so <think>42</think> "])
@pytest.mark.parametrize("require_answer", [True, False])
def test_unfinished_reasoning_is_never_an_answer(completion, require_answer):
    assert score("number_match", completion, {"answer": "42"}, require_answer=require_answer) == 0.0


def test_the_same_text_as_an_unusable_reference_is_right():
    assert score("number_match", answered("3, 7"), {"answer": "3, 7"}) == 1.0
    assert score("number_match", answered("Answer: 12:05"), {"answer": "12:05"}) == 1.0


def test_several_numbers_of_which_no_line_states_one_are_no_score():
    with pytest.raises(RewardError, match="no answer is marked"):
        score("number_match", answered("1 2 3 42 5"), {"answer": "42"})


def test_a_completion_without_tags_may_be_the_answer_itself():
    assert score("number_match", "It is 42.", {"answer": "42"}) == 0.0
    assert score("number_match", "It is 42.", {"answer": "42"}, require_answer=False) == 1.0


def test_tolerance_is_an_absolute_difference_and_inclusive():
    assert score("number_match", answered("0.4"), {"answer": "0.3"}, tolerance=0.1) == 1.0
    assert score("number_match", answered("0.41"), {"answer": "0.3"}, tolerance=0.1) == 0.0


def test_any_of_several_numbers_is_right():
    assert score("number_match", answered("7"), {"answer": ["3", "7"]}) == 1.0
    assert score("number_match", answered("5"), {"answer": ["3", "7"]}) == 0.0


def test_options_without_a_meaning_are_refused_together():
    with pytest.raises(PipelineError) as caught:
        score("number_match", "", tolerance=-1, require_answer="no")
    assert [str(problem) for problem in caught.value.problems] == [
        "rewarders: number_match: options.tolerance: got -1; accepted: a finite number of at least 0",
        "rewarders: number_match: options.require_answer: got 'no'; accepted: true or false",
    ]


@given(st.integers(-(10**15), 10**15), st.integers(-(10**15), 10**15))
def test_a_number_with_separators_is_its_value(value, other):
    assert score("number_match", answered(f"{value:,}"), {"answer": str(value)}) == 1.0
    assert score("number_match", answered(f"{value:,}"), {"answer": other}) == float(value == other)
