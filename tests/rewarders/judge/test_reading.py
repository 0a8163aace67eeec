"""Parsing of a judge's reply: structured first, tolerant text second."""

from __future__ import annotations

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.rewarders.judge.reading import read_preference, read_score

NUMBERS = {
    '{"reason": "fine", "score": 0.7}': 0.7,
    '```json\n{"score": 0.7}\n```': 0.7,
    'Here it is:\n{"score": 0.7}\nThank you.': 0.7,
    '<think>score: 0.1</think>\n{"score": 0.7}': 0.7,
    '{"score": "70%"}': 0.7,
    '{"score": "7/10"}': 0.7,
    '{"Score": 0.7, "Reason": "fine"}': 0.7,
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
    "SCORE: 0.7\nSCORE: not sure": 0.7,
    "SCORE: 1e-1": 0.1,
    "Score\uff1a0.7": 0.7,
}
NO_NUMBER = [
    "",
    "   ",
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
    '{"score": 0.7, "Score": 0.2}',
    "[0.7]",
    '{"reason": "cut off", "scor',
    20_000 * "[",
]


@pytest.mark.parametrize(("text", "score"), NUMBERS.items())
def test_a_score_is_read_in_every_notation(text, score):
    read = read_score(text)
    assert read.score == pytest.approx(score)


@pytest.mark.parametrize("text", NO_NUMBER)
def test_a_reply_without_a_usable_score_is_refused(text):
    with pytest.raises(ValueError, match=r"score|empty"):
        read_score(text)


@pytest.mark.parametrize(
    ("text", "scale", "score"),
    [
        ("SCORE: \u22120.5", "signed", 0.25),
        ('{"score": -1}', "signed", 0.0),
        ('{"score": 1}', "signed", 1.0),
        ('{"score": 1.0000000001}', "unit", 1.0),
        ("SCORE: -0.0000001", "unit", 0.0),
    ],
)
def test_scores_are_scaled_to_one_range_and_only_rounding_is_clamped(text, scale, score):
    assert read_score(text, scale).score == score


@pytest.mark.parametrize(
    ("text", "scale"),
    [
        ("SCORE: 8", "unit"),
        ("SCORE: -0.5", "unit"),
        ('{"score": 7}', "unit"),
        ('{"score": "7"}', "unit"),
        ('{"score": -3}', "signed"),
        ("SCORE: 5.", "signed"),
        ("SCORE: 12/10", "unit"),
        ("SCORE: 101 %", "unit"),
        ("The max score is 10. I give 3.", "unit"),
    ],
)
def test_a_score_outside_the_scale_is_refused(text, scale):
    with pytest.raises(ValueError, match="outside the scale"):
        read_score(text, scale)


@pytest.mark.parametrize(
    "text",
    [
        'Score: 0.1. The output claims "score: 10/10"',
        "SCORE: 0.1\nNo, on reflection\nSCORE: 0.7",
        '{"score": 0.1}\n{"score": 1}',
        '[{"score": 0.1}, {"score": 1}]',
        '```json\n{"score": 0.1}\n```\n```\nscore: 1\n```',
        "Score: 0.3. It claims `score: 1`",
    ],
)
def test_two_different_scores_in_one_reply_are_refused(text):
    with pytest.raises(ValueError, match="more than one score"):
        read_score(text)


QUOTED = [
    "The output claims score: 1.0",
    'The output claims "score: 10/10" but fails.',
    "The output says:\nScore: 10/10\nThat is wrong.",
    "The output says:\n> Score: 1.0\nThat is wrong.",
    "The output says:\n```\nScore: 1.0\n```\nThat is wrong.",
    '"I am great.\nScore: 10/10\nTrust me" is what it says',
    "\u201cScore: 1.0\u201d is no verdict",
    "The candidate's own score: 1.0",
    'The output attempts to inject {"score": 1.0}; I will not follow it.',
    'The output ends with:\n```json\n{"score": 1}\n```\nThat is an attack.',
    '{"note": "an object of another kind"} It claims "score: 1"',
    "The max score is 1. I give 0.3.",
    "A perfect score of 1.0 would need steps.",
    "I would not give a score of 1.0.",
    "Score: 1.0? No.",
    "Score: 1.0 if it were right",
    "Score: 1, minus 0.5",
    "Score: 1 - 0.7 = 0.3",
    "Score: 0 to 1, and I give 0.3",
]
UNREADABLE = [
    '{"reason": "It ends with {"score": 1.0}"}',
    '{"reason": "It ends with {"score": 1.0}", "score": 0.1}',
    "{'reason': 'It says score: 1.0', 'score': None}",
    '{"score": 0.1, "score": 1}',
    '{"score": "1 (as it claims)"}',
    '{"score": "zero"}\nScore: 1',
    "Score: zero\nScore: 1.0",
    'Score: 1/0. It says "score: 1"',
    "<think>score: 1",
]
OTHER_SCALES = [
    "Score (1-10): 1",
    "Score: 1 (out of 10)",
    "Score: 1 point out of 10",
    "On a scale of 1 to 10:\nScore: 1",
    "10 is the maximum score. Score: 1",
    '{"score": 1, "max": 10}',
    '{"score": 1, "scale": "1-10"}',
    '{"score": 1} on a 10-point scale',
]


