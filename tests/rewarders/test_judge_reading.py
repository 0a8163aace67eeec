"""Reading a judge's reply: structured first, tolerant text second, nothing invented."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewarders.judge_reading import read_preference, read_score

NUMBERS = {
    '{"reason": "fine", "score": 0.7}': 0.7,
    '```json\n{"score": 0.7}\n```': 0.7,
    'Here it is:\n{"score": 0.7}\nThank you.': 0.7,
    '<think>score: 0.1</think>\n{"score": 0.7}': 0.7,
    '{"score": "70%"}': 0.7,
    '{"score": "7/10"}': 0.7,
    "SCORE: 0.7": 0.7,
    "**Score:** 0.7": 0.7,
    "- score = 7/10": 0.7,
    "Score: 7 out of 10.": 0.7,
    "The score is **7** of 10": 0.7,
    "score: 70 percent": 0.7,
    "**Score:** **7**/10": 0.7,
    "Score: __70__ %": 0.7,
    "Score: 0.7 of course": 0.7,
    "My final SCORE is 70 %": 0.7,
    "I give it a score of 0,7.": 0.7,
    "Score (0 to 1): **0.7**": 0.7,
    "score: .7": 0.7,
    "SCORE: 0.5/1.0": 0.5,
    "SCORE: 0.1\nNo, on reflection\nSCORE: 0.7": 0.7,
    "SCORE: 0.7\nSCORE: not sure": 0.7,
    "SCORE: 1e-1": 0.1,
}
NO_NUMBER = [
    "",
    "   ",
    "0.7",
    "good",
    "SCORE:",
    "SCORE: NaN",
    "SCORE: 1e400",
    "SCORE: 0x1p-1",
    "SCORE: 0.5f",
    "SCORE: 1/0",
    "SCORE: 1 out of 0",
    "SCORE: 1 out of 2/3",
    "SCORE: 1/2/3",
    "underscore: 0.5",
    "scores: 0.5",
    '{"score": NaN}',
    '{"score": null}',
    '{"score": true}',
    '{"score": "great"}',
    '{"score": [0.7]}',
    '{"score": 1' + 400 * "0" + "}",
    '{"value": 0.7}',
    "[0.7]",
    '{"reason": "cut off", "scor',
    20_000 * "[",
]


@pytest.mark.parametrize(("text", "score"), NUMBERS.items())
def test_a_score_is_found_however_it_is_written(text, score):
    read = read_score(text)
    assert read.score == pytest.approx(score)
    assert not read.clamped


@pytest.mark.parametrize("text", NO_NUMBER)
def test_what_holds_no_usable_score_is_refused_and_never_guessed(text):
    with pytest.raises(ValueError, match=r"score|empty"):
        read_score(text)


@pytest.mark.parametrize(
    ("text", "scale", "score", "clamped"),
    [
        ("SCORE: 8", "unit", 1.0, True),
        ("SCORE: -0.5", "unit", 0.0, True),
        ("SCORE: \u22120.5", "signed", 0.25, False),
        ('{"score": -1}', "signed", 0.0, False),
        ('{"score": 1}', "signed", 1.0, False),
        ('{"score": -3}', "signed", 0.0, True),
        ("SCORE: 5.", "signed", 1.0, True),
    ],
)
def test_scores_are_brought_to_one_range_and_flagged_when_they_left_it(text, scale, score, clamped):
    read = read_score(text, scale)
    assert (read.score, read.clamped) == (score, clamped)


@pytest.mark.parametrize(
    "reply",
    [
        '{"reason": "The output says SCORE: 1.0", "score": null}',
        '```\n{"reason": "It claims score: 1", "score": "?"}\n```',
        'So: {"reason": "score = 1.0", "score": NaN}.',
    ],
)
def test_a_score_quoted_in_the_reason_is_no_verdict(reply):
    with pytest.raises(ValueError, match="no score"):
        read_score(reply)


def test_the_reason_is_kept_where_there_is_one():
    assert read_score('{"reason": "neat", "score": 1}').reason == "neat"
    assert read_score('{"reason": 3, "score": 1}').reason == ""
    assert read_score("score: 1").reason == ""


@given(st.floats(0, 1), st.sampled_from(["{}", "SCORE: {}", "x\n* **Score**: {}\nend", "score is {}!"]))
def test_a_number_in_range_comes_back_as_it_was(number, form):
    text = json.dumps({"score": number}) if form == "{}" else form.format(number)
    assert read_score(text).score == number


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_and_a_score_is_always_in_range(text):
    try:
        read = read_score(text)
    except ValueError:
        return
    assert math.isfinite(read.score)
    assert 0.0 <= read.score <= 1.0


@pytest.mark.parametrize(
    ("text", "better"),
    [
        ('{"reason": "", "better": "first"}', "first"),
        ('{"better": "SECOND"}', "second"),
        ('{"better": 2}', "second"),
        ("Better: **A**", "first"),
        ("The winner is the second", "second"),
        ("verdict: tie", "tie"),
        ("Better: first\nBetter: neither", "tie"),
    ],
)
def test_a_preference_is_found(text, better):
    assert read_preference(text).better == better


@pytest.mark.parametrize("text", ["", "A", "first", '{"better": "third"}', '{"better": null, "reason": "better: A"}'])
def test_what_holds_no_preference_is_refused(text):
    with pytest.raises(ValueError, match=r"preference|empty"):
        read_preference(text)
