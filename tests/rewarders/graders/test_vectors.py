"""Known scores of the existing system, to 1e-9."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.rewards.graders import score
from tests.support.vectors import read_vectors
from tfgrpo.rewarders.scorer import parse_completion

ROWS = [*read_vectors("graders"), *read_vectors("graders_extra")]


@pytest.mark.parametrize("name", sorted({row["grader"] for row in ROWS}))
def test_every_known_score_is_met(name):
    for row in (row for row in ROWS if row["grader"] == name):
        tokens = row.get("completion_tokens")
        found = score(name, row["completion"], row["record"], tokens=tokens, **(row["init_kwargs"] or {}))
        assert found == pytest.approx(row["expected_score"], abs=1e-9), row


def test_every_known_completion_is_cut_the_same():
    for row in read_vectors("completion_parse"):
        assert parse_completion(row["completion"]) == (row["reasoning"], row["answer"]), row


def test_the_samples_are_all_there():
    assert Counter(row["grader"] for row in ROWS)["math-verify"] == 26
    assert len(ROWS) == 389
