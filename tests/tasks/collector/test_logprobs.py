"""Log-probabilities are read as they came, and what is missing is never a number."""

from __future__ import annotations

import math

import pytest

from tfgrpo.tasks.collector.logprobs import logprobs_of_choices


def chat(*values, **more):
    return {"logprobs": {"content": [{"token": "t", "logprob": value} for value in values]}, **more}


def read_one(choice, completion_tokens=None, **more):
    (read,) = logprobs_of_choices([choice], completion_tokens=completion_tokens, **more)
    return read


def test_the_sum_is_exact_and_the_count_is_kept():
    values = [-0.1, -0.2, -0.3, -1e-17]
    read = read_one(chat(*values), 4, kind="raw")
    assert read.total == math.fsum(values)
    assert (read.tokens, read.count, read.kind, read.complete) == (tuple(values), 4, "raw", True)


@pytest.mark.parametrize(
    "choice", [{}, {"logprobs": None}, {"logprobs": {"content": []}}, {"logprobs": []}, {"logprobs": {"content": None}}]
)
def test_a_choice_without_values_has_none(choice):
    assert read_one(choice) is None


@pytest.mark.parametrize("bad", [None, -9999.0, 0.5, "x", True, math.nan, -math.inf])
def test_a_value_that_is_missing_leaves_it_incomplete(bad):
    read = read_one(chat(-1.0, bad), 2)
    assert (read.tokens, read.total, read.count, read.complete) == (None, None, 2, False)


def test_a_token_that_is_no_object_has_no_value():
    assert read_one({"logprobs": {"content": ["x"]}}).complete is False


def test_fewer_values_than_tokens_leave_it_incomplete():
    hidden = read_one(chat(-1.0, -2.0), completion_tokens=30)
    assert (hidden.total, hidden.complete, hidden.tokens) == (None, False, (-1.0, -2.0))
    assert read_one(chat(-1.0, -2.0), completion_tokens=2).complete


def test_a_refusal_and_the_older_form_are_read_too():
    refusal = {"logprobs": {"content": None, "refusal": [{"logprob": -0.5}]}}
    assert read_one(refusal, 1).total == -0.5
    assert read_one({"logprobs": {"token_logprobs": [-0.5, -0.25]}}, 2).total == -0.75
    assert read_one({"logprobs": {"token_logprobs": [None, -0.25]}}, 2).complete is False


def test_token_ids_are_kept_where_a_server_returns_them():
    assert read_one(chat(-1.0, -2.0, token_ids=[5, 6])).token_ids == (5, 6)
    assert read_one(chat(-1.0, -2.0, token_ids=[5])).token_ids is None
    assert read_one(chat(-1.0, token_ids=["5"])).token_ids is None
    assert read_one({"token_ids": [5, 6]}).token_ids == (5, 6)


def said(text, *tokens, **more):
    content = [{"token": token, "logprob": -0.5} for token in tokens]
    return {"message": {"content": text}, "logprobs": {"content": content}, **more}


WHOLE = said("4 is it.", "4", " is", " it", ".", "<|im_end|>")
SHORT = said("4 is it.", "4", " is")


@pytest.mark.parametrize("used", [None, 8, 10, 12])
@pytest.mark.parametrize("hidden", [False, True])
def test_of_several_choices_one_with_fewer_values_than_tokens_is_never_complete(used, hidden):
    whole, short = logprobs_of_choices([WHOLE, SHORT], completion_tokens=used, hidden=hidden)
    assert (short.complete, short.total, short.count) == (False, None, 2)
    assert whole.complete is not (hidden and used is not None and used > 7)


def test_without_texts_of_tokens_the_counts_of_all_choices_decide():
    ids = [said("4 is it.", "token_id:4", "token_id:7"), {"logprobs": {"token_logprobs": [-0.5, -0.25]}}]
    for used, complete in ((4, True), (5, False), (3, False), (None, False)):
        read = logprobs_of_choices(ids, completion_tokens=used)
        assert [each.complete for each in read] == [complete] * 2


def test_hidden_tokens_that_no_text_shows_leave_every_choice_incomplete():
    read = logprobs_of_choices([WHOLE, WHOLE], completion_tokens=30)
    assert [each.complete for each in read] == [False, False]


def test_texts_are_compared_by_letters_and_digits():
    for tokens in (
        ("\u01204", "\u0120caf", "\u00c3\u00a9"),
        ("\u25814", "\u2581caf\u00e9"),
        ("4", " caf", "\ufffd", "\ufffd"),
    ):
        assert read_one(said(" 4 caf\u00e9", *tokens)).complete


def test_a_count_without_anything_to_confirm_it_is_not_complete():
    assert read_one(chat(-1.0, -2.0)).complete is False
    assert read_one(said("\u56db", "\u56db")).complete is False
    assert read_one(said("\u56db", "\u56db"), 1).complete is True
