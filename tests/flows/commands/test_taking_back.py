"""A promotion is undone by a command, a lesson leaves by a command, and both are on record."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from unittest.mock import Mock

import pytest

import tfgrpo
from tests.support.records.promotions import record_promotion
from tests.support.records.tasks import CENTS, TWICE, UNITS, Task
from tests.support.runs import running as kit
from tests.support.runs.selections import plan as planned
from tfgrpo.stores.experiences.accounts import RETIRED_NIGHTS, AccountEvent, append_events, read_events
from tfgrpo.stores.experiences.library import Promotion, chain_problems, nights_before, promotions

pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def task(tmp_path, capsys):
    """Two libraries were promoted, the second with one lesson more."""
    task = Task(tmp_path / "out", kit.TASK, capsys)
    task.learn(("do", UNITS), ("avoid", CENTS))
    task.learn(("do", TWICE))
    return task


def nights(task, count):
    """Let the gate decide nothing, night after night."""
    for number in range(count):
        one = {"run_id": f"n{number}", "decided_at": datetime(2026, 1, 1, tzinfo=UTC), "decision": "undecided"}
        figures = {"estimate": None, "low": None, "high": None, "pairs": 0}
        record_promotion(
            task.paths.promotions, Promotion(**one, **figures, experience_ids=(), library_id="", simulated=True)
        )


def test_after_a_rollback_the_next_run_begins_with_the_earlier_library_and_it_is_served(task):
    assert task.texts == [UNITS, CENTS, TWICE]
    before = task.ids[:2]
    said = task.tell("experiences", "rollback", "1", "--why", "it got worse", "--by", "Bob")
    assert "2 lessons" in said.err
    assert (task.texts, task.decisions) == ([UNITS, CENTS], ["promote", "promote", "rollback"])
    last = list(promotions(task.paths.promotions))[-1]
    assert (last.who, last.why, last.run_id) == (
        "Bob",
        f"back to {next(promotions(task.paths.promotions)).run_id}, decision 1: it got worse",
        "rollback-3",
    )
    assert chain_problems(task.paths.promotions) == []
    assert task.ask("experiences", "verify")["ok"]
    out = task.paths.root.parent
    assert planned(dry_run=True, task_id=kit.TASK, out=str(out)).spec.pack.experience_ids == tuple(before)
    kit.run(out, run_id="later", sample_size=2, batch_size=2, seed=2)
    assert kit.manifest(out, "later")["champion"]["experience_ids"] == before
    prompt = tfgrpo.prompt(kit.TASK, out=str(out))
    assert UNITS in prompt
    assert TWICE not in prompt


def test_a_rollback_is_taken_back_by_a_rollback_and_none_is_no_library(task):
    first = next(promotions(task.paths.promotions)).run_id
    task.tell("experiences", "rollback", first)
    task.tell("experiences", "rollback", "2")
    assert task.texts == [UNITS, CENTS, TWICE]
    assert task.ask("experiences", "rollback", "none")["change"]["experience_ids"] == []
    assert task.texts == []
    assert json.loads(task.paths.state.read_text())["champion"]["experiences"] == []
    assert "in force" in task.tell("experiences", "rollback", "none").err
    assert task.ask("experiences", "rollback", "none") == {"change": None}
    assert len(task.decisions) == 5


def test_a_rollback_of_the_simulated_library_leaves_the_real_one(task):
    task.learn(("do", "Ask for the currency."), simulated=False)
    task.tell("experiences", "rollback", "1")
    assert task.texts == ["Ask for the currency."]
    task.tell("experiences", "rollback", "none")
    assert task.texts == []


@pytest.mark.parametrize("to", ["0", "3", "9", "nobody", "", "-1", "²"])
def test_an_unknown_decision_is_refused_with_those_that_there_are(task, to):
    nights(task, 1)
    said = task.tell("experiences", "rollback", to, code=2).err
    assert "TO: got" in said
    assert "none, or a change of `tfgrpo history`: 1 (import-" in said
    assert "3 (" not in said, "a decision that changed nothing"
    assert said.count("\n") == 1


def test_before_any_promotion_there_is_nothing_to_go_back_to(tmp_path, capsys):
    task = Task(tmp_path / "out", "fresh", capsys)
    task.learn(("do", UNITS), promote=False)
    for to in ("none", "1"):
        assert "a task whose library ever changed" in task.tell("experiences", "rollback", to, code=2).err
    assert not task.paths.promotions.exists()


def test_a_library_with_a_lesson_that_does_not_verify_does_not_come_back(task):
    text = task.paths.experiences.read_text()
    task.paths.experiences.write_text(text.replace(UNITS, "Name no unit of any figure."))
    said = task.tell("experiences", "rollback", "1", code=2).err
    assert "of whose lessons 1 do not verify: exp-" in said
    assert task.decisions == ["promote", "promote"]


def test_a_retired_lesson_leaves_the_library_and_stays_out_six_nights(task):
    name = task.ids[0]
    assert "2 lessons" in task.tell("experiences", "retire", name[:12], "--why", "harms refunds").err
    assert (task.texts, task.decisions[-1]) == ([CENTS, TWICE], "retire")
    last = list(promotions(task.paths.promotions))[-1]
    assert (last.reasons, last.run_id, bool(last.who)) == ({name: "harms refunds"}, "retire-3", True)
    retired = [event for event in read_events(task.paths.accounts) if event.kind == "retired"]
    assert [(event.experience_id, event.why) for event in retired] == [(name, "harms refunds")]
    for _ in range(RETIRED_NIGHTS):
        lesson = next(each for each in task.ask("experiences", "review")["lessons"] if each["experience_id"] == name)
        assert (lesson["retired"], lesson["in_force"]) == (True, False)
        nights(task, 1)
    reviewed = {each["experience_id"]: each["retired"] for each in task.ask("experiences", "review")["lessons"]}
    assert reviewed[name] is False


def test_a_retired_lesson_comes_back_with_a_library_that_has_it(task):
    name = task.ids[0]
    task.tell("experiences", "retire", name, "--why", "harms")
    task.tell("experiences", "rollback", "2")
    assert task.ids[0] == name
    reviewed = task.ask("experiences", "review")["lessons"]
    assert not any(each["retired"] for each in reviewed)
    task.tell("experiences", "retire", name, "--why", "harms after all")
    assert name not in task.ids


def test_a_lesson_that_does_not_verify_is_not_dropped_with_another(task):
    first, second, third = task.ids
    task.paths.experiences.write_text(task.paths.experiences.read_text().replace(CENTS, "Keeping the cents."))
    task.tell("experiences", "retire", first, "--why", "harms")
    assert list(promotions(task.paths.promotions))[-1].experience_ids == (second, third)


def test_a_known_lesson_that_is_not_in_force_is_retired_without_a_change_of_the_library(task):
    task.learn(("do", "Ask for the currency."), promote=False)
    name = task.ask("experiences", "review")["lessons"][-1]["experience_id"]
    for _ in range(2):
        assert "is retired; it was not in force" in task.tell("experiences", "retire", name, "--why", "no use").err
    assert task.decisions == ["promote", "promote"]
    assert [event.kind for event in read_events(task.paths.accounts) if event.experience_id == name] == [
        "taught",
        "retired",
    ]


@pytest.mark.parametrize("command", [("retire", "ID", "--why", "harms"), ("rollback", "1")])
def test_a_change_that_was_cut_off_between_its_two_files_is_completed_by_the_same_command(task, monkeypatch, command):
    name = task.ids[0]
    if command[0] == "rollback":
        task.tell("experiences", "retire", name, "--why", "harms")
    given = [name if word == "ID" else word for word in command]
    before, texts = task.decisions, task.texts
    with monkeypatch.context() as killed:
        killed.setattr("tfgrpo.flows.commands.lessons.review._line", Mock(side_effect=KeyboardInterrupt))
        task.tell("experiences", *given, code=3)
    assert (task.decisions, task.texts) == (before, texts)
    task.tell("experiences", *given)
    assert task.decisions == [*before, command[0]]
    assert (name in task.ids) is (command[0] == "rollback")
    lessons = task.ask("experiences", "review")["lessons"]
    assert {each["retired"] for each in lessons if each["experience_id"] == name} == {command[0] == "retire"}


@pytest.mark.parametrize("in_force", [True, False])
def test_a_lesson_that_a_measurement_brought_back_is_retired_again_by_a_person(task, in_force):
    """A measurement of the same night, in its last epoch: what a person says afterwards is the last word."""
    if not in_force:
        task.learn(("do", "Ask for the currency."), promote=False)
    name = task.ask("experiences", "review")["lessons"][-1]["experience_id"]
    task.tell("experiences", "retire", name, "--why", "harms")
    fields = {"experience_id": name, "kind": "restored", "run_id": "measure", "simulated": True, "night": 0, "epoch": 3}
    append_events(task.paths.accounts, [AccountEvent(**fields, created_at=datetime(2026, 1, 1, tzinfo=UTC)).named()])
    assert not any(each["retired"] for each in task.ask("experiences", "review")["lessons"])
    task.tell("experiences", "retire", name, "--why", "harms")
    (lesson,) = (each for each in task.ask("experiences", "review")["lessons"] if each["experience_id"] == name)
    assert lesson["retired"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("retire", "ID"), "--why: got nothing; accepted: a text of 1 to 200"),
        (("retire", "ID", "--why", " "), "--why: got ' '"),
        (("retire", "ID", "--why", "x" * 201), "--why"),
        (("retire", "ID", "--why", "x", "--by", ""), "--by"),
        (("retire", "--why", "x"), "ID: got nothing"),
        (("retire", "nobody", "--why", "x"), "ID: got 'nobody'"),
        (("rollback",), "TO: got nothing"),
        (("rollback", "1", "2"), "1 word too many"),
        (("rollback", "1", "--why", ""), "--why"),
        (("review", "--why", "x"), "retire or rollback only"),
    ],
)
def test_bad_input_is_one_error_and_changes_nothing(task, arguments, says):
    given = [task.ids[0] if word == "ID" else word for word in arguments]
    said = task.tell("experiences", *given, code=2).err
    assert says in said
    assert said.count("\n") == 1
    assert task.decisions == ["promote", "promote"]


def test_what_people_take_in_or_back_is_no_night(task):
    task.tell("experiences", "rollback", "1")
    task.tell("experiences", "retire", task.ids[0], "--why", "x")
    assert nights_before(promotions(task.paths.promotions)) == 0
    nights(task, 2)
    assert nights_before(promotions(task.paths.promotions)) == 2


def test_a_superseded_lesson_is_neither_known_nor_retired(task):
    old = task.ids[2]
    task.learn(("do", "Check the sum twice before you answer."), promote=False, how="--theirs")
    task.tell("experiences", "rollback", "1")
    assert old not in {each["experience_id"] for each in task.ask("experiences", "review")["lessons"]}
    assert "a lesson in force or known" in task.tell("experiences", "retire", old, "--why", "x", code=2).err