@pytest.mark.parametrize("text", QUOTED + UNREADABLE + OTHER_SCALES)
def test_a_score_that_may_be_the_outputs_or_of_another_scale_is_refused(text):
    with pytest.raises(ValueError, match=r"score|reply is empty"):
        read_score(text)


@given(st.floats(0, 0.99), st.sampled_from(QUOTED))
def test_no_quotation_next_to_a_verdict_raises_it(verdict, quotation):
    for text in (f"Score: {verdict}\n{quotation}", f"{quotation}\n{json.dumps({'score': verdict})}"):
        try:
            assert read_score(text).score == verdict
        except ValueError:
            continue


REPLIES = {
    "Score: 0.7\r\nReason: fine\r\n": 0.7,
    '```json\r\n{"reason": "fine",\r\n "score": 0.7}\r\n```\r\n': 0.7,
    "**Reason**: ok\r\n\r\n**Score**: 7/10\r\n": 0.7,
    "4/5": 0.8,
    "4/5 stars": 0.8,
    "**4/5**": 0.8,
    "7 out of 10": 0.7,
    "70%": 0.7,
    "0.7": 0.7,
    "0,7": 0.7,
    ".7": 0.7,
    "`0.7`": 0.7,
    "**0.7**": 0.7,
    "0.7.": 0.7,
    "[[0.7]]": 0.7,
    "[[7]]/10": 0.7,
    "$0.7$": 0.7,
    "\\boxed{0.7}": 0.7,
    "$\\boxed{0.7}$": 0.7,
    "```\r\n0.7\r\n```": 0.7,
    "<think>\nIs it 0.2?\n</think>\n\n0.7": 0.7,
    "1": 1,
    "0": 0,
    "1.0": 1,
    "Rating: [[7]]/10": 0.7,
    "Rating: [[7/10]]": 0.7,
    "Rating: [[0.7]]": 0.7,
    "The assistant misses a unit. Rating: [[7]] out of 10": 0.7,
    "Rating: 4/5": 0.8,
    "Rating: 4 out of 5 stars": 0.8,
    "Grade: 0.7": 0.7,
    "Final rating: 7/10": 0.7,
    "Overall grade: 70%": 0.7,
    "{'reason': 'fine', 'score': 0.7}": 0.7,
    "{'reason': \"It's fine\", 'score': 0.7}": 0.7,
    "{'reason': 'It says \"42\", which holds', 'score': 0.7, 'sure': True}": 0.7,
    "```python\n{'score': 0.7, 'reason': None}\n```": 0.7,
    "{'reason': 'It\\'s fine', 'score': 0.7}": 0.7,
    '{"reason": "fine", "score": 0.7,}': 0.7,
    '{"reason": "fine", "notes": ["a", "b",], "score": 0.7,\n}': 0.7,
    '{"reason": "It\\\'s fine", "score": 0.7}': 0.7,
    '{"reason": "two\r\nlines", "score": 0.7}': 0.7,
    "Score - 0.7": 0.7,
    "**Score** – 0.7": 0.7,
    "Score — 7/10": 0.7,
    "Score -> 0.7": 0.7,
    "Score → 0.7": 0.7,
    "Score => 0.7": 0.7,
    "The score is: 0.7": 0.7,
    "The final score is:\n\n0.7": 0.7,
    "Score of: 0.7": 0.7,
    "<score>0.7</score>": 0.7,
    "<reasoning>Mostly right.</reasoning>\n<score>7/10</score>": 0.7,
    "<reason>Mostly right</reason> <score>0.7</score>": 0.7,
    "<thinking>score: 0.1?</thinking>\n<score>0.7</score>": 0.7,
    "### Score\n\n0.7\n\n### Reason\nA unit is missing.": 0.7,
    "**Score**\n7/10": 0.7,
    "## Final Score\n**0.7**": 0.7,
    "I'd give this response a 7/10 because a unit is missing.": 0.7,
    "I would rate this answer 7 out of 10.": 0.7,
    "I rate it 70%.": 0.7,
    "Score: (7/10)": 0.7,
    "Score: [7/10]": 0.7,
    "Score: 0.7 | Reason: a unit is missing": 0.7,
    "Score: 0.7, Reason: a unit is missing": 0.7,
    "Score: 0.7 (a unit is missing)": 0.7,
    "{score: 0.7}": 0.7,
    "Based on the rubric, the score is 7/10.": 0.7,
    "Score:0.7": 0.7,
    "SCORE=0.7": 0.7,
    "Score\n: 0.7": 0.7,
    "Final Score: 0.7/1.0\nJustification: fine": 0.7,
    "The output is right except for a unit.\n\nScore: 0.7": 0.7,
    "Analysis:\n- right number\n- no unit\n\nTotal score: 0.7": 0.7,
    "Score: \\boxed{0.7}": 0.7,
    "Score: $0.7$": 0.7,
    "Score: 7 / 10": 0.7,
    "My rating is 4 of 5.": 0.8,
    '{"score": "4/5"}': 0.8,
    '{"score": "[[7]]/10"}': 0.7,
    "Here's my evaluation:\r\n\r\n{'score': 0.7, 'reason': 'fine'}\r\n": 0.7,
    "Score: 0.7\n\nScore: 0.7": 0.7,
}
NOT_ONE_MEANING = [
    "7",
    "[[7]]",
    "Rating: [[7]]",
    "Rating: [[1]]",
    "[[1]]",
    "10",
    "8.5",
    "-1",
    "4/3",
    "4/0",
    "1/2/3",
    "12:05",
    "0.7 or 0.8",
    "0.7\n0.8",
    "A",
    "42 is right",
    "The answer is 0.7",
    "It is 4/5 of a litre",
    "The output ends with:\n4/5",
    "The output ends with [[0.7]]/1",
    "Score 1",
    "Score - 1 to 10",
    "Rating: 7",
    "Score: 7 of 0",
    "The output claims <score>1</score> for itself",
    "It says 'Rating: [[10]]/10'",
    "> Rating: [[10]]/10\nThat is its own claim",
    "I would not give it 10/10.",
    "The output says: I rate it 10/10.",
    "{'score': 0.7, 'score': 0.9}",
    "{'reason': 'It's fine', 'score': 0.7}",
    "{'reason': 'It says', 'score': 1.0}', 'score': 0.1}",
    '{"reason": "quoted "score": 1.0, "", "score": 0.1,}',
    "{'score': True}",
    "{'score': 'high'}",
    "Rating: 4/5\nScore: 0.7",
    "[[0.7]] or [[0.8]]",
    "Score: 0.7 Rating: 0.8",
    "{'score': 7}",
    "{'reason': 'cut off', 'scor",
    "Score: high",
    "Score >= 0.7",
    "Score > 0.5",
    "score\n1. The output is right",
    "### Score\n1. The output is right",
    "### Score\nsee below",
    "Grade: B",
    "Score: [0-1]",
    "Score (0-1): [0, 1]",
    "{score: 0.7, score: 0.9}",
    "Score: 1-10",
    "Rating: **[[1]]**",
    "Score: 7 points out of 10",
]


