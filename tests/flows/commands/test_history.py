"""Every change of the library is listed with its evidence, and every known lesson with its account."""

from __future__ import annotations

import pytest

from tests.support.records.promotions import record_promotion
from tests.support.records.records import NOW
from tests.support.records.tasks import CENTS, TWICE, UNITS, Task
from tests.support.runs import running as kit
from tfgrpo.flows import cli
from tfgrpo.prompt_packs.loader import load_prompt_pack
from tfgrpo.prompt_packs.stamps import pack_stamp
from tfgrpo.rewarders.statistics.sequential import Capital
from tfgrpo.stores.experiences.accounts import AccountEvent, append_events
from tfgrpo.stores.experiences.library import Promotion, promotions
from tfgrpo.stores.experiences.measured import MeasuredLine, append_measured
from tfgrpo.stores.experiences.record import ExperienceRecord, stamp_record

pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def task(tmp_path, capsys):
    task = Task(tmp_path / "out", kit.TASK, capsys)
    task.learn(("do", UNITS), ("avoid", CENTS))
    return task


def decided(task, decision, ids, **fields):
    figures = {"estimate": 0.12, "low": 0.03, "high": 0.21, "pairs": 50, **fields}
    record_promotion(
        task.paths.promotions,
        Promotion(
            run_id="night",
            decided_at=NOW,
            decision=decision,
            experience_ids=ids,
            library_id="",
            simulated=True,
            **figures,
        ),
    )


def test_every_change_is_listed_with_evidence_reasons_and_person_newest_last(task):
    first, second = task.ids
    capital = Capital().after([1.0] * 6).logs
    decided(task, "promote", (first, second, "exp-new"), capital=capital, nights=3)
    decided(task, "reject", (first,))
    decided(task, "retire", (first, "exp-new"), reasons={second: "net support -1.20 (1 for, 3 against)"}, estimate=None)
    task.tell("experiences", "rollback", "1", "--why", "worse", "--by", "Bob")
    rows = task.tell("history").out.splitlines()
    assert [row.split()[0] for row in rows] == ["no.", "1", "2", "4", "5"]
    changes = task.ask("history")["changes"]
    assert [(each["decision"], each["added"], each["removed"]) for each in changes] == [
        ("promote", [first, second], []),
        ("promote", ["exp-new"], []),
        ("retire", [], [second]),
        ("rollback", [second], ["exp-new"]),
    ]
    texts = [each["evidence"] for each in changes]
    assert texts[0] == "taken in from lessons.json; by Ann"
    assert texts[1].startswith("+0.120 (+0.030 to +0.210) over 50 held-out items; evidence ")
    assert texts[1].endswith(" after 3 nights")
    assert changes[1]["log_capital"] > 0
    assert texts[2] == f"{second}: net support -1.20 (1 for, 3 against)"
    assert "back to import-" in texts[3]
    assert texts[3].endswith("decision 1: worse; by Bob")
    every = task.ask("history", "--all")["changes"]
    assert [each["number"] for each in every] == [1, 2, 3, 4, 5]
    assert (every[2]["added"], every[2]["removed"]) == ([], [])


def test_lessons_under_test_are_reviewed_before_any_was_promoted_of_the_kind_of_model_that_learned_last(
    tmp_path, capsys
):
    fresh = Task(tmp_path / "out", "fresh", capsys)
    fresh.learn(("do", TWICE), promote=False)
    assert [each["text"] for each in fresh.ask("experiences", "review")["lessons"]] == [TWICE]
    fresh.learn(("do", UNITS), promote=False, simulated=False)
    assert [each["text"] for each in fresh.ask("experiences", "review")["lessons"]] == [UNITS]


def test_simulated_and_real_libraries_change_apart(task):
    task.learn(("do", TWICE), simulated=False)
    changes = task.ask("history")["changes"]
    assert [(each["simulated"], len(each["added"]), each["removed"]) for each in changes] == [
        (True, 2, []),
        (False, 1, []),
    ]
    assert "promote (SIMULATED)" in task.tell("history").out


def test_a_broken_chain_is_said(task):
    task.learn(("do", TWICE))
    lines = task.paths.promotions.read_text().splitlines(keepends=True)
    task.paths.promotions.write_text(lines[1])
    assert "does not continue the chain" in task.tell("history").err
    assert task.ask("history")["problems"]


def test_without_a_change_there_is_nothing_to_list(tmp_path, capsys):
    task = Task(tmp_path / "out", "fresh", capsys)
    task.learn(("do", UNITS), promote=False)
    assert "never changed" in task.tell("history").err
    assert task.ask("history") == {"changes": [], "problems": []}
    gone = Task(tmp_path / "out", "gone", capsys)
    assert "--task-id" in gone.tell("history", code=2).err


