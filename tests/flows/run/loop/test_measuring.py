"""Measuring groups: what they run under, what they write, and that what harms leaves while what helps stays."""

from __future__ import annotations

import json
import shutil
from random import Random

import pytest

from tests.support.records.records import make_batch
from tests.support.runs.running import TASK, lines, manifest, paths, run
from tfgrpo.flows import cli
from tfgrpo.flows.run.loop.measuring import random_halves
from tfgrpo.pipelines.datasets.datasets import shipped_dataset
from tfgrpo.stores.experiences.library import in_force, promotions
from tfgrpo.stores.experiences.measured import read_measured
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.tasks.exports.lessons.forms import Lesson, LessonSet, as_json
from tfgrpo.tasks.models.simulated.worlds.puzzle import open_world

NIGHTS = 3
HARMFUL, HELPFUL = "stacked_percentages", ("reverse_tax", "fence_posts", "per_person")
"""Pitfalls of the items. About the first the champion says the opposite of the truth, about the others it is right."""


def planted():
    """Lessons of the champion by pitfall."""
    pitfalls = open_world("arithmetic").pitfalls
    advice = {HARMFUL: pitfalls[HARMFUL].bad_advice[0]} | {name: pitfalls[name].good_advice[0] for name in HELPFUL}
    return {name: Lesson(each.text, each.polarity) for name, each in advice.items()}


def items(file):
    """Write the shipped items that have these pitfalls only."""
    world, known = open_world("arithmetic"), {HARMFUL, *HELPFUL}
    rows = lines(shipped_dataset("arithmetic"))
    fitting = [row for row in rows if known.issuperset(world.puzzle.recognise(row["prompt"]).template.pitfalls)]
    file.write_text("".join(json.dumps(row) + "\n" for row in fitting), encoding="utf-8")
    return str(file)


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """Nights in which nothing is learned or promoted, so that only measuring can change the champion."""
    folder = tmp_path_factory.mktemp("measuring")
    out, file = folder / "out", folder / "lessons.json"
    file.write_text(json.dumps(as_json(LessonSet(tuple(planted().values()), simulated=True))), encoding="utf-8")
    place = ["--out", str(out), "--task-id", TASK]
    imported = ["experiences", "import", str(file), "--reviewed-by", "A", "--promote", "--pack", "arithmetic"]
    assert cli.main([*imported, *place]) == 0
    asked = {"dataset": items(folder / "items.jsonl"), "sample_size": 30, "batch_size": 30, "group_size": 2}
    learns_nothing = {"tfgrpo__min_spread": 2.0, "tfgrpo__measured_share": 1.0}
    for night in range(NIGHTS):
        summary = run(out, run_id=f"n{night}", **asked, **learns_nothing)
        assert summary.status == "finished", summary.message
    return out


def names(out):
    """Names of the planted pitfalls by the id of their lesson."""
    texts = {lesson.text: name for name, lesson in planted().items()}
    return {row["experience_id"]: texts[row["summary32"]] for row in lines(TaskPaths.of(out, TASK).experiences)}


def test_what_harms_leaves_the_champion_on_record_and_what_helps_stays(nights):
    task, named = TaskPaths.of(nights, TASK), names(nights)
    decisions = list(promotions(task.promotions))
    kept = {named[one] for one in in_force(decisions).experience_ids}
    assert kept == set(HELPFUL)
    retired = next(one for one in decisions if one.decision == "retire")
    assert {named[one] for one in retired.reasons} == {HARMFUL}
    assert "probability of harm" in next(iter(retired.reasons.values()))
    events = [row for row in lines(task.accounts) if row["kind"] == "retired"]
    assert [(named[row["experience_id"]], row["epoch"]) for row in events] == [(HARMFUL, 3)]