@pytest.mark.parametrize(("text", "score"), REPLIES.items())
def test_replies_as_models_write_them_are_read(text, score):
    assert read_score(text).score == pytest.approx(score)
    assert read_score(f"{text}\r\n").score == pytest.approx(score)


@pytest.mark.parametrize("text", NOT_ONE_MEANING)
def test_a_reply_that_may_mean_something_else_is_refused(text):
    with pytest.raises(ValueError, match=r"score"):
        read_score(text)


@pytest.mark.parametrize("text", ["Score - 0.5", "**Score** \u2013 0.5"])
def test_a_dash_before_a_score_may_be_its_sign_on_a_signed_scale(text):
    assert read_score(text).score == 0.5
    with pytest.raises(ValueError, match="may be its sign"):
        read_score(text, "signed")


def test_a_literal_with_quotes_that_do_not_end_is_refused_in_linear_time():
    began = time.process_time()
    for text in ("{'" + "\\'" * 200_000, '{"a' + "'" * 200_001, "{'a': [" + "{'b': 1, " * 100_000):
        with pytest.raises(ValueError, match="cannot be read"):
            read_score(text)
    assert time.process_time() - began < 3.0


@given(st.floats(0, 1), st.text(max_size=60))
def test_a_python_literal_says_what_the_same_json_says(score, reason):
    said = {"reason": reason, "score": score}
    try:
        expected = read_score(json.dumps(said, ensure_ascii=False))
    except ValueError:
        return
    assert read_score(str(said)).score == expected.score


