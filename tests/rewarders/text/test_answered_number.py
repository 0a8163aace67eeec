"""A part of something else, and one number of several, is no stated number; plain integers are read as any other."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.rewarders.text.numbers import answered_number
from tfgrpo.stores.errors import RewardError

PARTS = r"""
12\pi  12x  12i  12!  \pm 12  x > 12  x \ge 12  \geq 12  \sqrt{12}  \sqrt[3]{12}  2\sqrt{12}  \log 12  12 + x  12 million
\frac{12}{x}  \frac{12\pi}{5}  0.\overline{12}  12...  -|12|  \binom{12}{2}  12_8  minus 12
"""
SEVERAL = r"""
12, 13  12; 13  12 or 13  either 12 or 13  12 and 13  12 to 13  12:30  12 \pm 1  x = 3 or x = 12  12,5  $12$ or $13$
"""
WHOLE = r"""
12  12 km  12 cm²  12 m/s^2  12^\circ  x = 12  x \approx 12  ≈ 12  10 + 2 = 12  A = \pi r^2 = 12  P = 2(2+4) = 12
\text{(B) } 12  \mathbf{12}  \underline{12}  \$12  12 \text{ and no more}  (12)  +12.0  1.2 × 10¹  12 apples
"""
PROSE = """
It is 12!  12 - I am sure.  12 – a nice number.  <answer>12</answer>  | 12 |  > 12  -> 12  It is ~12.  12 i think
Answer: 12, as asked  Answer: 12 (see 3)  Answer: 12 to 2 decimal places  Answer: 12 km in 3 hours  Answer: B - 12
## Answer\\n**12** in 3 steps  **Final Answer**\\n\\n12\\n\\nStep 3 was hard.  Final answer\\n12\\n3 steps
"""


def texts(several: str) -> list[str]:
    return [each.replace("\\n", "\n") for each in re.split(r"  |\n", several.strip())]


def is_twelve(text: str) -> bool:
    try:
        found = answered_number(text)
    except RewardError:
        return False
    return found is not None and found.value == 12


@pytest.mark.parametrize("text", texts(PARTS) + texts(SEVERAL))
def test_a_part_of_an_answer_is_never_the_answer(text):
    assert not is_twelve(f"\\boxed{{{text}}}")
    assert not is_twelve(f"Answer: $\\boxed{{{text}}}$ by 3 ways")


@pytest.mark.parametrize("text", [each for each in texts(PARTS) if each[-1] not in "!|>2x" or "sqrt" in each])
def test_nor_is_it_in_words(text):
    assert not is_twelve(f"So the result is ${text}$.")


@pytest.mark.parametrize("text", texts(SEVERAL))
def test_an_answer_line_with_several_numbers_states_none(text):
    assert not is_twelve(f"Answer: {text}")


@pytest.mark.parametrize("text", texts(WHOLE))
def test_a_number_with_words_and_units_is_the_answer(text):
    assert is_twelve(f"\\boxed{{{text}}}")
    assert is_twelve(f"Answer: {text}")


@pytest.mark.parametrize("text", texts(PROSE))
def test_words_around_a_number_make_it_no_part_of_something_else(text):
    assert is_twelve(text)


@given(st.from_regex(r"\s?[+-]?[0-9]{1,18}\s?", fullmatch=True, alphabet=st.characters(codec="ascii")))
def test_a_plain_integer_is_its_value(text):
    found = answered_number(text)
    assert found is not None
    assert found.value == int(text.strip())
    assert answered_number(f"Answer: {text}").value == found.value
