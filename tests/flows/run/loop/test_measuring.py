"""Measuring on demand: rows of groups on two sides of which nothing is learned, and comparisons with a control."""

import json

import pytest

from tests.support.records.tasks import Task
from tests.support.runs.running import TASK, lines, manifest, paths, run


@pytest.fixture
def task(own_run, capsys):
    """A task with lessons in force."""
    return Task(own_run.out, TASK, capsys)


def rows(task):
    return [row for row in lines(task.paths.credit) if row.get("source") == "measure"]


def test_lessons_are_measured_on_two_sides_and_nothing_is_learned(own_run, task):
    known = own_run.summary.details["lessons"]
    before, records = {one["id"]: one["effect"]["attempts"] for one in known}, task.paths.experiences.read_bytes()
    shown = task.ask("experiences", "measure", "--rollouts", 65)
    assert shown["message"] == f"measured {len(known)} lessons in 16 groups; nothing was learned"
    assert {one["id"]: one["effect"]["attempts"] for one in shown["measured"]} == {
        name: count + 64 for name, count in before.items()
    }
    for row in rows(task):
        assert sorted([*row["one"], *row["other"]]) == sorted(before), "each lesson on one side"
        assert (len(row["rewards_one"]), len(row["rewards_other"])) == (2, 2)
    assert len({tuple(row["one"]) for row in rows(task)}) > 5
    kept, files = manifest(own_run.out, shown["run_id"]), paths(own_run.out, shown["run_id"])
    groups = lines(files.groups)
    assert [(row["phase"], row["learning_calls"], row["proposals"]) for row in groups] == [("measure", 0, [])] * 16
    assert {row["run_id"] for row in lines(task.paths.credit) if row["kind"] == "word"} == {"small"}
    assert task.paths.experiences.read_bytes() == records
    assert (kept["decision"], task.decisions, kept["ledger"]["calls"]) == (None, ["in force"], 64)
    assert not [each for stage in kept["stages"] for each in stage.get("checks", ()) if not each["ok"]]
    (listed,) = [each for each in task.ask("runs")["runs"] if each["run_id"] == shown["run_id"]]
    assert listed["lessons"] is None, "it is no night"
    export = task.tell("export", shown["run_id"], "--to", "jsonl", "--json", code=1).out
    assert json.loads(export)["left_out"]["groups"] == {"measured on demand, for no learning": 32}, "by side"

    found = rows(task)
    assert run(own_run.out, resume=shown["run_id"]).exit_code == 0
    assert (rows(task), manifest(own_run.out, shown["run_id"])["ledger"]["calls"]) == (found, 64)
    again = run(own_run.out, replay=shown["run_id"])
    assert again.exit_code == 0, again.message
    task.ask("experiences", "measure", "--rollouts", 60)
    assert len({row["item_id"] for row in rows(task)}) == 24, "it goes on with the other items of the draw"


def test_a_named_lesson_is_measured_beside_the_others(own_run, task):
    name, *others = task.ids
    shown = task.ask("experiences", "measure", name[:14], "--rollouts", 60)
    assert [one["id"] for one in shown["measured"]] == [name]
    assert {(*row["one"], "|", *row["other"]) for row in rows(task)} == {(name, "|"), ("|", name)}, "either is first"
    sent = [{*row["experience_ids"]} for row in lines(paths(own_run.out, shown["run_id"]).prompts)]
    assert sorted(sent, key=len) == [{*others}, {name, *others}]


@pytest.mark.parametrize("control", ["no-lessons", "neutral", "same"])
def test_what_is_in_force_is_compared_with_a_control_and_no_row_is_written(own_run, task, control):
    before = task.paths.credit.read_bytes()
    shown = task.ask("experiences", "measure", "--control", control, "--rollouts", 96)
    found = manifest(own_run.out, shown["run_id"])["control"]
    assert (found["name"], found["groups"], shown["measured"]) == (control, 24, [])
    assert found["low"] < found["mean"] < found["high"]
    assert (found["mean"] > 10.0) is (control != "same")
    assert task.paths.credit.read_bytes() == before
    systems = {row["system"] for row in lines(paths(own_run.out, shown["run_id"]).prompts)}
    assert len(systems) == (1 if control == "same" else 2)
    lengths = sorted(map(len, systems))
    assert (lengths[-1] - lengths[0] < 10) is (control != "no-lessons")
    if control == "neutral":
        again = run(own_run.out, replay=shown["run_id"])
        assert again.exit_code == 0, again.message
