"""Lessons of another task are taken in with an account, and nothing that conflicts without a word about it."""

from __future__ import annotations

import json

import pytest

from tests.support.records.tasks import CENTS, TWICE, UNITS, Task
from tfgrpo.prompt_packs.loader import load_prompt_pack
from tfgrpo.prompt_packs.stamps import pack_stamp
from tfgrpo.stores.experiences.accounts import accounts_of, in_force, read_events
from tfgrpo.stores.experiences.record import ExperienceRecord, stamp_record

pytestmark = pytest.mark.usefixtures("at_home")
REVIEWED = ("--reviewed-by", "Ann")
OPPOSITE = "Name the unit of each figure."
NEAR = "Check the sum twice before you answer."


@pytest.fixture
def ours(tmp_path, capsys):
    task = Task(tmp_path / "out", "ours", capsys)
    task.learn(("do", UNITS), ("do", TWICE))
    return task


@pytest.fixture
def theirs(tmp_path, capsys):
    return Task(tmp_path / "out", "theirs", capsys)


def merge(ours, theirs, *how, code=0):
    return ours.tell("experiences", "merge", theirs.paths.root, *how, code=code)


def records(task):
    return [ExperienceRecord.model_validate_json(line) for line in task.paths.experiences.read_text().splitlines()]


def candidate(task, night=0):
    """What the next night tests."""
    stored = records(task)
    return [
        entry.summary32 for entry in in_force(stored, accounts_of(stored, read_events(task.paths.accounts), night), 9)
    ]


def test_lessons_in_force_elsewhere_are_shown_then_stored_with_an_account_and_tested_next_night(ours, theirs):
    theirs.learn(("avoid", CENTS), ("do", UNITS))
    theirs.learn(("do", "Ask for the currency."), promote=False)
    before = ours.paths.experiences.read_bytes()
    said = merge(ours, theirs)
    assert [row.split()[0] for row in said.out.splitlines()[1:]] == ["new", "known:"]
    assert "Nothing was stored" in said.err
    assert ours.paths.experiences.read_bytes() == before
    merge(ours, theirs, *REVIEWED)
    merge(ours, theirs, *REVIEWED)
    assert [record.summary32 for record in records(ours)] == [UNITS, TWICE, CENTS]
    events = [
        event for event in read_events(ours.paths.accounts) if event.experience_id == records(ours)[-1].experience_id
    ]
    assert [(event.kind, event.weight, event.simulated) for event in events] == [("taught", 2.0, True)]
    assert events[0].why == "taken in from theirs, reviewed by Ann"
    assert ours.texts == [UNITS, TWICE]
    assert candidate(ours) == [UNITS, TWICE, CENTS]
    assert ours.ask("experiences", "verify")["ok"]


def test_conflicts_are_shown_and_refused_whole_until_they_are_settled(ours, theirs):
    theirs.learn(("avoid", OPPOSITE), ("do", NEAR), ("avoid", CENTS))
    units, twice = ours.ids
    verdicts = [each["verdict"] for each in json.loads(merge(ours, theirs, "--json").out)["lessons"]]
    assert verdicts[0] == f"the opposite of {units}, do: {UNITS}"
    assert verdicts[1] == f"nearly the same as {twice}, do: {TWICE}"
    assert verdicts[2] == "new"
    said = merge(ours, theirs, *REVIEWED, code=2).err
    assert "2 problems, nothing was done" in said
    assert "--ours to leave such out, --theirs to replace the known" in said
    assert len(records(ours)) == 2


def test_ours_leaves_conflicts_out_and_theirs_replaces(ours, theirs):
    theirs.learn(("avoid", OPPOSITE), ("do", NEAR), ("avoid", CENTS))
    merge(ours, theirs, *REVIEWED, "--ours")
    assert [record.summary32 for record in records(ours)] == [UNITS, TWICE, CENTS]
    merge(ours, theirs, *REVIEWED, "--theirs", "--promote")
    assert [(record.operation, record.summary32) for record in records(ours)[3:]] == [
        ("modify", OPPOSITE),
        ("modify", NEAR),
    ]
    assert ours.texts == [OPPOSITE, NEAR, CENTS]
    known = {each["text"]: (each["for"], each["polarity"]) for each in ours.ask("experiences", "review")["lessons"]}
    # A change of direction starts a new account; other words carry the old one on.
    assert known == {OPPOSITE: (2.0, "avoid"), NEAR: (4.0, "do"), CENTS: (2.0, "avoid")}


