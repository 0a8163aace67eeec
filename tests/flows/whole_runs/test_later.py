"""A run that ends later than it should: what it is judged by is what was recorded, and what it was compared with."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from tests.support.records.promotions import record_promotion
from tests.support.records.tasks import Task
from tests.support.runs.running import (
    TASK,
    manifest,
    one_group_teaches,
    paths,
    run,
)
from tfgrpo.stores.experiences.library import Promotion, promotions
from tfgrpo.stores.files.layout import TaskPaths


def test_a_run_that_was_overtaken_does_not_replace_what_it_was_not_compared_with(tmp_path):
    asked = {"batch_size": 15, "dry_run": True, "seed": 1}
    assert run(tmp_path, run_id="a", max_calls=150, sample_size=30, **asked).status == "stopped"
    assert run(tmp_path, run_id="b", sample_size=45, **asked).details["gate"]["decision"] == "promote"
    late = run(tmp_path, resume="a", max_calls=100_000)
    assert late.details["gate"]["decision"] == "undecided"
    assert late.message.startswith("undecided: another library was put into force since this run began")
    task = TaskPaths.of(tmp_path, TASK)
    first, last = promotions(task.promotions)
    assert (first.run_id, first.decision, last.run_id, last.decision) == ("b", "promote", "a", "undecided")
    assert json.loads(task.state.read_text())["champion"]["library_id"] == first.library_id
    assert run(tmp_path, resume="b").details["gate"]["decision"] == "promote"
    again = run(tmp_path, resume="a")
    assert again.message == late.message
    assert manifest(tmp_path, "a")["gate"]["decision"] == "undecided"
    assert run(tmp_path, replay="a").details["gate"]["decision"] == "undecided"


def promoted(task):
    """A decision of another run: the first lesson of the store alone."""
    first = json.loads(task.experiences.read_text().splitlines()[0])["experience_id"]
    figures = {"estimate": 0.2, "low": 0.1, "high": 0.3, "pairs": 9}
    ids = {"run_id": "b", "experience_ids": (first,), "library_id": "0" * 16}
    return Promotion(decided_at=datetime(2026, 1, 1, tzinfo=UTC), decision="promote", simulated=True, **ids, **figures)


def test_a_recorded_decision_stays_whatever_new_evidence_shows(tmp_path):
    run(tmp_path, run_id="a", sample_size=8, dry_run=True, world="unlearnable")
    place = TaskPaths.of(tmp_path, TASK).promotions
    place.write_text(place.read_text().replace('"decision":"undecided"', '"decision":"reject"'))
    again = run(tmp_path, resume="a")
    assert again.message.startswith(
        "reject: this is on record since the run first ended, and now it would be undecided"
    )


class Meanwhile:
    """Something is done while a run's sweep is under way."""

    def __init__(self, do):
        self._do = do

    def __getattr__(self, name):
        def told(*said):
            if name == "epoch_ended" and said[0].phase == "eval":
                self._do()

        return told


def test_of_two_runs_that_end_together_one_is_promoted(tmp_path):
    task = TaskPaths.of(tmp_path, TASK)
    other = Meanwhile(lambda: record_promotion(task.promotions, promoted(task)))
    ended = run(tmp_path, run_id="a", sample_size=44, batch_size=11, dry_run=True, observer=other)
    assert ended.message.startswith("undecided: another library was put into force since this run began")
    assert [(one.run_id, one.decision) for one in promotions(task.promotions)] == [("b", "promote"), ("a", "undecided")]


