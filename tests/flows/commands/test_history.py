"""Every night and change of the library is listed, and every known lesson with what it is worth."""

import json
import re
from datetime import UTC, datetime

import pytest

from tests.support.records.line_files import seal
from tests.support.records.promotions import gain
from tests.support.records.tasks import CENTS, TWICE, UNITS, Task
from tests.support.runs import running as kit
from tfgrpo.prompt_packs.stamps import load_prompt_pack, pack_stamp
from tfgrpo.stores.experiences.decisions import OVERTAKEN
from tfgrpo.stores.experiences.store import ExperienceRecord, stamp_record
from tfgrpo.stores.ledger import Totals

pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def task(tmp_path, capsys):
    task = Task(tmp_path / "out", kit.TASK, capsys)
    task.learn(("do", UNITS), ("avoid", CENTS))
    return task


GAIN = "+6.2 (+2.9 … +9.5)"


def reviewed(task):
    return {each["experience_id"]: each for each in task.ask("experiences", "review")["lessons"]}


def ended(task, run_id, *, day, **fields):
    """Write the manifest of a run of the simulated model."""
    run = task.paths.run(run_id)
    run.root.mkdir(parents=True)
    known = {"schema_version": 1, "run_id": run_id, "status": "finished", "simulated": True, "model": "m"}
    when = {"started_at": f"2026-01-{day:02}T00:00:00+00:00"}
    run.manifest.write_text(json.dumps({**known, **when, **fields}))


def test_nights_and_changes_of_people_are_lines_of_one_table_the_newest_last(task):
    first, second = task.ids
    figures = {"total": gain(6.2, 1.7), "held_out": gain(5.1, 2.0)}
    at = {f"n{day}": {"run_id": f"n{day}", "decided_at": datetime(2026, 1, day, tzinfo=UTC)} for day in range(2, 6)}
    spent, edited = Totals(calls=400, nano_usd=1_500_000_000).to_json(), {"pack": {"id": "general", "stamp": "b" * 64}}
    ended(task, "n2", day=2, ledger=spent, pack={"id": "general", "stamp": "a" * 64})
    task.decide("in force", (first, second, "exp-new"), proven=True, **at["n2"], **figures)
    ended(task, "n3", day=3, model="other", ledger=spent)
    task.decide("in force", (first, second, "exp-new"), **at["n3"], **figures)
    ended(task, "capped", day=4, status="stopped", model="other", message="the budget is spent: max_calls 9 is reached")
    ended(task, "killed", day=4, status="running", model="other", **edited, items_changed="90 items new, 0 gone")
    task.decide("taken back", **at["n5"], total=gain(-0.4), held_out=gain(-1.0))
    task.tell("experiences", "rollback", "1", "--why", "worse", "--by", "Bob")
    task.tell("experiences", "retire", second, "--why", "harms refunds", "--by", "Ann")
    nights = [each for each in task.ask("history")["nights"] if each["number"] != 1]
    assert [(each["number"], each["outcome"], each["lessons"], each["added"], each["removed"]) for each in nights] == [
        (2, "in force", 3, ["exp-new"], []),
        (3, "in force", 3, [], []),
        (None, "stopped", None, [], []),
        (None, "unfinished", None, [], []),
        (4, "taken back", 0, [], [first, second, "exp-new"]),
        (5, "rollback", 2, [first, second], []),
        (6, "retire", 1, [], [second]),
    ]
    assert [each["news"] for each in nights[:4]] == [
        [],
        ["model other"],
        [],
        ["pack general (bbbbbbbbbbbb)", "90 items new, 0 gone"],
    ]
    assert [(each["calls"], each["spent"]) for each in nights[1:3]] == [(400, "$1.5000"), (None, None)]
    assert nights[0]["why"] == (
        "In force: +6.2 points over no lessons (95 %: +2.9 … +9.5), 99.99 % likely to help; held-out tasks agree (+5.1); proven"
    )
    assert [each["why"] for each in nights[5:]] == [
        "back to import-1, decision 1: worse; by Bob",
        f"{second}: harms refunds; by Ann",
    ]
    assert nights[0]["decision"]["total"]["likely"] == figures["total"].likely
    rows = [line for line in task.tell("history").out.splitlines() if "import-1 " not in line]
    assert [re.split(r"\s{2,}", row.strip()) for row in rows[1:5]] == [
        ["2", "2026-01-02 00:00", "in force, proven (SIMULATED)", GAIN, "3 (+1 −0)", "400", "$1.5000", "n2"],
        ["3", "2026-01-03 00:00", "in force (SIMULATED)", GAIN, "3 (+0 −0)", "400", "$1.5000", "n3", "model other"],
        ["2026-01-04 00:00", "stopped (SIMULATED)", *"––––", "capped", "the budget is spent: max_calls 9 is reached"],
        ["2026-01-04 00:00", "unfinished (SIMULATED)", *"––––", "killed", "; ".join(nights[3]["news"])],
    ]
    assert rows[-1].endswith(f"{second}: harms refunds; by Ann")


