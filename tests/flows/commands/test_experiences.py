"""What a task has learned can be listed, traced back, compared, checked and taken along."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.support.records.promotions import champion_ids, record_promotion
from tfgrpo.flows import cli
from tfgrpo.stores.experiences.library import promotions

pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def ask(capsys, small_run):
    def ask(*arguments, out=small_run.out, code=0):
        assert cli.main(["experiences", *arguments, "--out", str(out)]) == code
        return capsys.readouterr()

    return ask


@pytest.fixture
def champion(small_run):
    ids = champion_ids(small_run.task.promotions)
    assert ids
    return ids


def records(run):
    return [json.loads(line) for line in run.task.experiences.read_text().splitlines()]


def test_the_promoted_library_is_listed_a_line_per_lesson(ask, champion):
    lines = ask("list").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(champion)
    listed = json.loads(ask("list", "--json").out)["experiences"]
    assert [record["experience_id"] for record in listed] == list(champion)


def test_all_lists_every_record(ask, small_run):
    assert len(ask("list", "--all").out.splitlines()) == 1 + len(records(small_run))


def test_a_lesson_is_shown_by_the_beginning_of_its_id(ask, champion):
    shown = ask("show", champion[0][:20]).out
    assert f'experience_id  "{champion[0]}"' in shown
    both = json.loads(ask("show", champion[0], champion[0], "--json").out)["experiences"]
    assert [record["experience_id"] for record in both] == [champion[0]] * 2


@pytest.mark.parametrize(("name", "says"), [("exp-", "one of exp-"), ("nobody", "list --all")])
def test_an_unknown_or_ambiguous_id_is_refused(ask, name, says):
    assert says in ask("show", name, code=2).err


@pytest.mark.parametrize(
    "arguments", [("show",), ("blame",), ("blame", "a", "b"), ("list", "a"), ("diff",), ("diff", "a", "b", "c")]
)
def test_names_too_few_or_too_many_are_refused(ask, arguments):
    assert "accepted: " in ask(*arguments, code=2).err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("list", "--to", "json"), "--to: got it with list; accepted: export only"),
        (("show", "x", "--all"), "--all: got it with show; accepted: list only"),
        (("export", "--promote"), "--promote: got it with export; accepted: import or merge only"),
        (("verify", "--reviewed-by", "me"), "--reviewed-by: got it with verify; accepted: import or merge only"),
        (("diff", "a", "--from", "json"), "--from: got it with diff; accepted: import only"),
        (("blame", "a", "--pack", "general"), "--pack: got it with blame; accepted: import or merge only"),
    ],
)
def test_an_option_that_the_action_does_not_take_is_refused(ask, arguments, says):
    assert says in ask(*arguments, code=2).err


def test_blame_names_the_rollouts_that_showed_a_lesson(ask, champion, small_run):
    record = next(row for row in records(small_run) if row["experience_id"] == champion[0])
    said = ask("blame", champion[0]).out
    assert all(name in said for name in record["evidence"])
    answer = json.loads(ask("blame", champion[0], "--json").out)
    assert {row["rollout_id"] for row in answer["rollouts"]} == set(record["evidence"])
    assert answer["ancestry"][0]["experience_id"] == champion[0]


def test_blame_goes_back_to_what_a_lesson_superseded(ask, own_run):
    rows = records(own_run)
    child = {**rows[-1], "experience_id": "exp-child", "operation": "modify", "supersedes": [rows[0]["experience_id"]]}
    with own_run.task.experiences.open("a") as file:
        file.write(json.dumps(child) + "\n")
    lines = ask("blame", "exp-child", out=own_run.out).out.splitlines()
    assert lines[0].startswith("exp-child")
    assert lines[1].startswith(f"  {rows[0]['experience_id']}")


def test_rollouts_without_a_reward_are_not_shown_as_zero(ask, own_run, champion):
    rows = [json.loads(line) for line in own_run.paths.rollouts.read_text().splitlines()]
    evidence = next(row for row in records(own_run) if row["experience_id"] == champion[0])["evidence"]
    for row in rows:
        if row["rollout_id"] == evidence[0]:
            row["outcome"] = {"name": "failed", "error_type": "ModelTimeout", "reason": "slow"}
    own_run.paths.rollouts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert f"{evidence[0]}  no reward" in ask("blame", champion[0], out=own_run.out).out


def test_blame_names_the_line_of_a_damaged_file(ask, champion, own_run):
    with own_run.paths.rollouts.open("a") as file:
        file.write("{torn\n")
    said = ask("blame", champion[0], out=own_run.out, code=1).err
    assert "rollouts.jsonl: line" in said
    assert said.count("\n") == 1


def test_diff_shows_what_a_run_changed(ask, champion):
    said = ask("diff", "small").out.splitlines()
    assert [line[:2] for line in said] == ["+ "] * len(champion)
    assert json.loads(ask("diff", "small", "--json").out) == {"removed": [], "added": list(champion)}
    same = ask("diff", "small", "small")
    assert (same.out, same.err.strip()) == ("", "no change")
    assert json.loads(ask("diff", "small", "small", "--json").out) == {"removed": [], "added": []}


def test_diff_of_a_run_without_a_decision_names_those_with_one(ask):
    assert "accepted: small" in ask("diff", "other", code=2).err


def test_diff_without_the_manifest_is_refused(ask, own_run):
    own_run.paths.manifest.unlink()
    assert "two runs" in ask("diff", "small", out=own_run.out, code=2).err


def test_diff_shows_removed_lessons(ask, own_run, champion):
    decisions = own_run.task.promotions.read_text()
    later = {**json.loads(decisions), "run_id": "later", "experience_ids": champion[1:]}
    own_run.task.promotions.write_text(decisions + json.dumps(later) + "\n")
    assert ask("diff", "small", "later", out=own_run.out).out.startswith(f"- {champion[0]}")


def test_an_intact_store_verifies(ask, small_run):
    assert "of which 0 not verified" in ask("verify").out
    answer = json.loads(ask("verify", "--json").out)
    assert answer["ok"]
    assert answer["records"] == len(records(small_run))


def test_a_changed_lesson_does_not_verify(ask, own_run, champion):
    text = own_run.task.experiences.read_text()
    own_run.task.experiences.write_text(text.replace('"polarity":"avoid"', '"polarity":"do"') + "no record\n")
    answer = json.loads(ask("verify", "--json", out=own_run.out, code=1).out)
    assert not answer["ok"]
    assert answer["unreadable"] == 1
    assert set(answer["stale"]) <= set(champion)


def test_the_export_can_be_pasted_into_a_prompt(ask, champion):
    lines = ask("export").out.splitlines()
    assert len(lines) == len(champion)
    assert all(line.startswith(("- Do: ", "- Avoid: ")) for line in lines)
    asked = [json.loads(ask("export", *how).out) for how in (("--to", "json"), ("--json",))]
    assert asked[0] == asked[1]
    assert [lesson["id"] for lesson in asked[0]["lessons"]] == list(champion)


def test_a_simulated_promotion_replaces_no_real_library(ask, own_run, champion):
    assert "SIMULATED" in ask("list", out=own_run.out).err
    rehearsed = list(promotions(own_run.task.promotions))[-1]
    real = rehearsed.model_copy(update={"run_id": "real", "simulated": False, "experience_ids": champion[:1]})
    for one in (real, rehearsed.model_copy(update={"run_id": "again"})):
        record_promotion(own_run.task.promotions, one)
    said = ask("export", "--to", "json", out=own_run.out)
    assert [lesson["id"] for lesson in json.loads(said.out)["lessons"]] == [champion[0]]
    assert "SIMULATED" not in said.err


def test_lessons_of_an_unknown_pack_are_excluded_with_a_remedy(ask, own_run, champion):
    stored = own_run.task.experiences.read_text()
    own_run.task.experiences.write_text(stored.replace('"pack_id":"arithmetic"', '"pack_id":"mine"'))
    said = ask("export", out=own_run.out, code=1)
    assert said.out == ""
    assert f"{len(champion)} lessons kept out: no version of the pack mine verifies here; --packs-root" in said.err
    assert "promoted yet" not in said.err
    assert json.loads(ask("list", "--json", out=own_run.out).out) == {"experiences": []}


def test_before_any_promotion_there_is_nothing_in_force(ask, own_run):
    own_run.task.promotions.unlink()
    assert "--all" in ask("list", out=own_run.out).err
    assert ask("export", out=own_run.out).out == ""
    assert "none: no run" in ask("diff", "small", out=own_run.out, code=2).err


def test_the_environment_names_the_task_too(capsys, monkeypatch, small_run):
    monkeypatch.setenv("TFGRPO_OUT", str(small_run.out))
    assert cli.main(["experiences", "list"]) == 0
    monkeypatch.setenv("TFGRPO_TASK_ID", "another")
    assert cli.main(["experiences", "list"]) == 2
    assert "tfgrpo-learning" in capsys.readouterr().err


def test_an_empty_directory_name_is_refused(ask):
    assert "--out: got ''; accepted: a directory" in ask("list", out="", code=2).err


@pytest.mark.parametrize("task", ["../up", "nobody", ""])
def test_an_unknown_task_is_refused(ask, task):
    assert "--task-id" in ask("list", "--task-id", task, code=2).err


def test_a_task_that_learned_nothing_is_refused(ask, tmp_path):
    (tmp_path / "tfgrpo-learning").mkdir()
    assert "learned something" in ask("list", out=tmp_path, code=2).err


def test_own_packs_are_in_force_with_those_that_ship(ask, tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "manifest.json").write_text("{}")
    assert json.loads(ask("verify", "--json", "--packs-root", str(tmp_path)).out)["ok"]


def cut(path):
    path.write_text(path.read_text()[:-20])


def test_a_promoted_record_that_was_removed_fails_the_check_and_is_a_warning(ask, own_run, champion):
    gone = next(row["experience_id"] for row in records(own_run) if row["experience_id"] in champion)
    kept = [row for row in own_run.task.experiences.read_text().splitlines(keepends=True) if gone not in row]
    own_run.task.experiences.write_text("".join(kept))
    answer = json.loads(ask("verify", "--json", out=own_run.out, code=1).out)
    assert answer["problems"] == [f"1 promoted lesson left out, not among the task's records as promoted: {gone}"]
    assert gone in ask("verify", out=own_run.out, code=1).out
    assert gone in ask("list", out=own_run.out).err
    assert gone not in ask("export", out=own_run.out).out


def test_torn_promotions_fail_the_check(ask, own_run):
    cut(own_run.task.promotions)
    answer = json.loads(ask("verify", "--json", out=own_run.out, code=1).out)
    assert answer["problems"][0] == "promotions.jsonl: the last line is incomplete and does not count"
    assert "state.json shows" in answer["problems"][1]
    own_run.task.promotions.write_text("")
    assert len(json.loads(ask("verify", "--json", out=own_run.out, code=1).out)["problems"]) == 1


def test_a_promotion_removed_by_hand_leaves_a_store_that_verifies(ask, own_run):
    own_run.task.promotions.write_text("")
    own_run.task.state.unlink()
    assert json.loads(ask("verify", "--json", out=own_run.out).out)["problems"] == []


def test_a_promoted_record_of_another_task_is_not_exported(ask, own_run, champion):
    decision = json.loads(own_run.task.promotions.read_text())
    own_run.task.root.rename(own_run.task.root.with_name("copied"))
    place = own_run.task.root.with_name("copied")
    (place / "promotions.jsonl").write_text(json.dumps({**decision, "schema_version": 1, "previous": None}) + "\n")
    said = ask("export", "--task-id", "copied", out=own_run.out, code=1)
    assert said.out == ""
    assert f"{len(champion)} promoted lessons left out, not among the task's records" in said.err
    assert not json.loads(ask("verify", "--json", "--task-id", "copied", out=own_run.out, code=1).out)["ok"]


def test_the_accounts_of_the_lessons_are_listed_and_shown(ask, champion, own_run):
    counted: Counter[str] = Counter()
    for row in map(json.loads, own_run.task.accounts.read_text().splitlines()):
        counted[row["experience_id"]] += row["weight"]
    listed = json.loads(ask("list", "--json", out=own_run.out).out)["experiences"]
    assert all(each["account"]["net"] > 0 for each in listed)
    assert all(each["account"]["for"] <= counted[each["experience_id"]] for each in listed)
    for each in listed:
        [shown] = json.loads(ask("show", each["experience_id"], "--json", out=own_run.out).out)["experiences"]
        assert shown == each
    assert "against" in ask("list", out=own_run.out).out.splitlines()[0]
    own_run.task.accounts.unlink()
    assert json.loads(ask("list", "--json", out=own_run.out).out)["experiences"][0]["account"] is None
