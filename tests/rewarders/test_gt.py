"""The ground-truth rewarder: exact, normalised and numeric comparison."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rewards.graders import verdict
from tests.support.rewards.scoring import built
from tfgrpo.rewarders.scorer import Abstained
from tfgrpo.stores.errors import PipelineError

NUMERIC_RIGHT = [
    ("Answer: 1,080", "1080"),
    ("\u221242", "-42"),
    ("\u201342 degrees", "-42"),
    ("+7", "7"),
    ("Answer: - 42", "-42"),
    ("-$42", "-42"),
    ("$-42", "-42"),
    ("costs $1,080.50.", "1080.5"),
    ("1\u00a0080", "1080"),
    ("1\u202f080\u202f000", "1080000"),
    ("1 080", "1080"),
    ("1'080", "1080"),
    ("1.080.000", "1080000"),
    (r"1{,}080", "1080"),
    (r"1\,080", "1080"),
    ("42.", "42"),
    ("is...42", "42"),
    (".5", "0.5"),
    ("0.50", "1/2"),
    ("1.2e3", "1200"),
    (r"$3 \times 10^{4}$", "30000"),
    ("2^10", "1024"),
    ("3 1/2", "3.5"),
    ("3\u00bd", "3.5"),
    ("-\u00bd", "-0.5"),
    (r"so \boxed{\frac{1}{2}}", "0.5"),
    (r"\boxed{-\dfrac{22}{7}}", "-22/7"),
    (r"\boxed{3\frac12}", "3.5"),
    (r"\boxed{42\text{ km}}", "42"),
    (r"\boxed{90^\circ}", "90"),
    (r"first \boxed{1}, then \boxed{2} in 3 steps", "2"),
    (r"unclosed \boxed{42", "42"),
    ("50%", "0.5"),
    (r"50\%", "50"),
    ("50 percent", "50%"),
    ("0.5", "50%"),
    ("\u0664\u0662", "42"),
    ("5 m^2", "5"),
    ("5 m\u00b2", "5"),
    ("x_{1} = 7", "7"),
    ("x^{-2} costs 7", "7"),
    ("#### 42", "42"),
    ("7 steps, so 42 km/h", "42"),
    ("Answer: 42 km in 3 hours", "42"),
    ("**Answer:** 42\nChecked 3 times.", "42"),
    ("**Answer**: 42", "42"),
    ("### Final answer: 42", "42"),
    ("The answer: 42", "42"),
    ("Answer\uff1a42", "42"),
    ("Answer: 41\nNo.\nAnswer: 42", "42"),
    ("Answer:\n\n$$\n42\n$$\nin 3 steps", "42"),
    (r"Answer: $\boxed{42}$ by 3 ways", "42"),
    ("Answer: 3 + 4 = 7 apples.", "7"),
    ("Answer: 36 = 12*3", "36"),
    ("Answer: *42*", "42"),
    ("Answer: not 3/0 but 42", "42"),
]
NUMERIC_WRONG = [
    ("Answer: 41", "42"),
    ("", "42"),
    ("42", "-42"),
    ("Answer: unknown", "42"),
    ("It is 42.\nAnswer: unknown", "42"),
    ("v1.2", "2"),
    ("H2O", "2"),
    ("2^10", "2"),
    ("2^10", "10"),
    ("Answer: 3 + 4", "3"),
    ("Answer: x + 4", "4"),
    ("Answer: 40-42", "40"),
    ("3/0", "3"),
    ("2 1/0", "2"),
    ("0^-1", "0"),
    ("9" * 500, "9"),
    ("1e999", "1"),
    ("9^9999", "9"),
    ("5%", "500"),
]


def judge(output: str, answer: str, **options):
    return verdict("gt", output, {"prompt": "p", "answer": answer}, **options)


def score(output: str, answer: str, **options) -> float:
    return judge(output, answer, **options).score


@pytest.mark.parametrize(("output", "answer"), NUMERIC_RIGHT)
def test_numbers_are_compared_by_value_however_they_are_written(output, answer):
    assert score(output, answer, match="numeric") == 1.0


@pytest.mark.parametrize(("output", "answer"), NUMERIC_WRONG)
def test_a_wrong_or_missing_number_scores_zero(output, answer):
    assert score(output, answer, match="numeric") == 0.0


@pytest.mark.parametrize("match", ["auto", "exact", "normalized", "numeric", "text", "choice"])
def test_without_a_reference_answer_it_abstains(match):
    assert isinstance(judge("42", "  ", match=match), Abstained)


def test_the_text_below_a_heading_is_the_answer():
    assert score("So:\n\n### Final Answer\n\nParis", "Paris") == 1.0
    assert score("**Answer**", "**Answer**") == 1.0


def test_a_reference_without_a_number_is_no_reason_for_a_zero():
    verdict = judge("42", "Paris", match="numeric")
    assert isinstance(verdict, Abstained)
    assert "is no single number" in verdict.reason


def test_tolerance_is_an_absolute_difference_and_inclusive():
    assert score("0.3333", "1/3", match="numeric") == 0.0
    assert score("0.3333", "1/3", match="numeric", tolerance=1e-4) == 1.0
    assert score("0.4", "0.3", match="numeric", tolerance=0.1) == 1.0
    assert score("41%", "40%", match="numeric", tolerance=0.01) == 1.0
    assert score("42%", "40%", match="numeric", tolerance=0.01) == 0.0


@pytest.mark.parametrize(
    ("output", "answer", "exact", "normalized"),
    [
        ("Paris", "Paris", 1, 1),
        (" Paris \n", "Paris", 1, 1),
        ("paris.", "Paris", 0, 1),
        ("I thought.\nAnswer: Paris", "Paris", 1, 1),
        ("Answer: **New   York**", "new york", 0, 1),
        (r"\boxed{B}", "(b)", 0, 1),
        ("\ufb01ve", "five", 0, 1),
        ("STRASSE", "stra\u00dfe", 0, 1),
        ("London", "Paris", 0, 0),
        ("Paris or London", "Paris", 0, 0),
        ("", "Paris", 0, 0),
        ("!", "?", 0, 0),
        ("?", "?", 1, 1),
    ],
)
def test_text_is_compared_exactly_or_by_its_normal_form(output, answer, exact, normalized):
    assert score(output, answer, match="exact") == exact
    assert score(output, answer, match="normalized") == normalized


def test_evidence_is_one_line_that_names_both_values():
    assert judge("Answer: 1,081", "1080", match="numeric").evidence == (
        "numeric: answered '1,081' (1081) ≠ reference '1080'"
    )
    assert judge("no\nidea", "1/3", match="numeric").evidence == (
        "numeric: answered 'idea' (no number) ≠ reference '1/3'"
    )
    long = judge("x" * 10_000, "Paris", match="normalized").evidence
    assert len(long) < 250
    assert "'Paris'" in long


def test_a_runaway_output_is_read_from_its_end():
    assert score("9 " * 1_000_000 + "\nAnswer: 42", "42", match="numeric") == 1.0


@pytest.mark.parametrize(
    "options",
    [
        {"match": "fuzzy"},
        {"match": "numeric", "tolerance": -1},
        {"match": "numeric", "tolerance": float("nan")},
        {"match": "numeric", "tolerance": True},
        {"match": "numeric", "tolerance": "0.1"},
        {"match": "exact", "tolerance": 0.1},
    ],
)
def test_unusable_options_are_refused(options):
    with pytest.raises(PipelineError, match=f"{[*options][-1]}: got .*; accepted"):
        built("gt", **options)


integers = st.integers(-(10**12), 10**12)
decimals = st.decimals(-(10**9), 10**9, places=4)


@given(integers, st.sampled_from([",", "_", "\u00a0", "\u202f", "'", " "]), st.sampled_from(["-", "\u2212", "\uff0d"]))
def test_separators_and_signs_never_change_a_value(value, separator, minus):
    written = f"{value:,}".replace(",", separator).replace("-", minus)
    assert score(f"So it is {written}.", str(value), match="numeric") == 1.0
    assert score(f"Answer: {written} apples", str(value), match="numeric") == 1.0
    assert score(f"Answer: {written}", str(value + 1), match="numeric") == 0.0


@given(decimals, st.integers(0, 6))
def test_trailing_zeros_never_change_a_value(value, zeros):
    written = f"{value:.4f}" + "0" * zeros
    assert score(f"\\boxed{{{written}}}", str(value), match="numeric") == 1.0
    assert score(written, str(value + Decimal("0.0001")), match="numeric") == 0.0


@given(st.integers(-999, 999), st.integers(1, 999))
def test_fractions_equal_their_reduced_form(top, bottom):
    reduced = Fraction(top, bottom)
    assert score(f"{top}/{bottom}", str(reduced), match="numeric") == 1.0
    sign = "-" if top < 0 else ""
    assert score(f"{sign}\\frac{{{abs(top)}}}{{{bottom}}}", str(reduced), match="numeric") == 1.0


@given(decimals)
def test_a_percentage_is_a_hundredth(value):
    assert score(f"{value:.4f}%", str(Fraction(value) / 100), match="numeric") == 1.0


@given(st.text(max_size=200), st.text(max_size=40), st.sampled_from(["exact", "normalized", "numeric"]))
def test_any_text_is_judged_the_same_twice_and_never_raises(output, answer, match):
    first = judge(output, answer, match=match)
    assert first == judge(output, answer, match=match)
    assert isinstance(first, Abstained) or ("\n" not in first.evidence and first.score in (0.0, 1.0))


@given(st.text(alphabet="0123456789+-*/^.,%= \\{}$eE()x\u2212\u00bd\n", max_size=60))
def test_any_mixture_of_signs_and_digits_agrees_with_itself(text):
    verdict = judge(text, text, match="numeric")
    assert isinstance(verdict, Abstained) or verdict.score == 1.0


@pytest.mark.parametrize("match", ["exact", "normalized"])
@pytest.mark.parametrize("reference", ["42", "Six times seven.\nAnswer: 42", r"so \boxed{42}"])
def test_a_reference_is_read_by_the_rule_that_reads_an_answer(match, reference):
    outputs = ["42", "Answer: 42", r"It is \boxed{42}", "Answer: 41"]
    assert [score(output, reference, match=match) for output in outputs] == [1.0, 1.0, 1.0, 0.0]