def test_a_night_that_another_run_overtook_is_no_decision_with_its_figures(task):
    task.decide("in force", task.ids, proven=True, total=gain(6.2, 1.7), notes=(OVERTAKEN,), run_id="n2")
    assert re.split(r"\s{2,}", task.tell("history").out.splitlines()[-1].strip())[2:4] == [
        "decided nothing (overtaken) (SIMULATED)", "–",
    ]  # fmt: skip


def test_a_broken_chain_is_said(task):
    task.learn(("do", TWICE))
    lines = task.paths.promotions.read_text().splitlines(keepends=True)
    task.paths.promotions.write_text(lines[1])
    assert "does not continue the chain" in task.tell("history").err
    assert task.ask("history")["problems"]


def test_lessons_on_trial_are_reviewed_of_the_kind_of_model_that_learned_last(tmp_path, capsys):
    fresh = Task(tmp_path / "out", "fresh", capsys)
    fresh.learn(("do", TWICE), in_force=False)
    assert [each["text"] for each in fresh.ask("experiences", "review")["lessons"]] == [TWICE]
    fresh.learn(("do", UNITS), in_force=False, simulated=False)
    assert [each["text"] for each in fresh.ask("experiences", "review")["lessons"]] == [UNITS]


def test_a_review_shows_what_each_lesson_is_worth_those_in_force_first_and_what_to_do(task):
    first, second = task.ids
    task.learn(("do", TWICE), in_force=False)
    (third,) = reviewed(task).keys() - {first, second}
    task.measure(third, difference=0.3, rows=9)
    task.say(third, "contradicted", -1.0, group_id="n1:g7")
    task.say(first, "confirmed", 1.0, group_id="n1:g8")
    task.tell("experiences", "retire", second, "--why", "harms refunds")
    told = task.tell("experiences", "review")
    assert [line.split()[0] for line in told.out.splitlines() if line.startswith("exp-")] == [first, third, second]
    assert f"{second}  kept out (harms refunds): " in told.out
    assert f"do: {UNITS}\n    first learned in import-1, from no group" in told.out
    assert "support +5.0 (1 group for, 0 against); 0 nights old" in told.out
    assert "retire ID --why TEXT" in told.err
    lessons = reviewed(task)
    assert [(each["state"], each["groups_for"], each["groups_against"]) for each in lessons.values()] == [
        ("in force", 1, 0),
        ("on trial", 0, 1),
        ("kept out", 0, 0),
    ]
    effect = lessons[third]["effect"]
    assert effect["attempts"] == 36
    assert effect["low"] < effect["mean"] < effect["high"]
    assert f"on trial: {effect['mean']:+.1f} points ({effect['low']:+.1f} … " in told.out
    assert all(each["tokens"] > 0 for each in lessons.values())
    assert lessons[second]["kept_out"] == "harms refunds"


def test_a_review_shows_why_a_lesson_holds_which_contradict_each_other_and_what_the_other_is_worth(task):
    first, second = task.ids
    task.say(first, "contradicted", -1.0, opposite=second)
    printed = task.tell("experiences", "review").out
    assert f"contradicts {second}, in force: " in printed
    assert f"contradicts {first}, in force: " in printed
    assert [each["opposites"] for each in reviewed(task).values()] == [[second], [first]]
    (shown,) = task.ask("experiences", "show", first)["experiences"]
    assert shown["opposites"] == [second]
    pack = pack_stamp(load_prompt_pack("arithmetic"))
    lines = [json.dumps(row) for row in kit.lines(task.paths.experiences)]
    because = ExperienceRecord.model_validate_json(lines[0]).model_copy(update={"cause": "Cents were added to euros."})
    task.paths.experiences.write_text("\n".join([stamp_record(because, pack).model_dump_json(), lines[1], ""]))
    seal(task.paths.experiences)
    assert "\n    because Cents were added to euros.\n" in task.tell("experiences", "review").out
    assert [each["cause"] for each in reviewed(task).values()] == ["Cents were added to euros.", None]
