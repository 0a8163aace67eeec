"""Log-probabilities are read as they came, and what is missing is never a number."""

from __future__ import annotations

import math

import pytest

from tasks.collector_logprobs import logprobs_of_choice


def chat(*values, **more):
    return {"logprobs": {"content": [{"token": "t", "logprob": value} for value in values]}, **more}


def test_the_sum_is_exact_and_the_count_is_kept():
    values = [-0.1, -0.2, -0.3, -1e-17]
    read = logprobs_of_choice(chat(*values), kind="raw")
    assert read.total == math.fsum(values)
    assert (read.tokens, read.count, read.kind, read.complete) == (tuple(values), 4, "raw", True)


@pytest.mark.parametrize(
    "choice", [{}, {"logprobs": None}, {"logprobs": {"content": []}}, {"logprobs": []}, {"logprobs": {"content": None}}]
)
def test_a_choice_without_values_has_none(choice):
    assert logprobs_of_choice(choice) is None


@pytest.mark.parametrize("bad", [None, -9999.0, "x", True, math.nan, -math.inf])
def test_a_value_that_is_missing_leaves_it_incomplete(bad):
    read = logprobs_of_choice(chat(-1.0, bad))
    assert (read.tokens, read.total, read.count, read.complete) == (None, None, 2, False)


def test_a_token_that_is_no_object_has_no_value():
    assert logprobs_of_choice({"logprobs": {"content": ["x"]}}).complete is False


def test_fewer_values_than_tokens_leave_it_incomplete():
    hidden = logprobs_of_choice(chat(-1.0, -2.0), completion_tokens=30)
    assert (hidden.total, hidden.complete, hidden.tokens) == (None, False, (-1.0, -2.0))
    assert logprobs_of_choice(chat(-1.0, -2.0), completion_tokens=2).complete


def test_a_refusal_and_the_older_form_are_read_too():
    refusal = {"logprobs": {"content": None, "refusal": [{"logprob": -0.5}]}}
    assert logprobs_of_choice(refusal).total == -0.5
    assert logprobs_of_choice({"logprobs": {"token_logprobs": [-0.5, -0.25]}}).total == -0.75
    assert logprobs_of_choice({"logprobs": {"token_logprobs": [None, -0.25]}}).complete is False


def test_token_ids_are_kept_where_a_server_returns_them():
    assert logprobs_of_choice(chat(-1.0, -2.0, token_ids=[5, 6])).token_ids == (5, 6)
    assert logprobs_of_choice(chat(-1.0, -2.0, token_ids=[5])).token_ids is None
    assert logprobs_of_choice(chat(-1.0, token_ids=["5"])).token_ids is None
    assert logprobs_of_choice({"token_ids": [5, 6]}).token_ids == (5, 6)
