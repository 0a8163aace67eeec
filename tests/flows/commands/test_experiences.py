"""What a task has learned can be listed, traced back, compared, checked and taken along."""

import json

import pytest

from tests.support.records.line_files import seal
from tests.support.records.promotions import ids_in_force
from tests.support.records.tasks import CENTS, TWICE, UNITS, Task
from tests.support.runs import running as kit
from tfgrpo.flows import cli
from tfgrpo.prompt_packs.stamps import load_prompt_pack, pack_stamp
from tfgrpo.stores.experiences.store import ExperienceRecord, stamp_record

pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def task(tmp_path, capsys):
    """A task with two lessons in force and one on trial."""
    task = Task(tmp_path / "out", kit.TASK, capsys)
    task.learn(("do", UNITS), ("avoid", CENTS))
    task.learn(("do", TWICE), in_force=False)
    return task


@pytest.fixture
def ask(capsys, small_run):
    def ask(*arguments, out=small_run.out, code=0):
        assert cli.main(["experiences", *arguments, "--out", str(out)]) == code
        return capsys.readouterr()

    return ask


@pytest.fixture
def in_force(small_run):
    ids = ids_in_force(small_run.task.promotions)
    assert ids
    return ids


def records(task):
    return kit.lines(task.experiences)


def test_the_lessons_in_force_are_listed_a_line_each_with_effect_and_evidence_and_exported(task):
    first, second = task.ids
    task.measure(first, difference=0.2, rows=5)
    task.say(first, "confirmed", 1.0, group_id="n0:g1")
    task.say(first, "contradicted", -1.0, group_id="n0:g2")
    head, *lines = task.tell("experiences", "list").out.splitlines()
    assert head.split() == ["id", "state", "effect", "for", "against", "tokens", "says", "lesson"]
    assert [line.split()[0] for line in lines] == [first, second]
    listed = {each["experience_id"]: each for each in task.ask("experiences", "list")["experiences"]}
    effect = listed[first]["effect"]
    assert (effect["attempts"], listed[first]["groups_for"], listed[first]["groups_against"]) == (20, 1, 1)
    assert f"{effect['mean']:+.1f} points ({effect['low']:+.1f} … {effect['high']:+.1f}), 20 attempts" in lines[0]
    assert listed[second]["effect"]["attempts"] == 0
    for name, each in listed.items():
        assert task.ask("experiences", "show", name)["experiences"] == [each]
    assert task.tell("experiences", "export").out == f"- Do: {UNITS}\n- Avoid: {CENTS}\n", "to be pasted into a prompt"
    asked = [task.ask("experiences", "export", *how) for how in (("--to", "json"), ())]
    assert asked[0] == asked[1]
    assert [lesson["id"] for lesson in asked[0]["lessons"]] == [first, second]
    effect = asked[0]["lessons"][0]["effect"]
    assert ({*effect}, effect["attempts"]) == ({"mean", "low", "high", "likely", "attempts"}, 20)


def test_all_lists_every_record_of_both_kinds_of_model_with_its_state(task):
    task.learn(("do", "Ask for the currency."), in_force=False, simulated=False)
    ids = task.ids
    lines = task.paths.credit.read_text().splitlines(keepends=True)
    task.paths.credit.write_text("".join(line for line in lines if ids[1] not in line))
    seal(task.paths.credit)
    for path in (task.paths.promotions, task.paths.state):  # which know that a line is lost
        path.unlink()
    task.decide("in force", ids[:1])
    listed = task.ask("experiences", "list", "--all")["experiences"]
    assert {each["summary32"]: each["state"] for each in listed} == {
        UNITS: "in force",
        CENTS: "forgotten",
        TWICE: "on trial",
        "Ask for the currency.": "on trial",
    }
    assert len(task.tell("experiences", "list", "--all").out.splitlines()) == 1 + len(listed)