def test_a_lesson_is_in_one_half_of_each_group_and_both_halves_are_written(nights):
    task = TaskPaths.of(nights, TASK)
    ids = {row["experience_id"] for row in lines(task.experiences)}
    found = read_measured(task.measured)
    assert len({line.group_id for line in found}) == len(found)
    for line in found:
        assert set(line.drawn).isdisjoint(line.complement)
        assert set(line.drawn) | set(line.complement) <= ids
        assert len(line.with_drawn) == len(line.with_complement) == 3
    assert len({line.drawn for line in found if line.run_id == "n0"}) > 10
    rows = [row for row in lines(paths(nights, "n0").rollouts) if row["phase"] == "measure"]
    assert [row["arm"] for row in rows[:6]] == ["drawn"] * 3 + ["complement"] * 3


def test_measuring_groups_teach_nothing_and_are_not_training_data(nights, capsys):
    groups = [row for row in lines(paths(nights, "n0").groups) if row["phase"] == "measure"]
    assert {(row["learning_calls"], len(row["proposals"])) for row in groups} == {(0, 0)}
    place = ["--out", str(nights), "--task-id", TASK]
    cli.main(["export", "n0", "--to", "jsonl", "--file", str(nights.parent / "groups.jsonl"), "--json", *place])
    report = json.loads(capsys.readouterr().out)
    assert report["left_out"]["groups"]["measured single lessons, under random halves of them"] == 2 * len(groups)


def test_resumed_and_replayed_nights_measure_the_same(nights):
    before = TaskPaths.of(nights, TASK).measured.read_bytes()
    harmed = manifest(nights, "n1")["tfgrpo"]["accounts"]
    assert run(nights, resume="n1").exit_code == 0
    assert TaskPaths.of(nights, TASK).measured.read_bytes() == before
    assert manifest(nights, "n1")["tfgrpo"]["accounts"] == harmed
    again = run(nights, replay="n1")
    assert again.exit_code == 0, again.message


def test_effects_are_shown_with_interval_rollouts_and_price(nights, capsys):
    place = ["--out", str(nights), "--task-id", TASK]
    assert cli.main(["experiences", "list", "--json", *place]) == 0
    shown = json.loads(capsys.readouterr().out)["experiences"]
    assert all(one["effect"]["low"] < one["effect"]["estimate"] < one["effect"]["high"] for one in shown)
    assert all(one["tokens"] > 5 and one["effect"]["rollouts"] > 100 for one in shown)
    assert cli.main(["experiences", "export", "--to", "json", *place]) == 0
    assert all("effect" in one for one in json.loads(capsys.readouterr().out)["lessons"])
    page = paths(nights, "n0").report.read_text(encoding="utf-8")
    assert "measuring, a random half" in page
    assert " points (" in page


def test_halves_hold_every_lesson_once_and_may_differ_in_size():
    lessons = make_batch(8)
    names = {lesson.experience_id for lesson in lessons}
    halves = [random_halves(lessons, names, Random(seed)) for seed in range(200)]
    assert all(len(one.entries) + len(other.entries) == len(lessons) for one, other in halves)
    assert all({*one.entries, *other.entries} == {*lessons} for one, other in halves)
    first, second = random_halves(lessons, {"exp-0"}, Random(0))
    assert {*first.entries} ^ {*second.entries} == {lessons[0]}
    sizes = {len(one.entries) for one, _ in halves}
    assert {2, 3, 4, 5, 6} <= sizes
    assert 3.7 < sum(len(one.entries) for one, _ in halves) / 200 < 4.3


def test_a_share_of_zero_and_a_small_run_measure_nothing(tmp_path):
    assert run(tmp_path, run_id="off", sample_size=10, batch_size=5, tfgrpo__measured_share=0.0).exit_code == 0
    assert [each["phase"] for each in manifest(tmp_path, "off")["tfgrpo"]["epochs"]] == ["train", "train", "eval"]
    assert not TaskPaths.of(tmp_path, TASK).measured.exists()


