"""A task whose lessons outgrow the slots: each prompt carries some, chosen for its item, wherever one is made."""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict

import numpy as np
import pytest

import tfgrpo
from tests.support.runs.running import PACKS, TASK, lines, manifest, paths, run
from tests.support.runs.selections import plan as planned
from tfgrpo.flows import cli
from tfgrpo.flows.report.retrieval import read_retrieval, slope
from tfgrpo.stores.experiences.measured import read_measured
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.tasks.exports.lessons.forms import Lesson, LessonSet, as_json
from tfgrpo.tasks.models.simulated.worlds.puzzle import open_world

SLOTS, PER_ITEM = 5, 2
PROMOTED = 8


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    """Return the folder of a night that begins with more lessons in force than slots, and learns more."""
    folder = tmp_path_factory.mktemp("retrieval")
    shutil.copytree(PACKS / "arithmetic", folder / "packs" / "arithmetic")
    file = folder / "packs" / "arithmetic" / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"experience_slots": SLOTS}))
    advice = [pitfall.good_advice[0] for pitfall in open_world("arithmetic").pitfalls.values()][:PROMOTED]
    lessons = LessonSet(tuple(Lesson(each.text, each.polarity) for each in advice), simulated=True)
    (folder / "lessons.json").write_text(json.dumps(as_json(lessons)), encoding="utf-8")
    place = ["--out", str(folder), "--task-id", TASK, "--packs-root", str(folder / "packs")]
    imported = ["experiences", "import", str(folder / "lessons.json"), "--reviewed-by", "A", "--promote"]
    assert cli.main([*imported, "--pack", "arithmetic", *place]) == 0
    asked = {"sample_size": 60, "batch_size": 15, "packs_root": str(folder / "packs"), "tfgrpo__measured_share": 0.4}
    summary = run(folder, run_id="night", group_size=4, tfgrpo__retrieval__per_item=PER_ITEM, **asked)
    assert summary.status == "finished", summary.message
    return folder


def lessons(system):
    """Return the lines of the lessons of a prompt."""
    return tuple(line for line in system.partition("<lessons>")[2].splitlines() if line.startswith("- "))


def prompts(out):
    return {row["digest"]: row for row in lines(paths(out, "night").prompts)}


def groups(out, *phases):
    """Return by group and arm the digests of the prompts that its attempts had."""
    found = defaultdict(lambda: defaultdict(set))
    for row in lines(paths(out, "night").rollouts):
        if row["phase"] in phases:
            found[row["group_id"], row["item_id"]][row["arm"]].add(row["prompt_digest"])
    return found


@pytest.mark.untraced
def test_prompts_never_have_more_lessons_than_slots_and_begin_alike(night):
    known = prompts(night)
    assert {len(row["experience_ids"]) for row in known.values()} <= set(range(SLOTS + 1))
    swept = {digest for arms in groups(night, "eval").values() for digest in arms.get("champion", ())}
    assert len(swept) > 3
    assert {len(known[digest]["experience_ids"]) for digest in swept} == {SLOTS}
    settled = {tuple(known[digest]["experience_ids"][: SLOTS - PER_ITEM]) for digest in swept}
    assert len(settled) == 1
    beginnings = {lessons(known[digest]["system"])[: SLOTS - PER_ITEM] for digest in swept}
    assert len(beginnings) == 1


def test_all_attempts_of_a_group_under_one_library_have_one_text(night):
    for arms in groups(night, "train", "eval", "measure").values():
        assert all(len(digests) == 1 for digests in arms.values())


def test_a_group_is_split_only_where_its_prompts_differ(night):
    learning = [arms for arms in groups(night, "train").values() if "baseline" in arms]
    assert learning
    assert all(arms["baseline"] != arms["candidate"] for arms in learning)
    arms_of = defaultdict(dict)
    for (_, item), arms in groups(night, "eval").items():
        arms_of[item] |= arms
    assert all("champion" in arms for arms in arms_of.values())
    both = [arms for arms in arms_of.values() if "candidate" in arms]
    assert all(arms["champion"] != arms["candidate"] for arms in both)
    assert all(check["ok"] for stage in manifest(night, "night")["stages"] for check in stage.get("checks", ()))
    gate = manifest(night, "night")["gate"]
    assert (gate["pairs"], gate["sum_of_effects"]) == (len(arms_of), None)


def test_a_lesson_is_measured_only_at_items_whose_prompt_carries_it(night):
    task, known = TaskPaths.of(night, TASK), prompts(night)
    arms = {group: each for (group, _), each in groups(night, "measure").items()}
    found = read_measured(task.measured)
    assert len({frozenset(line.drawn + line.complement) for line in found}) > 3
    for line in found:
        assert len(line.drawn) + len(line.complement) == SLOTS
        for arm, half in (("drawn", line.drawn), ("complement", line.complement)):
            (digest,) = arms[line.group_id][arm]
            assert set(known[digest]["experience_ids"]) == set(half)