def test_an_undecided_night_in_which_the_library_changed_promises_no_evidence_to_the_next(tmp_path, monkeypatch):
    one_group_teaches(monkeypatch)
    asked = {"sample_size": 8, "batch_size": 4, "world": "unlearnable", "gate__max_regressions": 1.0}
    task = TaskPaths.of(tmp_path, TASK)
    other = Meanwhile(lambda: record_promotion(task.promotions, promoted(task)))
    ended = run(tmp_path, run_id="a", dry_run=True, observer=other, **asked)
    assert ended.message.startswith("undecided: another library was put into force since this run began")
    assert ended.details["gate"]["evidence"]["given_up"] is True
    said = {line["label"]: line["text"] for line in ended.details["morning"]["lines"]}
    assert said["missing"].startswith("the next night begins with new evidence")
    assert run(tmp_path, replay="a").exit_code == 0
    run(tmp_path, run_id="c", dry_run=True, **asked)
    assert manifest(tmp_path, "c")["began_with"]["nights"] == 0


def test_a_library_that_was_taken_back_meanwhile_is_not_replaced(tmp_path, capsys):
    task = Task(tmp_path, TASK, capsys)
    task.learn(("do", "Name the unit of every figure."))
    person = Meanwhile(lambda: task.tell("experiences", "rollback", "none"))
    ended = run(tmp_path, run_id="a", sample_size=44, batch_size=11, dry_run=True, observer=person)
    assert ended.message.startswith("undecided: another library was put into force since this run began")
    assert (task.decisions, task.texts) == (["promote", "rollback", "undecided"], [])
    assert run(tmp_path, resume="a").message == ended.message


def test_a_replay_decides_as_its_run_did_from_any_champion(tmp_path):
    asked = {"sample_size": 44, "batch_size": 11, "dry_run": True}
    assert run(tmp_path, run_id="a", **asked).details["gate"]["decision"] == "promote"
    task = TaskPaths.of(tmp_path, TASK)
    [first] = promotions(task.promotions)
    # As if only one of its lessons had been taken over, so that the next night has something to add.
    one = first.model_copy(update={"run_id": "hand", "experience_ids": first.experience_ids[:1]})
    record_promotion(task.promotions, one)
    night = run(tmp_path, run_id="b", seed=1, **asked)
    assert manifest(tmp_path, "b")["champion"]["experience_ids"] == list(one.experience_ids)
    assert night.details["gate"]["decision"] == "promote"
    replayed = run(tmp_path, replay="b")
    assert replayed.exit_code == 0, replayed.message
    assert replayed.details["gate"] == night.details["gate"]


def test_a_champion_that_lost_a_record_or_its_promotion_is_a_warning_of_the_run(tmp_path):
    asked = {"sample_size": 44, "batch_size": 11, "dry_run": True}
    assert run(tmp_path, run_id="a", **asked).details["gate"]["decision"] == "promote"
    task = TaskPaths.of(tmp_path, TASK)
    [first] = promotions(task.promotions)
    gone, store_lines = first.experience_ids[0], task.experiences.read_text().splitlines(keepends=True)
    task.experiences.write_text("".join(line for line in store_lines if gone not in line))
    small = {"sample_size": 4, "dry_run": True}
    warnings = run(tmp_path, run_id="b", **small).details["warnings"]
    assert f"1 promoted lesson left out, not among the task's records as promoted: {gone}" in warnings
    resumed = run(tmp_path, resume="b").details["warnings"]
    assert sorted(resumed) == sorted(warnings)
    task.promotions.write_bytes(task.promotions.read_bytes().splitlines()[0][:-9])
    warnings = run(tmp_path, run_id="c", **small).details["warnings"]
    assert "promotions.jsonl: the last line is incomplete and does not count" in warnings
    assert any(text.startswith("state.json shows ") for text in warnings)


@pytest.mark.parametrize(
    "damage", [{"forecast": None}, {"ledger": None}, {"gate": [1]}, {"settings": []}, {"pack": None}, {"cohorts": []}]
)
def test_values_of_another_shape_in_the_manifest_of_an_earlier_night_cost_warnings_at_most(own_run, damage):
    place = paths(own_run.out, "small").manifest
    place.write_text(json.dumps(json.loads(place.read_text()) | damage))
    summary = run(own_run.out, run_id="next", sample_size=4, batch_size=4)
    assert (summary.status, paths(own_run.out, "next").report.is_file()) == ("finished", True), summary.message
