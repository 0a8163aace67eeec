"""What becomes of a run when calls break? Lost evidence is counted, never scored, and a broken run ends in one sentence."""

from __future__ import annotations

import io
import itertools
import json
import time

import pytest
from rich.console import Console as RichConsole
from tfgrpo.rewarders.base import RewardContext

from tests.support.runs.running import RUN, SMALL, TASK, Server, lines, manifest, on_server, paths, run, store
from tfgrpo.flows.commands.run import show_summary
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.run.loop import learn
from tfgrpo.pipelines.settings.model import FaultSettings
from tfgrpo.stores.errors import RewarderTimeout
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.tasks.models.simulated import SimulatedOptions

KINDS = tuple(FaultSettings.model_fields)
QUICK = {"model__timeout_s": 0.4, "model__max_retries": 1, "tfgrpo__max_lost_share": 1.0, "gate__max_lost_share": 1.0}


def hangs(context: RewardContext) -> float:
    time.sleep(1.0)
    return 1.0


def broken_run(tmp_path, faults: FaultSettings, **asked):
    with Server(SimulatedOptions(faults=faults)) as server:
        summary = run(tmp_path, run_id=RUN, **on_server(server, **{**QUICK, **asked}))
    return server, summary


@pytest.mark.parametrize("kind", KINDS)
def test_a_tenth_of_calls_broken_in_one_way_ends_in_a_finished_run(tmp_path, kind):
    # On a busy machine a sound call may take a second; only one that hangs is to be given up on.
    limit = QUICK["model__timeout_s"] if kind == "hang" else 20.0
    faults = FaultSettings(**{kind: 0.1})
    _, summary = broken_run(tmp_path, faults, model__max_retries=0, model__timeout_s=limit, sample_size=16)
    assert summary.exit_code == 0, summary.message
    rollouts = lines(paths(tmp_path).rollouts)
    broken = [row for row in rollouts if row["outcome"]["name"] != "scored"]
    assert broken, "the fault reached no rollout"
    # No failed call is a number anywhere.
    for row in broken:
        assert "reward" not in row["outcome"]
        assert row["scores"] == []
        assert row["advantage"] is None
        assert row["relative_rank"] is None
    expected = "ungraded" if kind == "truncated" else "failed"
    assert {row["outcome"]["name"] for row in broken} == {expected}
    for group in lines(paths(tmp_path).groups):
        rewards = [row["outcome"]["reward"] for row in rollouts if row["group_id"] == group["group_id"]
                   and row["outcome"]["name"] == "scored"]  # fmt: skip
        assert group["mean_reward"] == (pytest.approx(sum(rewards) / len(rewards)) if rewards else None)
    # And the loss is said wherever results are.
    lost = {"rollouts": len(broken), "of": len(rollouts)}
    assert summary.details["lost"] == lost
    assert sum(epoch["lost"] for epoch in manifest(tmp_path)["tfgrpo"]["epochs"]) == len(broken)
    assert any("brought no reward" in warning for warning in manifest(tmp_path)["warnings"])
    assert f"{lost['rollouts']} of {lost['of']}" in paths(tmp_path).report.read_text()


def test_a_tenth_of_calls_broken_in_every_way_is_survived_with_few_losses(tmp_path):
    faults = FaultSettings(**dict.fromkeys(KINDS, 0.1 / len(KINDS)))
    server, summary = broken_run(tmp_path, faults, model__max_retries=4, sample_size=30, batch_size=10)
    assert summary.exit_code == 0, summary.message
    lost = summary.details["lost"]
    assert lost["rollouts"] <= 0.1 * lost["of"]
    assert summary.details["ledger"]["calls"] == len(server.bodies)
    assert set(server.answered) >= {200, 429, 500}


def test_an_endpoint_that_goes_down_ends_the_run_in_one_sentence_and_it_can_be_resumed(tmp_path):
    with Server() as server:
        server.before_answer = lambda number: 500 if number > 28 else None
        asked = on_server(server, model__max_retries=0)
        summary = run(tmp_path, run_id=RUN, **asked)
        assert (summary.status, summary.exit_code) == ("failed", 1)
        assert "tfgrpo.max_lost_share allows" in summary.message
        assert "\n" not in summary.message
        assert summary.details["lost"]["rollouts"] == int(summary.message.split()[1]), "of the batch that was given up"
        assert summary.details["lost"]["of"] > sum(epoch["scored"] for epoch in summary.details["epochs"])
        assert summary.details["resume with"] == f"--resume {RUN}"
        assert manifest(tmp_path)["status"] == "failed"
        assert paths(tmp_path).report.exists()

        server.before_answer = lambda _: None
        again = run(tmp_path, resume=RUN)
        assert again.exit_code == 0, again.message
    with Server() as untroubled:
        run(tmp_path / "other", run_id=RUN, **on_server(untroubled, model__max_retries=0))
    assert store(tmp_path) == store(tmp_path / "other")
    assert store(tmp_path)


def test_a_key_refused_in_mid_run_ends_the_run_with_the_endpoint_s_message(tmp_path):
    with Server() as server:
        server.before_answer = lambda number: 401 if number > 30 else None
        summary = run(tmp_path, run_id=RUN, **on_server(server))
        assert (summary.status, summary.exit_code) == ("failed", 1)
        assert "401" in summary.message
        assert "ModelAuthRefused" in summary.message
        server.before_answer = lambda _: None
        assert run(tmp_path, resume=RUN).exit_code == 0


