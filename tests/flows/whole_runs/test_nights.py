"""Night after night: learning goes on where the last night ended, on other items, and what is on record stays."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.pipelines.cohorts import draw_cohort
from tests.support.records.tasks import Task
from tests.support.runs.running import TASK, Server, in_process, lines, manifest, on_server, paths, request, run
from tfgrpo.flows.console.observer import Observers
from tfgrpo.flows.run.execution import execute
from tfgrpo.flows.run.prepare import prepare
from tfgrpo.pipelines.datasets.datasets import load_dataset
from tfgrpo.pipelines.settings.tree import LearningSettings
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.experiences.credit import read_credit
from tfgrpo.stores.experiences.decisions import read_decisions
from tfgrpo.stores.files.layout import TaskPaths

ITEMS = Path(__file__).parents[3] / "pipelines" / "data" / "arithmetic.jsonl"
ASKED = {"sample_size": 8, "batch_size": 4, "dry_run": True, "world": "unlearnable"}


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """Two nights after which nothing is in force; do not write into them."""
    out = tmp_path_factory.mktemp("nights")
    for name in ("one", "two"):
        assert run(out, run_id=name, **ASKED).details["decision"]["decision"] == "not yet"
    return out


@pytest.fixture
def own_nights(nights, tmp_path):
    """A copy of them."""
    shutil.copytree(nights, tmp_path / "out")
    return tmp_path / "out"


def keys(out, name):
    return {row["key"] for row in lines(paths(out, name).journal)}


def items(out, name):
    return {epoch: drawn["items"] for epoch, drawn in manifest(out, name)["cohorts"].items()}


def credit(out, *names):
    """The lines of runs, clocks aside."""
    rows = [row for row in lines(TaskPaths.of(out, TASK).credit) if row["run_id"] in names]
    return [{key: value for key, value in row.items() if key != "created_at"} for row in rows]


def test_an_item_comes_again_only_when_every_other_has_come():
    pool = load_dataset(ITEMS)
    seen = [
        item.id
        for night in range(5)
        for epoch in (1, 2)
        for item in draw_cohort(pool, epoch=epoch, settings=LearningSettings(sample_size=20, night=night)).items
    ]
    assert len(set(seen)) == len(seen) == 200


def test_lessons_that_are_not_in_force_yet_are_on_trial_from_the_first_group_of_the_next_night_on(nights):
    assert manifest(nights, "two")["in_force"]["experience_ids"] == []
    first, *_ = lines(paths(nights, "two").groups)
    prompts = {row["digest"]: row["experience_ids"] for row in lines(paths(nights, "two").prompts)}
    attempts = [row for row in lines(paths(nights, "two").rollouts) if row["group_id"] == first["group_id"]]
    carried = {name for row in attempts for name in prompts[row["prompt_digest"]]}
    assert carried == {*manifest(nights, "one")["tfgrpo"]["on_trial"]} != set()
    before, now = (manifest(nights, name)["tfgrpo"]["lessons"] for name in ("one", "two"))
    stayed = [now[name] for name in before.keys() & now.keys() & carried]
    assert {each["nights"] for each in stayed} == {1}
    assert all(each["effect"]["attempts"] for each in stayed)


def test_no_learning_call_is_paid_for_twice(nights):
    shared = keys(nights, "one") & keys(nights, "two")
    epochs = {row["epoch"] for row in lines(paths(nights, "two").journal) if row["key"] in shared and "epoch" in row}
    assert epochs <= {3}


def test_a_night_that_is_resumed_or_replayed_after_others_stays_the_night_it_was(own_nights):
    before, said = keys(own_nights, "one"), credit(own_nights, "one", "two")
    for how in ({"resume": "one"}, {"replay": "one"}, {"replay": "two"}):
        again = run(own_nights, **how)
        assert again.exit_code == 0, again.message
    assert keys(own_nights, "one") == before
    assert credit(own_nights, "one", "two") == said
    assert [one.run_id for one in read_decisions(TaskPaths.of(own_nights, TASK).promotions)] == ["one", "two"]


def test_a_night_that_was_stopped_comes_to_the_same_credit_whatever_ran_meanwhile(nights, own_nights):
    task = TaskPaths.of(own_nights, TASK)
    shutil.rmtree(paths(own_nights, "two").root)
    task.state.unlink()
    for path, own in ((task.promotions, '"run_id":"one"'), (task.credit, '"run_id":"one"')):
        path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if own in line))
    assert run(own_nights, run_id="two", max_calls=70, **ASKED).status == "stopped"
    stopped = credit(own_nights, "two")
    assert run(own_nights, run_id="meanwhile", **ASKED).exit_code == 0
    resumed = run(own_nights, resume="two", max_calls=100_000)
    assert resumed.exit_code == 0, resumed.message
    assert credit(own_nights, "two") == credit(nights, "two")
    assert stopped == credit(nights, "two")[: len(stopped)] != [], "the batches before the stop are on record"
    assert run(own_nights, replay="two").exit_code == 0


def test_two_nights_that_begin_at_once_have_numbers_and_items_of_their_own(tmp_path):
    asked = {**ASKED, "epochs": 2}
    planned = [prepare(request(tmp_path, run_id=name, **asked), {}) for name in ("one", "two")]
    for each in planned:
        assert execute(each, {}, Observers(), in_process, clock=utc_now).exit_code == 0
    assert [manifest(tmp_path, name)["night"] for name in ("one", "two")] == [1, 2]
    assert [manifest(tmp_path, name)["settings"]["tfgrpo"]["night"] for name in ("one", "two")] == [0, 1]
    first, second = (items(tmp_path, name) for name in ("one", "two"))
    assert {*first["1"]}.isdisjoint(second["1"])
    assert first["2"] != second["2"], "the sweep"
    assert run(tmp_path, replay="two").exit_code == 0
    named = prepare(request(tmp_path, run_id="three", tfgrpo__night=1, **asked), {})
    assert execute(named, {}, Observers(), in_process, clock=utc_now).exit_code == 0
    assert manifest(tmp_path, "three")["night"] == 2, "as it was asked for"


def test_values_of_another_shape_in_the_manifest_of_an_earlier_night_cost_warnings_at_most(own_nights):
    for name, damage in (("one", {"forecast": None, "ledger": None, "settings": [], "pack": None}), ("two", {"decision": [1]})):
        place = paths(own_nights, name).manifest
        place.write_text(json.dumps(json.loads(place.read_text()) | damage))
    summary = run(own_nights, run_id="next", sample_size=4, batch_size=4, epochs=2)
    assert (summary.status, paths(own_nights, "next").report.is_file()) == ("finished", True), summary.message


@pytest.mark.untraced
def test_what_a_served_simulated_model_taught_counts_in_the_next_night_and_is_retired(tmp_path, capsys):
    with Server() as server:
        summary = run(tmp_path, run_id="n1", **on_server(server))
    assert summary.status == "finished", summary.message
    assert manifest(tmp_path, "n1")["forecast"]["simulated"] is True
    task = Task(tmp_path, TASK, capsys)
    assert {line.simulated for line in read_credit(task.paths.credit)} == {True}
    name = task.ask("experiences", "review")["lessons"][0]["experience_id"]
    task.tell("experiences", "retire", name, "--why", "no use")
    assert {each["experience_id"]: each["state"] for each in task.ask("experiences", "review")["lessons"]}[name] == "kept out"