def test_a_lesson_that_replaces_several_is_a_merge(ours, theirs):
    ours.learn(("do", "Check each sum twice before the final answer."), promote=False, how="--theirs")
    ours.learn(("do", "Check the sum twice."), promote=False, how="--theirs")
    theirs.learn(("do", "Check twice the sum before answering."))
    merge(ours, theirs, *REVIEWED, "--theirs")
    assert ours.ask("experiences", "verify")["ok"]


def test_a_store_without_promotions_gives_the_lessons_that_nothing_supersedes(ours, theirs):
    theirs.learn(("do", "Ask for the currency."), promote=False)
    theirs.learn(("do", "Ask for the currency first."), promote=False, how="--theirs")
    said = ours.tell("experiences", "merge", theirs.paths.experiences)
    assert len(said.out.splitlines()) == 2
    assert "currency first" in said.out


def test_what_the_gate_of_another_task_turned_down_is_not_taken_in(ours, theirs):
    theirs.learn(("do", "Ask for the currency."), promote=False)
    theirs.learn(("avoid", CENTS))
    theirs.tell("experiences", "rollback", "none")
    said = merge(ours, theirs, *REVIEWED, code=2).err
    assert f"STORE: got '{theirs.paths.root}', with no lessons in force; accepted: a task with some" in said


def test_a_lesson_that_is_retired_here_is_shown_so_and_stays_out(ours, theirs):
    theirs.learn(("do", UNITS), ("avoid", CENTS))
    name = ours.ids[0]
    ours.tell("experiences", "retire", name, "--why", "harms refunds")
    verdicts = [each["verdict"] for each in json.loads(merge(ours, theirs, "--json").out)["lessons"]]
    assert verdicts == [f"known: {name}, retired: harms refunds", "new"]
    said = merge(ours, theirs, *REVIEWED, "--promote").err
    assert f"Left out, because they are retired here: {name}." in said
    assert ours.texts == [TWICE, CENTS]


@pytest.mark.parametrize(("groups", "weight"), [(0, 2.0), (3, 3.0), (90, 4.0)])
def test_support_elsewhere_counts_as_two_to_four_groups(ours, theirs, groups, weight):
    theirs.learn(("avoid", CENTS), promote=False)
    pack = pack_stamp(load_prompt_pack("arithmetic"))
    taught = records(theirs)[0].model_copy(update={"evidence": tuple(f"g{number}/0" for number in range(groups))})
    theirs.paths.experiences.write_text(stamp_record(taught, pack).model_dump_json() + "\n")
    merge(ours, theirs, *REVIEWED)
    assert read_events(ours.paths.accounts)[-1].weight == weight


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("merge",), "STORE: got nothing"),
        (("merge", "nowhere"), "the directory of a task with lessons, or its experiences.jsonl"),
        (("merge", "PROMOTIONS"), "or its experiences.jsonl"),
        (("merge", "OURS"), "another task than the one"),
        (("merge", "THEIRS", "--ours", "--theirs"), "--theirs: got it beside --ours"),
        (("merge", "THEIRS", "--promote"), "only with --reviewed-by"),
        (("merge", "THEIRS", "--reviewed-by", ""), "--reviewed-by"),
        (("merge", "THEIRS", "--from", "json"), "import only"),
        (("merge", "TORN"), "1 lesson and none that verifies"),
    ],
)
def test_what_cannot_be_merged_is_one_error(ours, theirs, tmp_path, capsys, arguments, says):
    theirs.learn(("avoid", CENTS))
    torn = Task(tmp_path / "out", "torn", capsys)
    torn.learn(("avoid", CENTS))
    torn.paths.experiences.write_text(torn.paths.experiences.read_text().replace(CENTS, "Keeping the cents."))
    places = {"PROMOTIONS": ours.paths.promotions, "OURS": ours.paths.root, "THEIRS": theirs.paths.root}
    places["TORN"] = torn.paths.root
    said = ours.tell("experiences", *(places.get(word, word) for word in arguments), code=2).err
    assert says in said
    assert said.count("\n") == 1
    assert len(records(ours)) == 2
