"""Sealed items are seen by no night, and opened once for each library."""

from __future__ import annotations

import json

import pytest

from tests.support.runs.running import TASK, lines, manifest, paths, run
from tfgrpo.stores.experiences.decisions import sealed_tests
from tfgrpo.stores.files.layout import TaskPaths

SEALED = {"dataset__sealed": 0.5, "sample_size": 20, "batch_size": 10}


def on_record(out):
    return list(sealed_tests(TaskPaths.of(out, TASK).tests))


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """A night that puts lessons into force, and a test of them."""
    out = tmp_path_factory.mktemp("sealed")
    learned = run(out, run_id="night", **SEALED)
    assert learned.details["decision"]["decision"] == "in force", learned.message
    stopped = run(out, run_id="test", test=True, max_calls=60, **SEALED)
    assert (stopped.status, on_record(out)) == ("stopped", [])
    again = run(out, test=True, **SEALED)
    assert (again.status, "--resume test" in again.message) == ("refused", True)
    assert run(out, resume="test", max_calls=10_000).exit_code == 0
    return out


def test_no_night_attempts_what_the_test_does(tested):
    night, test = ({row["item_id"] for row in lines(paths(tested, name).items)} for name in ("night", "test"))
    assert test
    assert not night & test
    (one,) = on_record(tested)
    assert one.seen == 0
    assert len(test) == one.pairs == manifest(tested, "night")["dataset"]["sealed"]


def test_the_lessons_in_force_are_compared_with_none_and_nothing_is_learned_or_decided(tested):
    (one,) = on_record(tested)
    rows = lines(paths(tested, "test").rollouts)
    assert {row["arm"] for row in rows} == {"library", "none"}
    assert {row["phase"] for row in rows} == {"eval"}
    sent = {row["digest"]: row["experience_ids"] for row in lines(paths(tested, "test").prompts)}
    assert sorted(map(len, sent.values())) == [0, len(one.experience_ids)]
    ended = manifest(tested, "test")
    assert (ended["decision"], ended["test"]["estimate"]) == (None, one.estimate)
    assert one.low < one.estimate < one.high
    assert ended["ledger"]["calls"] == len(rows)
    state = json.loads(TaskPaths.of(tested, TASK).state.read_text())
    assert state["last_run"] == "night"


def test_a_second_test_of_the_same_library_is_refused_and_says_what_the_first_found(tested):
    again = run(tested, test=True, **SEALED)
    assert again.status == "refused"
    assert on_record(tested)[0].result in again.message
    assert "which run test has tested" in again.message


def test_a_test_that_has_ended_is_resumed_and_replayed_to_the_same_result(tested):
    before = on_record(tested)
    assert run(tested, resume="test").exit_code == 0
    again = run(tested, replay="test")
    assert again.exit_code == 0, again.message
    assert before[0].result in again.message
    assert on_record(tested) == before