def test_a_rewarder_that_hangs_fails_the_epoch_and_its_evidence_is_void(tmp_path):
    pipeline = tmp_path / "hanging.yaml"
    pipeline.write_text(
        f"""
pipeline: hanging
task_id: {TASK}
pack: arithmetic
tfgrpo: {{enabled: true}}
rewarders:
  - {{name: gt, options: {{match: numeric}}}}
  - {{name: "tests.flows.whole_runs.test_faults:hangs", weight: 0, timeout_s: 0.05}}
stages: [{{name: learn}}, {{name: spec-guard}}]
"""
    )
    summary = run(tmp_path, run_id=RUN, pipeline=str(pipeline), sample_size=4, batch_size=4)
    assert summary.exit_code == 0, summary.message
    assert summary.details["gate"]["decision"] == "undecided"
    failed = [line for line in lines(paths(tmp_path).metrics) if line["status"] == "failed"]
    # Nothing was learned, so no sweep was run that could fail as well.
    assert [line["tfgrpo_epoch"] for line in failed] == [1, 2]
    assert all("hangs" in line["reason"] for line in failed)
    assert store(tmp_path) == []
    assert list(manifest(tmp_path)["tfgrpo"]["failed_epochs"]) == ["1", "2"]
    assert any("epoch 1 failed" in warning for warning in manifest(tmp_path)["warnings"])


def test_lessons_of_an_epoch_that_fails_late_are_dropped(tmp_path, monkeypatch):
    record = learn.record_batch

    def second_batch_hangs(session, results):
        record(session, results)
        if results[0].key.epoch == 1 and results[0].key.batch == 1:
            raise RewarderTimeout("rewarder slow ran over its limit")

    monkeypatch.setattr(learn, "record_batch", second_batch_hangs)
    summary = run(tmp_path, run_id=RUN, **SMALL)
    assert summary.exit_code == 0
    first = {row["experience_id"] for row in store(tmp_path) if row["epoch"] == 1}
    assert first, "the first batch taught nothing"
    assert first.isdisjoint(manifest(tmp_path)["tfgrpo"]["library"])
    told = lines(TaskPaths.of(tmp_path, TASK).accounts)
    assert {row["epoch"] for row in told} <= {2}, "what a void epoch says counts for nobody"
    assert TaskPaths.of(tmp_path, TASK).state.exists()


def _refused_learning(status=500, share=1):
    """A server that refuses every ``share``-th request for lessons."""
    server = Server()
    seen = itertools.count()

    def before_answer(number):
        if "tfgrpo_reflection" not in server.bodies[number - 1]:
            return None
        return status if next(seen) % share == 0 else None

    server.before_answer = before_answer
    return server


LEARNER_ANSWERS = {"500": 500, "refused": 400}


@pytest.mark.parametrize("status", LEARNER_ANSWERS.values(), ids=LEARNER_ANSWERS)
def test_a_night_whose_reflections_all_fail_ends_in_an_error(tmp_path, status):
    with _refused_learning(status) as server:
        summary = run(tmp_path, run_id=RUN, **on_server(server, model__max_retries=0))
    assert (summary.status, summary.exit_code) == ("failed", 1)
    assert "learning steps" in summary.message
    assert "tfgrpo.max_lost_share allows" in summary.message
    assert str(status) in summary.message
    assert summary.details["resume with"] == f"--resume {RUN}"
    with Server() as well:
        again = run(tmp_path, resume=RUN, base_url=well.url)
    assert again.exit_code == 0, again.message
    assert store(tmp_path)


def test_reflections_that_fail_are_counted_and_warned_of_wherever_results_are(tmp_path):
    with _refused_learning(share=2) as server:
        asked = on_server(server, model__max_retries=0, tfgrpo__max_lost_share=1.0)
        summary = run(tmp_path, run_id=RUN, **asked)
        again = run(tmp_path, resume=RUN)
    assert summary.exit_code == 0, summary.message
    assert again.details["epochs"] == summary.details["epochs"]
    rows = [row for row in lines(paths(tmp_path).groups) if row["phase"] == "train" and row["signal"] == "mixed"]
    failed = [row for row in rows if row["reflection_failure"]]
    assert 0 < len(failed) < len(rows)
    epochs_told = summary.details["epochs"]
    assert sum(epoch["learning_lost"] for epoch in epochs_told) == len(failed)
    assert sum(epoch["learning_asked"] for epoch in epochs_told) >= len(rows)
    assert summary.details["learning_lost"]["steps"] == len(failed)
    # A group is lost with the calls of both its contrasts, so that in which epoch depends on their order.
    losing = [epoch for epoch in manifest(tmp_path)["tfgrpo"]["epochs"] if epoch["learning_lost"]]
    assert losing
    assert all("ModelServerFault: 500" in epoch["learning_lost_mostly"] for epoch in losing)
    per_epoch = json.loads(paths(tmp_path).per_epoch.read_text())["epochs"]
    assert sum(epoch["learning"]["lost"] for epoch in per_epoch.values()) == len(failed)
    assert any("brought no usable answer" in warning for warning in manifest(tmp_path)["warnings"])
    buffer = io.StringIO()
    show_summary(summary, Console(stderr=RichConsole(file=buffer, width=200)))
    steps = sum(epoch["learning_asked"] for epoch in epochs_told)
    for page in (buffer.getvalue(), paths(tmp_path).report.read_text()):
        assert f"{len(failed)} of {steps} learning steps lost" in page
