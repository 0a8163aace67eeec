"""Known scores of the existing system, to 1e-9."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from tfgrpo.rewarders.graders.loading import build_grader

from tests.support.vectors import read_vectors
from tfgrpo.rewarders.scorer import GraderInput, parse_completion

ROWS = [*read_vectors("graders"), *read_vectors("graders_extra")]


@pytest.mark.parametrize("name", sorted({row["grader"] for row in ROWS}))
def test_every_known_score_is_met(name):
    built = {}
    for row in (row for row in ROWS if row["grader"] == name):
        options = json.dumps(row["init_kwargs"])
        grader = built.setdefault(options, build_grader(name, row["init_kwargs"]))
        item = GraderInput.of(
            "s:0", row["record"], row["completion"], completion_tokens=row.get("completion_tokens"), completion_index=7
        )
        (result,) = grader.grade_batch([item])
        assert result.reward == pytest.approx(row["expected_score"], abs=1e-9), row
        assert (result.sample_id, result.completion_index) == ("s:0", 7)


def test_every_known_completion_is_cut_the_same():
    for row in read_vectors("completion_parse"):
        assert parse_completion(row["completion"]) == (row["reasoning"], row["answer"]), row


def test_the_samples_are_all_there():
    assert Counter(row["grader"] for row in ROWS)["math-verify"] == 26
    assert len(ROWS) == 389
