"""What is in force is changed by a command, a lesson leaves by a command, and both are on record."""

import json
from dataclasses import replace
from unittest.mock import Mock

import pytest

from tests.support.records.line_files import seal
from tests.support.records.tasks import CENTS, TWICE, UNITS, Task
from tests.support.runs import running as kit
from tests.support.runs.selections import plan as planned
from tfgrpo.stores.experiences.credit import PERSON_GROUPS, CreditFile, Word, read_credit
from tfgrpo.stores.experiences.decisions import chain_problems, read_decisions

pytestmark = pytest.mark.usefixtures("at_home")
CURRENCY = "Ask for the currency."


@pytest.fixture
def task(tmp_path, capsys):
    """Two libraries came into force, the second with one lesson more."""
    task = Task(tmp_path / "out", kit.TASK, capsys)
    task.learn(("do", UNITS), ("avoid", CENTS))
    task.learn(("do", TWICE))
    return task


def states(task):
    return {each["experience_id"]: each["state"] for each in task.ask("experiences", "review")["lessons"]}


def words(task, run_id):
    return [line for line in read_credit(task.paths.credit) if isinstance(line, Word) and line.run_id == run_id]


def test_after_a_rollback_the_next_run_begins_with_the_earlier_library_and_it_is_served(task):
    assert task.texts == [UNITS, CENTS, TWICE]
    before = task.ids[:2]
    said = task.tell("experiences", "rollback", "1", "--why", "it got worse", "--by", "Bob")
    assert "2 lessons" in said.err
    assert (task.texts, task.decisions) == ([UNITS, CENTS], ["import", "import", "rollback"])
    last = list(read_decisions(task.paths.promotions))[-1]
    assert (last.who, last.why, last.run_id) == ("Bob", "back to import-1, decision 1: it got worse", "rollback-3")
    assert chain_problems(task.paths.promotions) == []
    assert task.ask("verify", task.paths.root.name)["ok"]
    out = task.paths.root.parent
    assert planned(dry_run=True, task_id=kit.TASK, out=str(out)).spec.pack.experience_ids == tuple(before)
    kit.run(out, run_id="later", seed=2, **kit.SMALL)
    assert kit.manifest(out, "later")["in_force"]["experience_ids"] == before


def test_a_run_that_is_called_by_a_number_is_meant_before_the_change_of_that_number(task):
    ids = task.ids
    task.decide("in force", ids[:1], run_id="4")  # change 3
    task.decide("in force", ids, run_id="later")  # change 4
    task.tell("experiences", "rollback", "4", "--by", "Bob")
    assert task.texts == [UNITS]


def test_a_library_comes_back_with_the_support_of_four_groups_for_each_lesson(task):
    task.tell("experiences", "rollback", "none")
    task.tell("experiences", "rollback", "1")
    back = words(task, "rollback-4")
    assert [(each.experience_id, each.said, each.amount) for each in back] == [
        (name, "brought in", PERSON_GROUPS) for name in task.ids
    ]
    assert words(task, "rollback-3") == []


def test_a_rollback_is_taken_back_by_a_rollback_and_none_is_no_library(task):
    task.tell("experiences", "rollback", "import-1")
    task.tell("experiences", "rollback", "2")
    assert task.texts == [UNITS, CENTS, TWICE]
    assert task.ask("experiences", "rollback", "none")["change"]["experience_ids"] == []
    assert task.texts == []
    assert json.loads(task.paths.state.read_text())["in_force"]["experiences"] == []
    assert "in force" in task.tell("experiences", "rollback", "none").err
    assert task.ask("experiences", "rollback", "none") == {"change": None}
    assert len(task.decisions) == 5


def test_a_rollback_of_the_simulated_library_leaves_the_real_one(task):
    task.learn(("do", CURRENCY), simulated=False)
    task.tell("experiences", "rollback", "1")
    assert task.texts == [CURRENCY]
    task.tell("experiences", "rollback", "none")
    assert task.texts == []


def test_an_unknown_decision_is_refused_with_those_that_there_are(task):
    task.decide("taken back")
    task.decide("in force", [])
    for to in ("0", "3", "nobody", ""):
        said = task.tell("experiences", "rollback", to, code=2).err
        assert said.startswith("tfgrpo: TO: got")
        assert said.endswith("none, or a change of `tfgrpo history`: 1 (import-1), 2 (import-2)\n")
        assert said.count("\n") == 1


def test_a_library_with_a_lesson_that_does_not_verify_does_not_come_back(task):
    text = task.paths.experiences.read_text()
    task.paths.experiences.write_text(text.replace(UNITS, "Name no unit of any figure."))
    seal(task.paths.experiences)
    said = task.tell("experiences", "rollback", "1", code=2).err
    assert "of whose lessons 1 do not verify: exp-" in said
    assert task.decisions == ["import", "import"]