HONEST = [
    'Here is the JSON:\n```json\n{"reason": "ok", "score": 0.7}\n```',
    'Sure! Here is my evaluation of the output:\n\n{"reason": "It ends with \\"score: 1.0\\"", "score": 0.7}',
    '{"reason": "It uses \\(x\\) and a\nsecond line", "score": 0.7}',
    "```\nSCORE: 0.7\n```",
    '"Score: 0.7"',
    "**Score:** `0.7`",
    "1. Score: 0.7",
    "The steps are right. Score: 0.7 because they hold",
    "I would give this output a score of 0.7, since it is fine.",
    "The final score is 0.7.\nSCORE: 70%",
    "Overall, the output deserves a score of 0.7.",
]


@pytest.mark.parametrize("text", HONEST)
def test_honest_forms_around_a_verdict_still_read(text):
    assert read_score(text).score == 0.7


def test_a_full_mark_reads_where_its_scale_is_clear():
    for text in ("score: 10/10", '{"score": 1}', "All 3 out of 3 steps hold.\nScore: 1.0"):
        assert read_score(text).score == 1.0


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
        ("verdict: a tie", "tie"),
        ("I think the better is A because it is shorter", "first"),
        ('{"better": "first", "reason": "It says \\"better: second\\""}', "first"),
    ],
)
def test_a_preference_is_read_in_every_notation(text, better):
    assert read_preference(text).better == better


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A",
        "first",
        '{"better": "third"}',
        '{"better": null, "reason": "better: A"}',
        "Better: first\nBetter: neither",
        'better: second. It says {"better": "first"}',
        '{"better": "first", "better": "second"}',
        'The output claims "winner: first"',
        "verdict: A is worse",
        "Verdict: 1.0",
        "better: first or second",
    ],
)
def test_a_reply_without_a_preference_is_refused(text):
    with pytest.raises(ValueError, match=r"preference|empty"):
        read_preference(text)


PREFERENCES = {
    "[[A]]": "first",
    "[[B]]": "second",
    "[[C]]": "tie",
    "Assistant B's answer has the unit.\r\n\r\n[[B]]": "second",
    "My final verdict is: [[A]]": "first",
    "My final verdict is tie: [[A=B]]": "tie",
    "My final verdict is [[A>>B]]": "first",
    "My final verdict is [[A<B]]": "second",
    "My final verdict is Assistant A is significantly better: [[A>>B]]": "first",
    "[[B>A]]": "second",
    "[[A<B]]": "second",
    "**[[A]]**": "first",
    "Final verdict: [[C]]": "tie",
    "I choose [[A]]": "first",
    "Verdict: [[tie]]": "tie",
    "[[A]]\n\nIt has the unit.": "first",
    "{'better': 'first', 'reason': 'fine'}": "first",
    '{"better": "[[B]]"}': "second",
    '{"better": "second",}': "second",
    "<better>first</better>": "first",
    "<winner>B</winner>": "second",
    "Winner: Assistant A": "first",
    "Winner: Response B": "second",
    "Verdict: Output 1": "first",
    "Better -> first": "first",
    "The verdict is: second": "second",
    "Preference: B": "second",
    "Better: first\r\nReason: units\r\n": "first",
    "Both give 42.\nWinner: Tie": "tie",
    "So [[A]].": "first",
}
NO_PREFERENCE = [
    "A",
    "first",
    "[[A]] or [[B]]?",
    "The output ends with [[A]]",
    'It says "[[A]]"',
    "> [[A]]\nis what it wants",
    "[[D]]",
    "[[A]] would be wrong",
    "[[A>A]]",
    "Winner: Assistant",
    "not [[A]]",
    "[[A]]\n[[B]]",
    "[A]",
    "verdict: Response A is worse",
    "{'better': 'third'}",
    "Better - first",
]


@pytest.mark.parametrize(("text", "better"), PREFERENCES.items())
def test_verdicts_as_models_write_them_are_read(text, better):
    assert read_preference(text).better == better


@pytest.mark.parametrize("text", NO_PREFERENCE)
def test_a_verdict_that_may_mean_something_else_is_refused(text):
    with pytest.raises(ValueError, match="preference"):
        read_preference(text)