def test_a_named_lesson_is_measured_at_items_that_it_is_retrieved_for(night, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(night, out)
    task = TaskPaths.of(out, TASK)
    before = read_measured(task.measured)
    counts = Counter(name for line in before for name in (*line.drawn, *line.complement))
    name = min(counts, key=counts.__getitem__)
    place = ["--out", str(out), "--task-id", TASK, "--packs-root", str(out / "packs")]
    assert cli.main(["experiences", "measure", name, "--rollouts", "30", "--json", *place]) == 0
    shown = json.loads(capsys.readouterr().out)
    found = read_measured(task.measured)[len(before) :]
    assert [sorted([*line.drawn, *line.complement]) for line in found] == [[name]] * 5
    known = lines(paths(out, shown["run_id"]).prompts)
    assert {name in row["experience_ids"] for row in known} == {True, False}


def test_the_report_compares_halves_with_more_and_fewer_retrieved_lessons(night):
    shown = read_retrieval(TaskPaths.of(night, TASK), "night")
    assert shown.settled == SLOTS - PER_ITEM
    assert shown.groups == len(read_measured(TaskPaths.of(night, TASK).measured))
    assert {count for count, _, _ in shown.by_count} <= set(range(PER_ITEM + 1))
    assert sum(attempts for _, attempts, _ in shown.by_count) == 6 * shown.groups
    page = paths(night, "night").report.read_text(encoding="utf-8")
    assert "Lessons retrieved by item" in page
    assert "one more retrieved lesson brings" in page


@pytest.mark.parametrize(
    ("pairs", "each", "known"),
    [
        ([], None, False),
        ([(0, 1.0)], None, False),
        ([(2, 0.5), (0, 0.1)], 0.25, False),
        ([(1, 0.5), (1, 0.1)], 0.3, True),
    ],
)
def test_one_group_has_no_interval_however_well_a_line_fits_it(pairs, each, known):
    found, margin = slope(pairs)
    assert (found, margin is not None) == (each, known)


def test_the_interval_of_a_slope_keeps_its_promise_with_twenty_groups():
    draws = np.random.default_rng(0)
    held = 0
    for _ in range(2000):
        more = draws.integers(1, 3, 20)
        each, margin = slope([(int(one), float(0.1 * one + draws.normal(0, 0.3))) for one in more])
        held += abs(each - 0.1) <= margin
    assert held / 2000 >= 0.93


def test_what_is_served_for_an_item_is_what_was_compared(night):
    items = {row["item_id"]: row["prompt"] for row in lines(paths(night, "night").items)}
    root = str(night / "packs")
    known, promoted = prompts(night), manifest(night, "night")["gate"]["decision"] == "promote"
    for (_, item), arms in groups(night, "eval").items():
        for arm, (digest,) in arms.items():
            if arm == ("candidate" if promoted else "champion"):
                assert tfgrpo.prompt(TASK, item=items[item], out=str(night)) == known[digest]["system"]
                selected = planned(prompt=items[item], dry_run=True, task_id=TASK, out=str(night), packs_root=root)
                assert selected.spec.pack.digest == digest
    anywhere = tfgrpo.prompt(TASK, out=str(night))
    assert len(lessons(anywhere)) == SLOTS
    chosen = tfgrpo.select(items[item], k=2, dry_run=True, answer="1", rewarders=["gt"], **asked(night))
    assert chosen.selection.spec.pack.system == tfgrpo.prompt(TASK, item=items[item], out=str(night))


def test_a_pack_is_rendered_for_an_item(night, capsys):
    item = next(row["prompt"] for row in lines(paths(night, "night").items))
    place = ["--task-id", TASK, "--out", str(night), "--packs-root", str(night / "packs"), "--json"]
    for more, served in ((["--item", item], {"item": item}), ([], {})):
        assert cli.main(["packs", "render", "arithmetic", *more, *place]) == 0
        assert json.loads(capsys.readouterr().out)["text"] == tfgrpo.prompt(TASK, out=str(night), **served)


def asked(out):
    return {
        "task_id": TASK,
        "out": str(out),
        "packs_root": str(out / "packs"),
        "settings": {"tfgrpo.retrieval.per_item": PER_ITEM},
    }


@pytest.mark.untraced
def test_resumed_and_replayed_the_night_is_the_same(night):
    calls = manifest(night, "night")["ledger"]["calls"]
    assert run(night, resume="night").exit_code == 0
    assert manifest(night, "night")["ledger"]["calls"] == calls
    again = run(night, replay="night")
    assert again.exit_code == 0, again.message