def test_a_retired_lesson_leaves_the_library_and_stays_out_whatever_speaks_for_it(task):
    name = task.ids[0]
    assert "2 lessons" in task.tell("experiences", "retire", name[:12], "--why", "harms refunds").err
    assert (task.texts, task.decisions[-1]) == ([CENTS, TWICE], "retire")
    last = list(read_decisions(task.paths.promotions))[-1]
    assert (last.reasons, last.run_id, bool(last.who)) == ({name: "harms refunds"}, "retire-3", True)
    assert states(task)[name] == "kept out"
    for night in range(9):
        task.decide("in force", task.ids)
        task.measure(name, difference=0.4, night=night)
    assert states(task)[name] == "kept out"
    assert "is kept out already" in task.tell("experiences", "retire", name, "--why", "again").err


def test_a_retired_lesson_comes_back_with_a_library_that_has_it(task):
    name = task.ids[0]
    task.tell("experiences", "retire", name, "--why", "harms")
    task.tell("experiences", "rollback", "2")
    assert task.ids[0] == name
    assert states(task)[name] == "in force"
    task.tell("experiences", "retire", name, "--why", "harms after all")
    assert name not in task.ids


def test_a_lesson_on_trial_is_retired_without_a_change_of_the_library(task):
    before = task.ids
    task.learn(("do", CURRENCY), in_force=False)
    (name,) = (name for name, state in states(task).items() if state == "on trial")
    change = task.ask("experiences", "retire", name, "--why", "no use")["change"]
    assert (change["experience_ids"], change["reasons"]) == (before, {name: "no use"})
    assert states(task)[name] == "kept out"
    assert task.ask("experiences", "retire", name, "--why", "no use") == {"change": None}


def test_a_rollback_that_was_cut_off_between_its_two_files_is_completed_by_the_same_command(task, monkeypatch):
    with monkeypatch.context() as killed:
        killed.setattr("tfgrpo.flows.commands.lessons.experiences.bring_in", Mock(side_effect=KeyboardInterrupt))
        task.tell("experiences", "rollback", "1", code=3)
    assert task.decisions == ["import", "import"]
    task.tell("experiences", "rollback", "1")
    assert task.texts == [UNITS, CENTS]


MISTAKES = (
    (("approve", "ID"), "--why: got nothing; accepted: a text of 1 to 200"),
    (("retire", "ID"), "--why: got nothing; accepted: a text of 1 to 200"),
    (("retire", "ID", "--why", " "), "--why: got ' '"),
    (("retire", "ID", "--why", "x" * 201), "--why"),
    (("retire", "ID", "--why", "x", "--by", ""), "--by"),
    (("retire", "--why", "x"), "ID: got nothing"),
    (("retire", "nobody", "--why", "x"), "ID: got 'nobody'"),
    (("rollback",), "TO: got nothing"),
    (("rollback", "1", "2"), "a word too many"),
    (("rollback", "1", "--why", ""), "--why"),
    (("review", "--why", "x"), "--why: got an unknown option"),
)


def test_bad_input_is_one_error_and_changes_nothing(task):
    first = task.ids[0]
    for arguments, says in MISTAKES:
        said = task.tell("experiences", *(first if word == "ID" else word for word in arguments), code=2).err
        assert says in said
        assert said.count("\n") == 1
    assert task.decisions == ["import", "import"]


def test_a_lesson_that_only_traffic_of_strangers_speaks_for_goes_on_trial_once_a_person_approves_it(task):
    before = task.ids
    task.learn(("do", CURRENCY), in_force=False)
    (name,) = (name for name, state in states(task).items() if state == "on trial")
    seen = read_credit(task.paths.credit)
    task.paths.credit.unlink()  # as if the import had been of strangers
    CreditFile(task.paths.credit).append(
        replace(line, foreign=True, said="taught") if isinstance(line, Word) and line.experience_id == name else line
        for line in seen
    )
    task.decide("in force", before)
    (held,) = (each for each in task.ask("experiences", "review")["lessons"] if each["experience_id"] == name)
    assert (held["state"], held["kept_out"].split(":")[0]) == ("kept out", "held")
    change = task.ask("experiences", "approve", name, "--why", "read it")["change"]
    assert (change["decision"], change["experience_ids"], change["reasons"]) == ("approve", before, {name: "read it"})
    assert states(task)[name] == "on trial"
    assert task.ask("experiences", "approve", name, "--why", "again") == {"change": None}


def test_approving_a_retired_lesson_lets_it_in_again_and_changes_nothing_in_force(task):
    name = task.ids[0]
    task.tell("experiences", "retire", name, "--why", "harms refunds")
    rest = task.ids
    said = task.tell("experiences", "approve", name, "--why", "does not").err
    assert f"{name} is let in: the next run has it on trial" in said
    assert task.tell("history").out.count("does not") == 1
    assert task.ids == rest
    assert states(task)[name] == "on trial"
