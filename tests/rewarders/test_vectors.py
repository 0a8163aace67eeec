"""Known scores: those of the existing system, to 1e-9, and ours of what people and models write."""

from collections import Counter
from fractions import Fraction

import pytest

from tests.support.rewards.scoring import verdict
from tests.support.tracing import untraced
from tests.support.vectors import read_vectors
from tfgrpo.rewarders.judge.reading import read_preference, read_score, read_verdict
from tfgrpo.rewarders.scorer import Abstained, parse_completion
from tfgrpo.rewarders.text.numbers import answered_number, reference_number
from tfgrpo.rewarders.text.options import options_of
from tfgrpo.stores.errors import RewardError

EXISTING = [*read_vectors("graders"), *read_vectors("graders_extra")]
OURS = [row for name in ("answers", "formats", "instructions", "trajectories") for row in read_vectors(name)]


def apart(name):
    """The library of formulas takes two seconds to load: one worker does."""
    return (
        pytest.param(name, marks=pytest.mark.xdist_group("math-verify"))
        if name in ("math-verify", "gt with formulas")
        else name
    )


@pytest.mark.parametrize("name", [apart(name) for name in sorted({row["grader"] for row in EXISTING})])
def test_every_known_score_is_met(name):
    for row in (row for row in EXISTING if row["grader"] == name):
        tokens, options = row.get("completion_tokens"), row["init_kwargs"] or {}
        found = verdict(name, row["completion"], row["record"], tokens=tokens, **options)
        assert found.score == pytest.approx(row["expected_score"], abs=1e-9), row


@pytest.mark.parametrize("name", [apart(name) for name in sorted({row["scorer"] for row in OURS})])
def test_what_people_write_is_read_as_a_careful_person_reads_it(name):
    rows = [row for row in OURS if row["scorer"] == name]
    every = 6 if len(rows) > 1000 else 1  # thousands of rows would take two thirds of their time for the tracer
    check(name, rows[::every])
    with untraced():
        check(name, [row for number, row in enumerate(rows) if number % every])


def check(name, rows):
    for row in rows:
        known = {"tokens": row.get("tokens"), "attempt": row.get("attempt", {})}
        found = verdict(name, row["output"], row["record"], **known, **row.get("options", {}))
        score = None if isinstance(found, Abstained) else found.score
        assert score == (None if row["score"] is None else pytest.approx(row["score"])), (row, found)


def test_every_known_completion_is_cut_the_same():
    for row in read_vectors("completion_parse"):
        assert parse_completion(row["completion"]) == (row["reasoning"], row["answer"]), row


def test_numbers_are_read_exactly_or_not_at_all():
    for row in read_vectors("numbers"):
        try:
            by_reference = "reference" in row
            read = reference_number(row["reference"], row.get("decimal", ".")) if by_reference else None
            read = read if by_reference else answered_number(row["output"])
            value = None if read is None else read.value
        except RewardError:
            value = "several"
        assert value == (Fraction(row["value"]) if row["value"] not in (None, "several") else row["value"]), row


def test_options_are_read_in_the_forms_that_people_write():
    for row in read_vectors("options"):
        assert options_of(row["prompt"], row["metadata"]) == row["options"], row


READERS = {
    "score": lambda row: read_score(row["text"]).value,
    "preference": lambda row: read_preference(row["text"]).value,
    "verdict": lambda row: read_verdict(row["text"]).value,
}


@pytest.mark.parametrize("asked", READERS)
def test_replies_of_judges_are_read_or_refused(asked):
    for row in (row for row in read_vectors("judgements") if row["asked"] == asked):
        try:
            found = READERS[asked](row)
        except ValueError:
            found = None
        assert found == (pytest.approx(row["read"]) if isinstance(row["read"], float) else row["read"]), row


def test_the_samples_are_all_there():
    assert Counter(row["grader"] for row in EXISTING)["math-verify"] == 26
    assert len(EXISTING) == 389
    assert len(OURS) > 2000
