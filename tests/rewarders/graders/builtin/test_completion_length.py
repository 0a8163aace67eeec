"""The cap is still allowed; above it, and without a count, what is set for that."""

from __future__ import annotations

import pytest

from tests.support.rewards.graders import score
from tfgrpo.stores.errors import PipelineError


@pytest.mark.parametrize(
    ("tokens", "options", "expected"),
    [
        (5, {}, 1.0),
        (6, {}, 0.0),
        (0, {}, 1.0),
        (10**30, {"min_reward": 0.2}, 0.2),
        (None, {}, 0.0),
        (None, {"min_reward": 0.2}, 0.2),
        (None, {"treat_missing_as_fail": False}, 1.0),
        (6, {"treat_missing_as_fail": False}, 0.0),
        (6, {"min_reward": 1}, 1.0),
    ],
)
def test_tokens_are_compared_with_the_cap(tokens, options, expected):
    assert score("completion_length_cap", "any text", tokens=tokens, max_completion_tokens=5, **options) == expected


def test_a_cap_may_be_a_fraction():
    assert score("completion_length_cap", "", tokens=2, max_completion_tokens=2.5) == 1.0
    assert score("completion_length_cap", "", tokens=3, max_completion_tokens=2.5) == 0.0


@pytest.mark.parametrize("cap", [0, -1, float("nan"), float("inf"), True, "5", None])
def test_a_cap_without_a_meaning_is_refused_with_everything_else_that_is_wrong(cap):
    with pytest.raises(PipelineError) as caught:
        score("completion_length_cap", "", max_completion_tokens=cap, treat_missing_as_fail=1, min_reward=1.5, cap=5)
    assert [(each.source.rpartition(".")[2], each.accepted) for each in caught.value.problems] == [
        ("cap", "only max_completion_tokens, treat_missing_as_fail, min_reward"),
        ("max_completion_tokens", "a finite number greater than 0"),
        ("treat_missing_as_fail", "true or false"),
        ("min_reward", "a finite number of at least 0 and at most 1"),
    ]