def test_what_was_measured_of_an_older_wording_counts_for_the_newer_one(task):
    first = task.ids[0]
    task.measure(first, difference=0.2, rows=5)
    text = json.dumps(records(task.paths)[0])
    fields = {"experience_id": "exp-newer", "operation": "modify", "supersedes": (first,), "summary32": "Name units."}
    newer = ExperienceRecord.model_validate_json(text).model_copy(update=fields)
    with task.paths.experiences.open("a") as file:
        file.write(stamp_record(newer, pack_stamp(load_prompt_pack("arithmetic"))).model_dump_json() + "\n")
    seal(task.paths.experiences)
    task.say("exp-newer", "confirmed", 1.0)
    task.tell("experiences", "rollback", "none")
    listed = {each["experience_id"]: each for each in task.ask("experiences", "list", "--all")["experiences"]}
    assert (listed[first]["state"], listed["exp-newer"]["state"]) == ("reworded", "on trial")
    assert listed[first]["effect"] == listed["exp-newer"]["effect"]
    assert listed["exp-newer"]["effect"]["attempts"] == 20
    task.tell("experiences", "retire", first, "--why", "harms")
    (shown,) = task.ask("experiences", "show", "exp-newer")["experiences"]
    assert (shown["state"], shown["kept_out"]) == ("kept out", "harms")


def test_an_unknown_or_ambiguous_id_is_refused_and_a_record_that_is_there_twice_is_one_lesson(task):
    for name, says in (("exp-", "one of exp-"), ("nobody", "list --all")):
        assert says in task.tell("experiences", "show", name, code=2).err
    first = task.ids[0]
    with task.paths.experiences.open("a") as file:
        file.write(task.paths.experiences.read_text())
    for name in (first, first[:-1]):
        assert [each["summary32"] for each in task.ask("experiences", "show", name)["experiences"]] == [UNITS]


def test_blame_names_the_rollouts_that_showed_a_lesson(ask, in_force, small_run):
    record = next(row for row in records(small_run.task) if row["experience_id"] == in_force[0])
    said = ask("blame", in_force[0]).out
    assert all(name in said for name in record["evidence"])
    answer = json.loads(ask("blame", in_force[0], "--json").out)
    assert {row["rollout_id"] for row in answer["rollouts"]} == set(record["evidence"])
    assert answer["ancestry"][0]["experience_id"] == in_force[0]


def test_blame_names_the_rows_of_each_night_that_measured_a_lesson(task):
    first, second = task.ids
    assert "no row yet" in task.tell("experiences", "blame", first).out
    task.measure(first, second, difference=0.1, rows=4)
    task.measure(second, difference=-0.2, rows=2, other=(first,), night=1)
    task.measure(first, difference=0.3, rows=3, night=1, source="sweep")
    task.measure("exp-other", difference=0.5, night=1)
    rows = task.ask("experiences", "blame", first)["rows"]
    found = [(each["night"], each["source"], each["rows"], round(each["difference"], 6)) for each in rows]
    assert found == [(1, "learning", 4, 10.0), (2, "learning", 2, 20.0), (2, "sweep", 3, 30.0)]
    said = task.tell("experiences", "blame", first).out
    assert "night 2, learning: +20.0 points on its side, beside other lessons, over 2 rows" in said


def test_blame_goes_back_to_what_a_lesson_superseded(task):
    first = records(task.paths)[0]
    child = {**first, "experience_id": "exp-child", "operation": "modify", "supersedes": [first["experience_id"]]}
    with task.paths.experiences.open("a") as file:
        file.write(json.dumps(child) + "\n")
    seal(task.paths.experiences)
    lines = task.tell("experiences", "blame", "exp-child").out.splitlines()
    assert lines[0].startswith("exp-child")
    assert lines[1].startswith(f"  {first['experience_id']}")


def test_rollouts_without_a_reward_are_not_shown_as_zero(ask, own_run, in_force):
    rows = kit.lines(own_run.paths.rollouts)
    evidence = next(row for row in records(own_run.task) if row["experience_id"] == in_force[0])["evidence"]
    for row in rows:
        if row["rollout_id"] == evidence[0]:
            row["outcome"] = {"name": "failed", "error_type": "ModelTimeout", "reason": "slow"}
    own_run.paths.rollouts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    seal(own_run.paths.rollouts)
    assert f"{evidence[0]}  no reward" in ask("blame", in_force[0], out=own_run.out).out


