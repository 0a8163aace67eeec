"""Nights after a proof: what is proven is against no lessons, and what is in force follows the lessons that help."""

from __future__ import annotations

import math
import re

import pytest

import tfgrpo
from tests.support.runs.running import TASK, lines, manifest, paths, run
from tfgrpo.rewarders.statistics.sequential import Capital
from tfgrpo.stores.experiences.library import promotions
from tfgrpo.stores.files.layout import TaskPaths


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """A night that promotes, and the one after it."""
    out = tmp_path_factory.mktemp("following")
    for name in ("one", "two"):
        summary = run(out, run_id=name, sample_size=100, batch_size=20)
        assert summary.exit_code == 0, summary.message
    assert manifest(out, "one")["gate"]["decision"] == "promote"
    return out


def carried(prompt):
    return prompt["experience_ids"]


def test_half_of_each_group_runs_without_lessons_also_when_some_are_in_force(nights):
    prompts = {row["digest"]: row for row in lines(paths(nights, "two").prompts)}
    learned = [row for row in lines(paths(nights, "two").rollouts) if row["phase"] == "train"]
    assert {row["arm"] for row in learned} == {"baseline", "candidate"}
    assert not any(carried(prompts[row["prompt_digest"]]) for row in learned if row["arm"] == "baseline")
    assert all(carried(prompts[row["prompt_digest"]]) for row in learned if row["arm"] == "candidate")
    assert manifest(nights, "two")["champion"]["experience_ids"], "there are lessons in force"


def test_the_proof_goes_on_over_a_promotion(nights):
    one, *_ = promotions(TaskPaths.of(nights, TASK).promotions)
    began = manifest(nights, "two")["began_with"]
    assert (tuple(began["capital"]), began["nights"]) == (one.capital, 1)
    evidence = manifest(nights, "two")["gate"]["evidence"]
    assert (evidence["nights"], evidence["follows"], evidence["given_up"]) == (2, True, False)
    assert math.log(evidence["value"]) > Capital(one.capital).log_value
    assert not manifest(nights, "one")["gate"]["evidence"]["follows"]


def test_the_morning_page_tells_what_lessons_gain_over_none(nights):
    gain = manifest(nights, "two")["gate"]["evidence"]["gain"]
    assert gain["low"] > 0.0, "the arithmetic world is learned in one night"
    better = next(
        line["text"] for line in run(nights, resume="two").details["morning"]["lines"] if line["label"] == "better"
    )
    assert better.startswith(f"than no lessons: {gain['estimate']:+.3f}, interval {gain['low']:+.3f}")
    assert "; than before: " in better


def test_a_result_has_the_gain_over_none_and_the_lessons_in_force_after_it(nights):
    one, two = (tfgrpo.load_run(paths(nights, name).root) for name in ("one", "two"))
    told = manifest(nights, "two")["gate"]
    assert (two.gain.low, two.gain.n) == (told["evidence"]["gain"]["low"], told["evidence"]["learned_items"])
    assert one.gain.estimate > 0.0
    for result in (one, two):
        after = [each for each in promotions(TaskPaths.of(nights, TASK).promotions) if each.run_id == result.run_id]
        assert [lesson.id for lesson in result.lessons] == list(after[-1].experience_ids)


def test_once_proven_a_third_of_the_measuring_groups_is_enough(nights):
    first, second = (
        sum(row["phase"] == "measure" for row in lines(paths(nights, name).groups)) for name in ("one", "two")
    )
    assert second == round(first / 3) > 0


def test_a_lesson_that_is_only_said_again_and_again_leaves_what_is_in_force(nights):
    """Good wishes are proposed in every night, and no attempt that was given one did better for it."""
    accounts = manifest(nights, "two")["tfgrpo"]["accounts"]
    *_, two = promotions(TaskPaths.of(nights, TASK).promotions)
    assert set(two.experience_ids) < set(manifest(nights, "two")["tfgrpo"]["library"])
    idle = set(manifest(nights, "two")["tfgrpo"]["library"]) - set(two.experience_ids)
    assert any(accounts[name]["against"] == 0 < accounts[name]["for"] for name in idle)


@pytest.mark.untraced
def test_a_night_after_a_proof_is_replayed_and_resumed_as_it_was(nights):
    before = [one.model_dump() for one in promotions(TaskPaths.of(nights, TASK).promotions)]
    again = run(nights, replay="two")
    assert again.exit_code == 0, again.message
    assert run(nights, resume="two").exit_code == 0
    assert [one.model_dump() for one in promotions(TaskPaths.of(nights, TASK).promotions)] == before


@pytest.mark.untraced
def test_nights_of_learning_rules_five_are_replayed_by_them_and_the_next_night_begins_anew(tmp_path, monkeypatch):
    asked = {"sample_size": 24, "batch_size": 12}
    with monkeypatch.context() as older:
        older.setattr("tfgrpo.flows.run.open.LEARNING_RULES", 5)
        for name in ("one", "two"):
            assert run(tmp_path, run_id=name, **asked).exit_code == 0
    arms = {row["arm"] for row in lines(paths(tmp_path, "two").rollouts) if row["phase"] == "train"}
    assert "champion" in arms
    assert "baseline" not in arms
    for name in ("one", "two"):
        again = run(tmp_path, replay=name)
        assert again.exit_code == 0, again.message
    run(tmp_path, run_id="three", **asked)
    began = manifest(tmp_path, "three")["began_with"]
    assert (tuple(began["capital"]), began["nights"]) == (Capital().logs, 0)
    assert began["lost"].endswith("this night has learning rules that prove against no lessons")


def test_the_pictures_show_each_night_with_lessons_and_without(nights):
    page = paths(nights, "two").report.read_text()
    gains = [manifest(nights, name)["gate"]["evidence"]["gain"]["estimate"] for name in ("one", "two")]
    assert [text in page for text in (f">{gain:+.2f}</text>" for gain in gains)] == [True, True]
    [points] = re.findall(r'<polyline class="without" points="([^"]+)"', page)
    batches = {(row["epoch"], row["batch"]) for row in lines(paths(nights, "two").groups) if row["phase"] == "train"}
    assert len(points.split()) == len(batches)
