"""``math_exact`` and ``number_only`` read numbers as strings of characters, ``latex_only`` looks at two ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rewards.graders import answered, score

SAME = [
    ("42", "42"),
    ("42.", "42"),
    ("3-42", "-42"),
    ("3-42", "3"),
    ("\u221242", "42"),
    ("+42", "+42"),
    ("1e5", "1"),
    ("1e5", "5"),
    ("1.2.3", "1.2"),
    ("1.2.3", ".3"),
    ("1", "1,080"),
    ("1,999", "1,080"),
    ("1e5", "1,080"),
    ("1 2 3 42 5", "42"),
    ("a\u0664\u0662b", "\u0664\u0662"),
    ("\uff14\uff12", "\uff14\uff12"),
    ("$42", "#### 42 or 43"),
    ("x.5", ".5"),
    ("4.2e1", "4.2"),
    ("--3", "-3"),
    ("+-3", "-3"),
]
DIFFERENT = [
    ("42.0", "42"),
    ("+42", "42"),
    ("042", "42"),
    ("-42", "42"),
    ("42", "\u0664\u0662"),
    ("1080", "1,080"),
    ("142", "42"),
    ("v1.42", "42"),
    ("4\u00b2", "\u00b2"),
    ("43", "42 or 43"),
    ("", "42"),
    ("no number", "42"),
    ("42", "no number"),
    ("42", ""),
    ("1/2", "0.5"),
]


@pytest.mark.parametrize(("answer", "gold"), SAME)
def test_a_number_written_the_same_anywhere_in_the_answer_counts(answer, gold):
    assert score("math_exact", answered(answer), {"answer": gold}) == 1.0


@pytest.mark.parametrize(("answer", "gold"), DIFFERENT)
def test_nothing_is_normalised(answer, gold):
    assert score("math_exact", answered(answer), {"answer": gold}) == 0.0


@pytest.mark.parametrize(
    "record", [{"answer": 42}, {"answer": ["42"]}, {"answer": None}, {}, [], "42", None, 42, ["42"]]
)
def test_a_reference_that_is_no_string_is_none(record):
    assert score("math_exact", answered("42"), record) == 0.0


@pytest.mark.parametrize(
    "completion", ["42", "r</think>\n42", "<think>42</think>", "<think>42</think>\u2028", "<think>42"]
)
def test_only_the_final_answer_is_searched(completion):
    assert score("math_exact", completion, {"answer": "42"}) == 0.0
    assert score("number_only", completion, {"answer": "42"}) == 0.0


def numbers_by_the_rule(text: str) -> list[str]:
    """Leftmost, non-overlapping: sign? digits* "." digits+, else sign? digits+, written out as a scanner."""
    found, place = [], 0
    while place < len(text):
        start = place + (text[place] in "+-")
        whole = start
        while whole < len(text) and text[whole].isdecimal():
            whole += 1
        end = whole + 1
        while whole < len(text) and text[whole] == "." and end < len(text) and text[end].isdecimal():
            end += 1
        if end > whole + 1:
            found.append(text[place:end])
            place = end
        elif whole > start:
            found.append(text[place:whole])
            place = whole
        else:
            place += 1
    return found


numerals = st.text(alphabet="0123+-..,e \u0664\uff12\u00b2\u2212x", max_size=14)


@given(numerals, numerals)
def test_every_mixture_of_signs_and_digits_follows_the_rule(answer, gold):
    wanted = numbers_by_the_rule(gold)[:1]
    stated = numbers_by_the_rule(answer.strip())
    assert score("math_exact", answered(answer), {"answer": gold}) == float(bool(wanted) and wanted[0] in stated)
    if not stated:
        assert score("number_only", answered(answer)) == 0.0


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        (0, 1.0),
        (1, 0.5),
        (9, 0.5),
        (10, 0.4),
        (19, 0.4),
        (20, 0.3),
        (29, 0.3),
        (30, 0.2),
        (39, 0.2),
        (40, 0.1),
        (49, 0.1),
        (50, 0.0),
        (5000, 0.0),
    ],
)
def test_a_number_alone_is_worth_most(beside, expected):
    assert score("number_only", answered("x" * beside + "-4.5")) == expected
    assert score("number_only", answered(f" 42{'y' * beside} ")) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("1.2.3", 0.5), ("1,080", 0.5), ("42\u200b", 0.5), ("\u0664\u0662", 1.0), ("none", 0.0), ("\ud8007", 0.5)],
)
def test_the_first_number_is_the_one_measured(answer, expected):
    assert score("number_only", answered(answer), {"answer": "7"}) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("$5$", 1),
        (" $5$ ", 1),
        ("$5\n6$", 1),
        ("$5$ and $6$", 1),
        ("$$5$$", 1),
        (r"\(5\)", 1),
        (r"\[5\]", 1),
        (r"\boxed{5}", 1),
        (r"\boxed{5} extra }", 1),
        (r"\begin{align*}5\end{align*}", 1),
        (r"\begin{a}5\end{b}", 0),
        (r"\begin{a}5", 0),
        (r"\begin{}5\end{}", 0),
        (r"\begin{a}\end{a}", 0),
        ("5", 0),
        ("$5", 0),
        ("so $5$", 0),
        ("$5$.", 0),
        ("$", 0),
        ("$$", 0),
        (r"\boxed{}", 0),
        (r"\(5\]", 0),
    ],
)
def test_latex_is_recognised_by_its_two_ends(answer, expected):
    assert score("latex_only", answered(answer)) == expected
    assert score("latex_only", answer) == 0.0
