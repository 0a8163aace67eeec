"""Parsing of a judge's reply: structured first, tolerant text second."""

import json
import math
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfgrpo.rewarders.judge.reading import read_preference, read_score


def test_a_literal_with_quotes_that_do_not_end_is_refused_in_linear_time():
    began = time.process_time()
    for text in ("{'" + "\\'" * 200_000, '{"a' + "'" * 200_001, "{'a': [" + "{'b': 1, " * 100_000):
        with pytest.raises(ValueError, match="cannot be read"):
            read_score(text)
    assert time.process_time() - began < 3.0


@given(st.floats(0, 1), st.text(max_size=60))
@example(0.0, '\\"')
def test_a_python_literal_says_what_the_same_json_says(score, reason):
    said = {"reason": reason, "score": score}
    try:
        expected = read_score(json.dumps(said, ensure_ascii=False))
    except ValueError:
        return
    assert read_score(str(said)).value == expected.value


def test_the_reason_is_kept_where_there_is_one():
    assert read_score('{"reason": "neat", "score": 1}').reason == "neat"
    assert read_score('{"reason": 3, "score": 1}').reason == ""
    assert read_score("score: 1").reason == ""


def test_a_reply_without_an_answer_is_refused_by_the_name_of_what_was_asked():
    for read, reason in ((read_score, "no score in the reply"), (read_preference, "no preference in the reply")):
        with pytest.raises(ValueError, match=f"^{reason}$"):
            read("I cannot say.")


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_and_a_score_is_always_in_range(text):
    try:
        read = read_score(text)
    except ValueError:
        return
    assert math.isfinite(read.value)
    assert 0.0 <= read.value <= 1.0
