"""Two runs are compared by item: what got worse first, what has no pair counted apart, and nothing unknown is a zero."""

import json

import pytest

from tests.support.records.line_files import seal
from tests.support.records.tasks import CENTS, UNITS, Task
from tfgrpo.flows.run.damage import extents
from tfgrpo.stores.files.atomic import replace_signed
from tfgrpo.stores.runs import ManifestFile

pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def task(tmp_path, capsys):
    return Task(tmp_path / "out", "mine", capsys)


def attempted(task, run_id, day, rewards, *, arm="library", settings=(), questions=None, simulated=False, night=None):
    """Write a run with rewards by item, None for an attempt that was lost."""
    run = task.paths.run(run_id)
    run.root.mkdir(parents=True, exist_ok=True)
    table = [{"key": key, "value": value, "source": "default"} for key, value in dict(settings).items()]
    known = {"schema_version": 1, "run_id": run_id, "status": "finished", "simulated": simulated, "settings_table": table}
    known |= {"night": night}
    replace_signed(run.manifest, {**known, "started_at": f"2026-01-{day:02}T00:00:00+00:00"})
    rows = [
        {"item_id": item, "arm": arm, "outcome": {"name": "failed"} if reward is None else {"reward": reward}}
        for item, each in rewards.items()
        for reward in each
    ]
    items = [{"item_id": item, "prompt": (questions or {}).get(item, item), "answer": "1"} for item in rewards]
    for path, lines in ((run.rollouts, rows), (run.items, items)):
        with path.open("a") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in lines)
        seal(path)


def test_items_are_paired_what_got_worse_comes_first_and_the_rest_is_counted(task):
    before = {"a": [1, 1], "b": [0, 1], "c": [0], "gone": [1], "lost": [1], "other": [1]}
    after = {"a": [0, 1], "b": [1], "c": [0], "new": [1], "lost": [None], "other": [0]}
    attempted(task, "one", 1, before, settings={"model.name": "m", "tfgrpo.night": "0"})
    attempted(task, "two", 2, after, settings={"model.name": "n", "tfgrpo.night": "1"}, questions={"other": "another"})
    found = task.ask("compare", "one", "two")
    assert (found["before"], found["after"], found["settings"]) == ("one", "two", {"model.name": ["m", "n"]})
    arm = found["arms"]["library"]
    assert [(each["item_id"], each["difference"]) for each in arm["items"]] == [("a", -0.5), ("c", 0.0), ("b", 0.5)]
    assert (arm["before"], arm["after"]) == (0.5, 0.5)
    assert arm["difference"]["low"] < arm["difference"]["mean"] == 0.0 < arm["difference"]["high"]
    apart = [arm[name] for name in ("only_before", "only_after", "lost", "changed")]
    assert apart == [["gone"], ["new"], ["lost"], ["other"]]
    printed = task.tell("compare", "one", "two").out.splitlines()
    assert printed[:2] == ["one → two", "setting model.name: m → n"]
    assert printed[2].startswith("with lessons: 0.500 → 0.500 over 3 items; difference +0.000 (95 %: -")
    assert printed[2].endswith(
        "1 worse, 1 better; 1 only before (gone); 1 only after (new); 1 without a reward in one of them (lost); "
        "1 with another question or reference, not compared (other)"
    )
    assert [line.split() for line in printed[4:]] == [
        ["a", "1.000", "0.500", "-0.500"],
        ["c", "0.000", "0.000", "+0.000"],
        ["b", "0.500", "1.000", "+0.500"],
    ]
    assert task.ask("compare", "two") == found
    assert task.ask("compare", "two", "one")["arms"]["library"]["items"][0]["difference"] == -0.5


def test_a_run_is_compared_with_the_one_before_it_of_the_same_kind_and_of_model(task):
    runs = (("one", False, 1), ("dry", True, 1), ("measures", False, None), ("two", False, 2))
    for day, (run_id, simulated, night) in enumerate(runs, start=1):
        attempted(task, run_id, day, {"a": [1]}, simulated=simulated, night=night)
    assert task.ask("compare", "two")["before"] == "one"
    for alone in ("dry", "measures"):
        assert "with the same kind of model" in task.tell("compare", alone, code=2).err


def test_arms_are_compared_apart_and_a_single_pair_has_no_interval(task):
    for run_id, day in (("one", 1), ("two", 2)):
        attempted(task, run_id, day, {"a": [day - 1]}, arm="one")
        attempted(task, run_id, day, {"a": [1]}, arm="none")
    arms = task.ask("compare", "two")["arms"]
    assert {name: (arm["after"], arm["difference"]) for name, arm in arms.items()} == {"none": (1, None), "group": (1, None)}
    assert "95 %" not in task.tell("compare", "two").out


def test_lessons_that_came_and_left_between_two_runs_are_listed(task):
    task.learn(("do", UNITS), ("avoid", CENTS), simulated=False)
    first, second = task.ids
    for day, (run_id, ids) in enumerate({"one": (first,), "two": (second,)}.items(), start=1):
        attempted(task, run_id, day, {"a": [1]})
        task.decide("in force", ids, run_id=run_id, simulated=False)
    found = task.ask("compare", "two")
    assert (found["removed"], found["added"]) == ([first], [second])
    lines = [f"- {first}  do: {UNITS}", f"+ {second}  avoid: {CENTS}"]
    assert task.tell("compare", "two").out.splitlines()[1:3] == lines
    assert task.ask("compare", "two", "two")["added"] == []


def test_what_cannot_be_compared_is_refused_with_what_can(task):
    attempted(task, "one", 1, {"a": [1]})
    attempted(task, "bare", 2, {})
    for asked, said in (
        (["one"], "a run with an earlier one of its kind, with the same kind of model, that recorded attempts; or two runs"),
        (["one", "nope"], "a run of "),
        (["one", "bare"], "two runs with recorded attempts in the same arm"),
    ):
        assert said in task.tell("compare", *asked, code=2).err


def test_a_run_that_has_lost_attempts_since_its_end_is_not_compared(task):
    for day, name in enumerate(("one", "two"), start=1):
        attempted(task, name, day, {"a": [1], "b": [0]})
        ManifestFile(task.paths.run(name).manifest).update(files=extents(task.paths.run(name)))
    task.tell("compare", "one", "two")
    rollouts = task.paths.run("two").rollouts
    rollouts.write_text("".join(rollouts.read_text().splitlines(keepends=True)[:-1]))
    said = task.tell("compare", "one", "two", code=1)
    assert said.out == ""
    assert "rollouts.jsonl: was changed since its run ended (1 lines, 2 at the end of its run)" in said.err