def test_a_named_lesson_is_measured_beside_the_others_on_demand_and_nothing_is_learned(nights, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(nights, out)
    task, place = TaskPaths.of(out, TASK), ["--out", str(out), "--task-id", TASK]
    before, records = len(read_measured(task.measured)), task.experiences.read_bytes()
    name = in_force(promotions(task.promotions)).experience_ids[0]
    assert cli.main(["experiences", "measure", name[:14], "--rollouts", "30", "--json", *place]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(one["id"], one["effect"]["rollouts"] > 30) for one in shown["measured"]] == [(name, True)]
    lines_now = read_measured(task.measured)[before:]
    assert [sorted([*line.drawn, *line.complement]) for line in lines_now] == [[name]] * 5
    assert task.experiences.read_bytes() == records
    kept = manifest(out, shown["run_id"])
    assert kept["measures"] == {"rollouts": 30, "lessons": [name], "control": None, "others": []}
    assert kept["ledger"]["calls"] == 30
    assert kept["gate"] is None
    assert not [each for stage in kept["stages"] for each in stage.get("checks", ()) if not each["ok"]]
    assert run(out, resume=shown["run_id"]).exit_code == 0
    assert manifest(out, shown["run_id"])["ledger"]["calls"] == 30
    again = run(out, replay=shown["run_id"])
    assert again.exit_code == 0, again.message


@pytest.mark.parametrize("control", ["no-lessons", "neutral", "same"])
def test_the_champion_is_compared_with_a_control(nights, tmp_path, capsys, control):
    out = tmp_path / "out"
    shutil.copytree(nights, out)
    place = ["--out", str(out), "--task-id", TASK]
    assert cli.main(["experiences", "measure", "--control", control, "--rollouts", "240", "--json", *place]) == 0
    shown = json.loads(capsys.readouterr().out)
    found = manifest(out, shown["run_id"])["control"]
    assert (found["name"], found["groups"]) == (control, 40)
    assert found["low"] < found["estimate"] < found["high"]
    assert (found["estimate"] > 0.05) is (control != "same")
    assert TaskPaths.of(out, TASK).measured.read_bytes() == TaskPaths.of(nights, TASK).measured.read_bytes()
    systems = {row["system"] for row in lines(paths(out, shown["run_id"]).prompts)}
    assert len(systems) == (1 if control == "same" else 2)
    lengths = sorted(map(len, systems))
    assert (lengths[-1] - lengths[0] < 10) is (control != "no-lessons")


def test_the_champion_is_compared_with_lessons_that_other_tasks_promoted_for_other_domains(nights, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(nights, out)
    asked = ["experiences", "measure", "--control", "other-domains", "--rollouts", "240", "--json", "--out", str(out)]
    assert cli.main([*asked, "--task-id", TASK]) == 2
    assert "no other task" in capsys.readouterr().out
    texts = [
        "Close the choice before a step that is common to all cases.",
        "Model a loop.",
        "Give each account a line.",
    ]
    file = tmp_path / "lessons.json"
    file.write_text(json.dumps(as_json(LessonSet(tuple(Lesson(text, "do") for text in texts), simulated=True))))
    imported = ["experiences", "import", str(file), "--reviewed-by", "A", "--promote", "--out", str(out), "--task-id"]
    assert cli.main([*imported, "alike", "--pack", "arithmetic"]) == 0
    capsys.readouterr()
    assert cli.main([*asked, "--task-id", TASK]) == 2  # its lessons are of the same domain
    assert cli.main([*imported, "other", "--pack", "general"]) == 0
    capsys.readouterr()
    assert cli.main([*asked, "--task-id", TASK]) == 0
    shown = json.loads(capsys.readouterr().out)
    kept = manifest(out, shown["run_id"])
    assert (kept["control"]["groups"], kept["control"]["lessons"]) == (40, 3)
    assert kept["control"]["estimate"] > 0.05
    champion, other = (row["system"].split("<lessons>") for row in lines(paths(out, shown["run_id"]).prompts))
    assert champion[0] == other[0]
    assert sorted(line for line in other[1].splitlines() if line.startswith("- ")) == sorted(
        f"- Do: {each}" for each in texts
    )
    (out / "other" / "promotions.jsonl").unlink()  # what was begun is resumed with the same lessons
    assert run(out, resume=shown["run_id"]).exit_code == 0
    assert manifest(out, shown["run_id"])["ledger"]["calls"] == kept["ledger"]["calls"]
    again = run(out, replay=shown["run_id"])
    assert again.exit_code == 0, again.message
