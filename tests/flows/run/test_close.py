"""What does a run leave behind at its end? Decision, state, stages with evidence, and every warning it earned."""

from __future__ import annotations

import json
from statistics import fmean

import pytest

from tests.support.runs.running import RUN, SMALL, TASK, lines, manifest, run
from tfgrpo.flows.run import close as closing
from tfgrpo.flows.run.damage import SpecCheck, SpecReport
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.files.layout import TaskPaths


def test_the_manifest_says_what_was_in_force_what_was_swept_and_what_was_decided(small_run):
    written, (line,) = json.loads(small_run.paths.manifest.read_text()), lines(small_run.task.promotions)
    assert (written["in_force"]["experience_ids"], written["began_with"]["credit_lines"]) == ([], 0)
    decision = written["decision"]
    unlike = {"schema_version", "signatures", "accepted", "credit_lines", "credit_sha256", "previous"}
    assert {key: decision[key] for key in line.keys() - unlike} == {key: line[key] for key in line.keys() - unlike}
    assert written["message"] == decision["explanation"] == decision["sentence"]
    for arm, (lost, made) in decision["lost"].items():
        rewards = [row["outcome"]["reward"] for row in lines(small_run.paths.rollouts) if row["arm"] == arm]
        assert (lost, made, decision["rewards"][arm]["n"]) == (0, len(rewards), decision["swept"])
        assert decision["rewards"][arm]["mean"] == pytest.approx(fmean(rewards))
    block = written["tfgrpo"]
    assert {*block["on_trial"]} <= {*block["lessons"]}
    assert {*block["proposals"]} <= {"confirmed", "contradicted", "new", "refused", "useless"}


def test_the_last_stage_is_the_guard_with_its_evidence(small_run):
    told = json.loads(small_run.paths.manifest.read_text())
    learned, guarded = told["stages"]
    assert (learned["name"], learned["epochs"]) == ("learn", len(told["tfgrpo"]["epochs"]))
    assert guarded["name"] == "spec-guard"
    assert guarded["ok"] is True, guarded["checks"]
    assert not [text for text in told["warnings"] if "spec guard" in text]


def test_a_promise_that_was_not_kept_is_a_warning(tmp_path, monkeypatch):
    report = SpecReport((SpecCheck("outcomes legal", False, "r1 ended as 'odd'"), SpecCheck("budget", True, "")))
    monkeypatch.setattr(closing, "check_spec", lambda _root: report)
    assert run(tmp_path, run_id=RUN, **SMALL).exit_code == 0
    assert manifest(tmp_path)["stages"][1]["ok"] is False
    assert "spec guard: outcomes legal: r1 ended as 'odd'" in manifest(tmp_path)["warnings"]


def test_an_unreadable_line_of_the_store_loses_only_its_lesson(tmp_path):
    task = TaskPaths.of(tmp_path, TASK)
    run(tmp_path, run_id="before", **SMALL)
    with task.experiences.open("a", encoding="utf-8") as file:
        file.write("garbage\n{}\n")
    summary = run(tmp_path, run_id=RUN, **SMALL)
    assert summary.exit_code == 0
    assert task.run(RUN).report.exists()


def test_a_report_that_cannot_be_written_is_a_warning_of_a_finished_run(tmp_path, monkeypatch):
    def unreadable(*_paths):
        raise CorruptFile("groups.jsonl: line 3 is no JSON")

    monkeypatch.setattr(closing, "write_report", unreadable)
    summary = run(tmp_path, run_id=RUN, **SMALL)
    assert (summary.status, summary.details["report"]) == ("finished", None)
    assert "no report was written: groups.jsonl: line 3 is no JSON" in manifest(tmp_path)["warnings"]


def test_undelivered_telemetry_is_one_warning_and_delays_no_run(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    summary = run(tmp_path, run_id=RUN, **SMALL)
    assert summary.exit_code == 0
    assert len([text for text in manifest(tmp_path)["warnings"] if "were not delivered" in text]) == 1
    assert "were not delivered" not in caplog.text, "the morning page shows it"
