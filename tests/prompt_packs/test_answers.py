"""Is an answer given away only where it is, whichever way it is written?"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfgrpo.prompt_packs.safety import Rejection, ScreenedLesson, gives_away, screen_lesson


@pytest.mark.parametrize(
    ("lesson", "answer"),
    [
        ("The total comes to 42 in such cases.", "42"),
        ("The total comes to 1,200 in such cases.", "1200"),
        ("The total comes to 1200.00 in such cases.", "$1,200"),
        ("Expect 3.5 after the division.", "3.50"),
        ("Expect forty after the division.", "40"),
        ("Expect 7 apples after sharing.", "7"),
        ("The result is 7 days.", "7"),
        ("You should get 2 after rounding.", "2"),
        ("The total = 1 when rounded.", "1"),
        ("Losing 15 is right.", "-15"),
        ("Expect 42km in such cases.", "42 km"),
        ("A share of 12.5% is right.", "12.5%"),
        ("One half, 1/2, is left over.", "1/2"),
        ("Think of Paris first.", "paris"),
        ("Think of PARIS, first.", "Paris."),
        ("The new york office counts.", "New York"),
        ("Say yes, the answer is yes.", "yes"),
        ("Choose true there.", "True"),
        ("Pick option B there.", "B"),
        ("The answer is (b) there.", "B"),
        (
            "Prefer the one that a quick brown fox jumps over the lazy dog shows.",
            "A quick brown fox jumps over the lazy dog.",
        ),
        (
            "Write that the quick brown fox jumps over the lazy dog each time.",
            "First the quick brown fox jumps over the lazy dog, and then it sleeps for a long while.",
        ),
        ("\u7b54\u6848\u4e0e\u5317\u4eac\u6709\u5173\u3002", "\u5317\u4eac"),
    ],
)
def test_a_given_away_answer_is_noticed(lesson: str, answer: str) -> None:
    assert gives_away(lesson, [answer])
    verdict = screen_lesson(lesson, answers=["", answer])
    assert isinstance(verdict, Rejection)
    assert verdict.rule == "answer"


@pytest.mark.parametrize(
    ("lesson", "answer"),
    [
        ("A week has 7 days; count each of them.", "7"),
        ("Treat minutes as parts of an hour: divide by 60.", "60"),
        ("Divide minutes by sixty.", "60"),
        ("Divide cents by a hundred.", "100"),
        ("A year has 12 months.", "12"),
        ("Use a 24-hour clock.", "24"),
        ("Take 100 % as the whole.", "100"),
        ("Check at least 2 ways.", "2"),
        ("Add one for the end of the row.", "1"),
        ("Never divide by 0.", "0"),
        ("The 7th item matters most.", "7"),
        ("Round to 42.5 in such cases.", "42"),
        ("Keep item 142 out.", "42"),
        ("Version 1.42 differs.", "42"),
        ("Compare parish registers.", "Paris"),
        ("Check a unit before adding.", "A"),
        ("There is no shortcut; true costs count.", "no"),
        ("There is no shortcut; true costs count.", "true"),
        ("Check the quick brown unit.", "The quick brown fox jumps over the lazy dog."),
        ("Check the unit.", ""),
        ("Check the unit.", "   "),
        ("Check the unit.", "..."),
        ("\u5148\u6253\u6298\u3002", "\u5317\u4eac"),
    ],
)
def test_what_only_looks_like_an_answer_passes(lesson: str, answer: str) -> None:
    assert not gives_away(lesson, [answer])
    assert isinstance(screen_lesson(lesson, answers=[answer]), ScreenedLesson)


def test_any_of_several_answers_counts() -> None:
    assert gives_away("Expect 42 there.", ["17", "", "42"])
    assert not gives_away("Expect 42 there.", [])


@given(st.integers(101, 10**9).filter(lambda n: n not in {180, 360, 365, 366, 1000}), st.booleans())
@settings(max_examples=80, deadline=None)
def test_a_larger_number_is_noticed_however_it_is_grouped(value: int, grouped: bool) -> None:
    written = f"{value:,}" if grouped else str(value)
    assert gives_away(f"Expect {written} there.", [str(value)])
    assert gives_away(f"Expect {value} there.", [f"{value:,}.0"])
    assert not gives_away(f"Expect {value + 1} there.", [str(value)])


@given(st.text(max_size=80), st.text(max_size=30))
@settings(max_examples=150, deadline=None)
def test_any_text_can_be_compared(lesson: str, answer: str) -> None:
    assert gives_away(lesson, [answer]) in {True, False}
