"""Night after night: learning goes on where the last night ended, and what it is measured on stays the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pipelines.cohorts import draw_cohort
from tests.support.records.tasks import Task
from tests.support.runs.running import TASK, Server, lines, manifest, on_server, one_group_teaches, paths, request, run
from tfgrpo.flows.run.prepare import prepare
from tfgrpo.pipelines.datasets.datasets import load_dataset
from tfgrpo.pipelines.plan.sampling import draw_cohorts
from tfgrpo.pipelines.settings.tree import LearningSettings
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.experiences.accounts import read_events
from tfgrpo.stores.experiences.library import promotions
from tfgrpo.stores.files.layout import TaskPaths

ITEMS = Path(__file__).parents[3] / "pipelines" / "data" / "arithmetic.jsonl"
ASKED = {"sample_size": 8, "batch_size": 4, "dry_run": True, "world": "unlearnable"}


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """Two nights that promote nothing, so that the second could repeat the first call by call."""
    out = tmp_path_factory.mktemp("nights")
    with pytest.MonkeyPatch.context() as patched:
        one_group_teaches(patched)
        for name in ("one", "two"):
            assert run(out, run_id=name, **ASKED).details["gate"]["decision"] != "promote"
        yield out


def keys(out, name):
    return {row["key"] for row in lines(paths(out, name).journal)}


def items(out, name):
    return {epoch: drawn["items"] for epoch, drawn in manifest(out, name)["cohorts"].items()}


def test_a_night_learns_and_is_measured_on_other_items(nights):
    one, two = items(nights, "one"), items(nights, "two")
    assert set(one["1"] + one["2"]).isdisjoint(two["1"] + two["2"])
    assert one["3"] != two["3"]
    assert manifest(nights, "two")["settings"]["tfgrpo"]["night"] == 1
    assert "decided" in manifest(nights, "two")["sources"]["tfgrpo.night"]


def test_no_learning_call_is_paid_for_twice(nights):
    shared = keys(nights, "one") & keys(nights, "two")
    epochs = {row["epoch"] for row in lines(paths(nights, "two").journal) if row["key"] in shared and "epoch" in row}
    assert epochs <= {3}


def test_a_night_that_is_resumed_or_replayed_stays_the_night_it_was(nights):
    before = keys(nights, "one")
    assert run(nights, resume="one").exit_code == 0
    assert keys(nights, "one") == before
    assert run(nights, replay="one").exit_code == 0
    assert [one.run_id for one in promotions(TaskPaths.of(nights, TASK).promotions)] == ["one", "two"]


def test_the_items_of_a_night_can_be_had_again_by_its_number(nights):
    assert run(nights, run_id="again", tfgrpo__night=0, **ASKED).exit_code == 0
    assert items(nights, "again") == items(nights, "one")


def test_an_item_comes_again_only_when_every_other_has_come():
    pool = load_dataset(ITEMS)
    seen = []
    for night in range(5):
        learning = LearningSettings(sample_size=20, night=night)
        seen += [
            item.id for cohort in draw_cohorts(pool, epochs=range(1, 3), settings=learning) for item in cohort.items
        ]
        assert draw_cohort(pool, epoch=2, settings=learning).items[-1].id == seen[-1]
    assert len(set(seen)) == len(seen) == 200


@pytest.mark.parametrize("how", [{"with_replacement": True}, {}])
def test_draws_that_do_not_depend_on_each_other_differ_from_night_to_night(how):
    pool = load_dataset(ITEMS)
    weights = None if how else [1.0] * len(pool)
    drawn = [
        [
            item.id
            for item in draw_cohort(pool, epoch=1, settings=LearningSettings(night=n, **how), weights=weights).items
        ]
        for n in (0, 1)
    ]
    assert drawn[0] != drawn[1]


def test_unreadable_decisions_are_refused_before_any_spending(tmp_path):
    place = TaskPaths.of(tmp_path, TASK).promotions
    place.parent.mkdir(parents=True)
    place.write_text("nonsense\n")
    with pytest.raises(SettingsError, match="line 1 is not a decision of the gate"):
        prepare(request(tmp_path, **ASKED), {})


def test_a_damaged_manifest_of_an_earlier_night_does_not_stop_the_next(tmp_path):
    small = {"sample_size": 4, "batch_size": 4}
    for name in ("one", "two"):
        run(tmp_path, run_id=name, **small)
    remembered = manifest(tmp_path, "one")["tfgrpo"]["remembered"]
    paths(tmp_path, "two").manifest.write_text('{"torn')
    assert run(tmp_path, run_id="three", **small).status == "finished"
    assert manifest(tmp_path, "three")["began_with"]["remembered"] == remembered


@pytest.mark.untraced
def test_what_a_served_simulated_model_taught_counts_in_the_next_night_and_is_taken_back(tmp_path, monkeypatch, capsys):
    one_group_teaches(monkeypatch)
    with Server() as server:
        summary = run(tmp_path, run_id="n1", **on_server(server))
    assert summary.status == "finished", summary.message
    assert manifest(tmp_path, "n1")["forecast"]["simulated"] is True
    task = Task(tmp_path, TASK, capsys)
    assert {event.simulated for event in read_events(task.paths.accounts)} == {True}
    name = task.ask("experiences", "review")["lessons"][0]["experience_id"]
    task.tell("experiences", "retire", name, "--why", "no use")
    assert {each["experience_id"]: each["retired"] for each in task.ask("experiences", "review")["lessons"]}[name]
