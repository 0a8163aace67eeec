"""While the evidence speaks against the candidate the last epoch learns: killed, resumed and replayed alike."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.support.runs.running import (
    RUN,
    SMALL,
    TASK,
    Server,
    lines,
    manifest,
    on_server,
    one_group_teaches,
    paths,
    run,
)
from tfgrpo.flows.run.loop import learn as algorithm
from tfgrpo.stores.experiences.library import promotions
from tfgrpo.stores.files.layout import TaskPaths

SAYS = "not measured, the evidence so far speaks against the candidate: "


@pytest.fixture
def doubted(tmp_path):
    """A night in which the evidence speaks against the candidate, its calls, and its summary."""
    with Server() as server:
        summary = run(tmp_path, run_id=RUN, **on_server(server))
        assert summary.exit_code == 0, summary.message
        yield tmp_path, server, summary


def test_the_last_epoch_learns_on_items_of_its_own_and_the_decision_says_so(doubted):
    out, server, summary = doubted
    gate, written = summary.details["gate"], manifest(out)
    assert SAYS in summary.message
    assert "where 1 is none; the last epoch learned instead; evidence " in gate["explanation"]
    assert (gate["decision"], gate["skipped"], gate["pairs"], gate["lost_share"]) == ("undecided", True, 0, 0.0)
    assert [(one["epoch"], one["phase"]) for one in written["tfgrpo"]["epochs"]] == [(n, "train") for n in (1, 2, 3)]
    assert {epoch["phase"] for epoch in json.loads(paths(out).per_epoch.read_text())["epochs"].values()} == {"train"}
    last = [row for row in lines(paths(out).groups) if row["epoch"] == 3]
    assert {row["arm"] for row in last} == {"train"}
    assert {row["item_id"] for row in last} == set(written["cohorts"]["3"]["items"])
    assert not {row["item_id"] for row in lines(paths(out).groups) if row["epoch"] < 3} & {
        row["item_id"] for row in last
    }
    temperatures = {
        json.loads(body)["temperature"] for body in server.bodies if "response_format" not in json.loads(body)
    }
    assert temperatures == {0.7}
    (decided,) = promotions(TaskPaths.of(out, TASK).promotions)
    assert (decided.decision, decided.nights, decided.pairs) == ("undecided", 1, 0)
    assert gate["evidence"]["learned_items"] > len([row for row in last if "halves" in row]) > 0
    assert not [check for stage in written["stages"] for check in stage.get("checks", ()) if not check["ok"]]


def test_report_and_morning_page_have_the_words_and_the_figure(doubted):
    out, _, summary = doubted
    page = summary.details["morning"]
    shown = {line["label"]: line["text"] for line in page["lines"]}
    assert page["headline"] == "Undecided: not measured, the evidence so far speaks against the new lessons"
    assert shown["better"].startswith(f"not known yet: {SAYS}0.")
    assert shown["missing"].startswith("a factor of ")
    assert SAYS in paths(out).report.read_text()


def test_the_forecast_bounds_a_night_that_learns_to_its_end(tmp_path):
    """Without a sweep worth the name, so that learning is the dearer course."""
    few = {**SMALL, "tfgrpo__max_repairs": 0, "gate__group_size": 1, "group_size": 4}
    assert run(tmp_path, run_id=RUN, **few).details["gate"]["skipped"] is True
    ahead, ledger = manifest(tmp_path)["forecast"], manifest(tmp_path)["ledger"]
    assert ahead["calls"]["low"] <= ledger["calls"] <= ahead["calls"]["high"]
    assert ledger["tokens"] <= ahead["prompt_tokens"]["high"] + ahead["completion_tokens"]["high"]
    assert 0 < ledger["nano_usd"] / 1e9 <= ahead["usd"]["high"]


def test_replayed_and_resumed_after_its_end_it_is_the_same(doubted):
    out, server, _ = doubted
    calls, written = len(server.bodies), paths(out).groups.read_bytes()
    assert run(out, resume=RUN).exit_code == 0
    again = run(out, replay=RUN)
    assert again.exit_code == 0, again.message
    assert (len(server.bodies), paths(out).groups.read_bytes()) == (calls, written)


@pytest.mark.parametrize("when", ["before the last epoch", "in the last epoch"])
def test_a_night_killed_at_its_last_epoch_resumes_to_the_same_branch_and_pays_nothing_twice(
    tmp_path, monkeypatch, when
):
    whole = tmp_path / "whole"
    with Server() as server:
        assert run(whole, run_id=RUN, **on_server(server)).exit_code == 0
        calls = len(server.bodies)

    def learn_epoch(session, epoch, evidence, real=algorithm.learn_epoch):
        if epoch == 3 and when.startswith("before"):
            raise KeyboardInterrupt
        return real(session, epoch, evidence)

    def curate(session, specs, results, meanwhile, real=algorithm.curate):
        if specs[0].key.epoch == 3:
            raise KeyboardInterrupt
        return real(session, specs, results, meanwhile)

    out = tmp_path / "cut"
    with Server() as server:
        with monkeypatch.context() as patched:
            patched.setattr(algorithm, "learn_epoch", learn_epoch)
            patched.setattr(algorithm, "curate", curate)
            assert run(out, run_id=RUN, **on_server(server)).exit_code == 3
        assert run(out, resume=RUN).exit_code == 0
        assert len(server.bodies) == calls
        assert max(server.asked().values()) == 1
    for name in ("explanation", "skipped", "evidence"):
        assert manifest(out)["gate"][name] == manifest(whole)["gate"][name]


def test_a_night_of_the_rules_before_measures_whatever_the_evidence_says(tmp_path, monkeypatch):
    monkeypatch.setattr("tfgrpo.flows.run.open.LEARNING_RULES", 4)
    assert run(tmp_path, run_id=RUN, **SMALL).exit_code == 0
    monkeypatch.undo()
    for again in ({"resume": RUN}, {"replay": RUN}):
        ended = run(tmp_path, **again)
        assert ended.exit_code == 0, ended.message
    assert manifest(tmp_path)["gate"]["skipped"] is False
    assert {row["phase"] for row in lines(paths(tmp_path).groups)} == {"train", "eval"}


def test_a_first_night_without_evidence_measures(tmp_path, monkeypatch):
    """It has one learning batch, before which there is no candidate that could be tested."""
    one_group_teaches(monkeypatch)
    asked = {"sample_size": 8, "batch_size": 8, "epochs": 2, "world": "unlearnable", "gate__max_regressions": 1.0}
    assert run(tmp_path, run_id=RUN, **asked).exit_code == 0
    assert {row["phase"] for row in lines(paths(tmp_path).groups)} == {"train", "eval"}


def test_a_last_epoch_that_is_void_leaves_the_decision_undecided(tmp_path, monkeypatch):
    """A rewarder that times out in the last epoch voids what that epoch taught and showed."""
    assert run(tmp_path / "sound", run_id=RUN, **SMALL).exit_code == 0
    learned = []

    def run_batch(session, specs, real=algorithm.run_batch):
        results = real(session, specs)
        learned.append(specs[0].key.epoch)
        if specs[0].key.epoch == 3:
            results = [replace(result, rewarder_fault="late") for result in results]
        return results

    monkeypatch.setattr(algorithm, "run_batch", run_batch)
    summary = run(tmp_path, run_id=RUN, **SMALL)
    gate = summary.details["gate"]
    assert (gate["decision"], gate["skipped"], learned.count(3)) == ("undecided", True, 1)
    assert manifest(tmp_path)["tfgrpo"]["failed_epochs"] == {"3": "late"}
    sound = manifest(tmp_path / "sound")["gate"]["evidence"]
    assert 0 < gate["evidence"]["learned_items"] < sound["learned_items"]