def test_a_changed_lesson_does_not_verify_and_is_not_exported(task):
    text = task.paths.experiences.read_text()
    second = task.ids[1]
    task.paths.experiences.write_text(text.replace('"polarity":"avoid"', '"polarity":"do"'))
    seal(task.paths.experiences)
    with task.paths.experiences.open("a") as file:
        file.write("no record\n")
    answer = json.loads(task.tell("verify", kit.TASK, "--json", code=1).out)
    stale = f"lesson {second} in force is not stamped for the version of its pack in force"
    assert answer["problems"] == ["experiences.jsonl: line 4 is damaged", stale]
    said = task.tell("experiences", "export")
    assert said.out == f"- Do: {UNITS}\n"
    assert "1 lesson kept out" in said.err


def test_lessons_of_an_unknown_pack_are_excluded_with_a_remedy(task):
    stored = task.paths.experiences.read_text()
    task.paths.experiences.write_text(stored.replace('"pack_id":"arithmetic"', '"pack_id":"mine"'))
    seal(task.paths.experiences)
    said = task.tell("experiences", "export", code=1)
    assert said.out == ""
    assert "2 lessons kept out: no version of the pack mine verifies here; --packs-root" in said.err
    assert "nothing to export" not in said.err
    assert task.ask("experiences", "list") == {"experiences": []}


def test_a_record_that_was_removed_fails_the_check_and_one_in_force_is_a_warning(task):
    (trial,), whole = {row["experience_id"] for row in records(task.paths)} - {*task.ids}, task.paths.experiences.read_text()
    assert task.ask("verify", kit.TASK)["problems"] == []

    def remove(name):
        task.paths.experiences.write_text("".join(row for row in whole.splitlines(keepends=True) if name not in row))
        seal(task.paths.experiences)

    remove(trial)
    answer = json.loads(task.tell("verify", kit.TASK, "--json", code=1).out)
    assert answer["problems"] == [f"experiences.jsonl: lacks {trial}, stored by batches.jsonl"]
    task.paths.experiences.write_text(whole)
    gone = task.ids[0]
    remove(gone)
    answer = json.loads(task.tell("verify", kit.TASK, "--json", code=1).out)
    assert [gone in each for each in answer["problems"]] == [True, True]
    assert gone in task.tell("experiences", "list").err
    assert task.tell("experiences", "export").out == f"- Avoid: {CENTS}\n"


COMMANDS = ("list", "list --all", "show ID", "blame ID", "review", "export", "retire ID --why x", "approve ID --why x")


def test_where_credit_that_a_decision_is_based_on_is_lost_no_figures_are_shown_but_where_it_is(task):
    name, decided = task.ids[0], task.decisions
    lines = task.paths.credit.read_text().splitlines(keepends=True)
    task.paths.credit.write_text("".join(lines[:-1]))
    for command in COMMANDS:
        said = task.tell("experiences", *command.replace("ID", name).split(), code=1)
        assert said.out == "", command
        assert said.err.count("credit.jsonl: its first 3 lines are not those of decision 2: 2 of them are there") == 1
    assert task.decisions == decided


def test_a_person_changes_nothing_in_force_while_a_lesson_of_it_is_lost_or_it_would_be_out_for_good(task, tmp_path):
    first, second = task.ids
    known, decided = task.paths.experiences.read_text(), task.decisions
    task.paths.experiences.write_text("".join(row for row in known.splitlines(keepends=True) if second not in row))
    seal(task.paths.experiences)
    for words in (("retire", first, "--why", "x"), ("import", tmp_path / "out" / "lessons.json", "--reviewed-by", "Ann")):
        said = task.tell("experiences", *words, code=1).err
        assert f"1 lesson in force left out, not among the task's records as decided: {second}" in said
    assert task.decisions == decided
    task.paths.experiences.write_text(known)
    task.tell("experiences", "retire", first, "--why", "x")
    assert task.texts == [CENTS]