def test_a_review_shows_what_counts_for_and_against_each_known_lesson_and_what_to_do(task):
    first = task.ids[0]
    event = AccountEvent(
        event_id="",
        experience_id=first,
        kind="contradicted",
        run_id="n1",
        simulated=True,
        night=0,
        epoch=1,
        batch=0,
        group_id="n1:g7",
        family="refunds",
        created_at=NOW,
    )
    append_events(task.paths.accounts, [event.named()])
    task.learn(("do", TWICE), promote=False)
    decided(task, "undecided", (first,))
    told = task.tell("experiences", "review")
    assert f"{first}  in force, net 0.80 (2 for, 1 against), tried +1.4, 1 night old" in told.out
    assert f"do: {UNITS}" in told.out
    assert "seen in refunds" in told.out
    assert "known, net 1.60 (2 for, 0 against)" in told.out
    assert "retire ID --why TEXT" in told.err
    lessons = task.ask("experiences", "review")["lessons"]
    assert [(each["in_force"], each["for"], each["against"]) for each in lessons] == [
        (True, 2.0, 1.0),
        (True, 2.0, 0.0),
        (False, 2.0, 0.0),
    ]
    origin = next(promotions(task.paths.promotions)).run_id
    assert {each["first_run"] for each in lessons[:2]} == {origin}


def test_a_review_shows_which_lessons_contradict_each_other_and_which_has_more_support(task):
    first, second = task.ids
    fields = {"run_id": "n1", "simulated": True, "night": 0, "created_at": NOW, "group_id": "n1:g7"}
    event = AccountEvent(experience_id=first, kind="contradicted", opposite=second, **fields)
    append_events(task.paths.accounts, [event.named()])
    printed = task.tell("experiences", "review").out
    assert f"contradicts {second}, in force, which has more net support: 2.00" in printed
    assert f"contradicts {first}, in force, which has less net support: 1.00" in printed
    assert [each["opposites"] for each in task.ask("experiences", "review")["lessons"]] == [[second], [first]]
    (shown,) = task.ask("experiences", "show", first)["experiences"]
    assert shown["account"]["opposites"] == [second]


def test_a_review_shows_measured_effects_and_why_a_lesson_is_out(task):
    first, second = task.ids
    fields = {
        "run_id": "n1",
        "simulated": True,
        "model": "m",
        "night": 0,
        "item_id": "q",
        "spread": 1.0,
        "created_at": NOW,
    }
    halves = {"drawn": (first,), "complement": (), "with_drawn": (1.0, 1.0, 1.0), "with_complement": (0.0, 1.0, 0.0)}
    append_measured(task.paths.measured, [MeasuredLine(group_id=f"g{n}", **fields, **halves) for n in range(9)])
    task.tell("experiences", "retire", second, "--why", "harms refunds")
    printed = task.tell("experiences", "review").out
    assert f"{first}  in force, net 2.00 (2 for, 0 against), tried +1.4, effect +" in printed
    assert f"{second}  retired (harms refunds), net 2.00" in printed
    lessons = {each["experience_id"]: each for each in task.ask("experiences", "review")["lessons"]}
    assert lessons[first]["effect"]["rollouts"] == 54
    assert (lessons[second]["effect"], lessons[second]["retired"]) == (None, True)
    assert all(each["tokens"] > 0 for each in lessons.values())


def test_lessons_in_force_from_before_there_were_accounts_are_reviewed_too(task):
    task.paths.accounts.unlink()
    assert [each["net"] for each in task.ask("experiences", "review")["lessons"]] == [2.0, 2.0]
    assert not task.paths.accounts.exists()
    task.tell("experiences", "retire", task.ids[0], "--why", "harms")
    assert len(task.ask("experiences", "review")["lessons"]) == 2


def test_a_review_shows_why_a_lesson_holds(task):
    pack = pack_stamp(load_prompt_pack("arithmetic"))
    lines = task.paths.experiences.read_text().splitlines()
    because = ExperienceRecord.model_validate_json(lines[0]).model_copy(update={"cause": "Cents were added to euros."})
    task.paths.experiences.write_text("\n".join([stamp_record(because, pack).model_dump_json(), lines[1], ""]))
    # The promotion names the record as it was.
    task.tell("experiences", "rollback", "none")
    assert "\n    because Cents were added to euros.\n" in task.tell("experiences", "review").out
    assert [each["cause"] for each in task.ask("experiences", "review")["lessons"]] == [
        "Cents were added to euros.",
        None,
    ]


def test_before_anything_was_learned_there_is_nothing_to_review(task):
    task.paths.experiences.write_text("")
    assert "No lesson is known" in task.tell("experiences", "review").err
    assert task.ask("experiences", "review")["lessons"] == []


def test_the_only_task_there_is_need_not_be_named_and_of_two_the_last_one_is_meant(tmp_path, capsys):
    def listed(*named):
        code = cli.main(["history", "--out", str(tmp_path), *named])
        return code, capsys.readouterr().err

    for name in ("mine", "yours"):
        Task(tmp_path, name, capsys).learn(("do", UNITS))
        if name == "mine":
            assert listed() == listed("--task-id", name)
            assert listed("--task-id", "other")[0] == 2
    code, said = listed()
    assert (code, "task yours, the one used last" in said) == (0, True)
