"""Runs with judges: what they cost is never paid twice, what they are worth is printed beside the reward."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.agents.steps import group, record, weighted
from tests.support.runs.running import ROOT, RUN, TASK, Server, decided, lines, manifest, on_server, paths, run, store, timeless
from tfgrpo.flows.report.calibration import CalibrationTally
from tfgrpo.pipelines.settings.tree import SimulatedSettings
from tfgrpo.stores.outcomes import Failed, RewardScore, Scored, Ungraded

JUDGES = [
    {
        "name": "composite",
        "options": {"parts": [{"name": "judge", "options": {"votes": 2, "rubric": "The stated answer is right."}}]},
    },
    {"name": "gt", "weight": 0.0},
    {"name": "relative", "weight": 0.0, "options": {"judge": {}}},
]
SMALL = {
    "sample_size": 8, "batch_size": 4, "epochs": 2, "group_size": 3, "rewarders": json.dumps(JUDGES),
}  # fmt: skip


def roles(out: Path) -> Counter[str]:
    return Counter(row["key"].split("/")[-2] for row in lines(paths(out).journal))


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A finished run against a server that counts: its directory, its summary, what the server was asked."""
    out = tmp_path_factory.mktemp("judged")
    with Server() as server:
        summary = run(out, run_id=RUN, **on_server(server, **SMALL))
        asked = server.asked()
    assert summary.exit_code == 0, summary.message
    return out, summary, asked


@pytest.mark.untraced
def test_judged_calls_are_journalled_and_counted_in_the_ledger(judged):
    out, summary, asked = judged
    found = roles(out)
    assert found["judge"] >= 4 * 2 * 2
    assert summary.details["ledger"]["calls"] == sum(found.values()) == sum(asked.values())
    assert len({row["key"] for row in lines(paths(out).journal)}) == sum(found.values())
    rows = lines(paths(out).groups)
    assert sum(row["judge_calls"] for row in rows) == found["judge"]


def test_calibration_is_in_the_manifest_by_judge(judged):
    out, _, _ = judged
    block = manifest(out)["tfgrpo"]["calibration"]
    assert (block["truth"], list(block["rewarders"])) == ("gt", ["composite", "composite/judge", "relative"])
    voted, compared = block["rewarders"]["composite/judge"], block["rewarders"]["relative"]
    assert voted["attempts"] == 8 * 3 + 2 * len(manifest(out)["cohorts"]["2"]["items"]) * 2
    assert voted["vote_difference"] > 0
    assert compared["swaps"] > 0


def test_votes_and_raw_replies_are_on_disk_with_each_attempt(judged):
    out, _, _ = judged
    scores = {score["rewarder_id"]: score for score in lines(paths(out).rollouts)[0]["scores"]}
    (part,) = scores["composite"]["details"]["parts"]
    assert len(part["details"]["votes"]) == 2
    assert all(json.loads(said["text"])["score"] >= 0 for said in part["details"]["replies"])
    assert scores["gt"]["details"] is None


@pytest.mark.untraced
def test_a_replay_judges_offline_and_produces_the_same_store(judged):
    out, _, _ = judged
    summary = run(out, replay=RUN)
    assert summary.exit_code == 0, summary.message
    again = json.loads((out / TASK / "replays" / f"{RUN}-1" / "runs" / RUN / "manifest.json").read_text())
    assert again["tfgrpo"]["calibration"] == manifest(out)["tfgrpo"]["calibration"]
    assert timeless(out / TASK / "replays" / f"{RUN}-1" / "experiences.jsonl") == store(out)


@pytest.mark.slow
def test_a_run_killed_while_it_judges_pays_for_no_judgement_twice(tmp_path, judged):
    reference, _, asked = judged
    script = (
        "import json, sys; from tests.support.runs.running import run; from pathlib import Path; "
        "run(Path(sys.argv[1]), **json.loads(sys.argv[2]))"
    )
    with Server(SimulatedSettings(latency_s=0.02)) as server:
        options = {**on_server(server, **SMALL), "run_id": RUN}
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path), json.dumps(options)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            server.wait_for(sum(asked.values()) // 2)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        before = {row["key"] for row in lines(paths(tmp_path).journal)}
        assert any("/judge/" in key for key in before)
        answered = len(before)
        server.wait_until_idle()
        sent = len(server.bodies)
        summary = run(tmp_path, resume=RUN)
        assert summary.exit_code == 0, summary.message
        assert sum((server.asked() - asked).values()) == sent - answered, "only what was in flight is asked again"
        assert len(server.bodies) - sent == sum(asked.values()) - answered
    assert (store(tmp_path), decided(tmp_path)) == (store(reference), decided(reference))
    assert manifest(tmp_path)["tfgrpo"]["calibration"] == manifest(reference)["tfgrpo"]["calibration"]


@pytest.mark.untraced
def test_a_budget_that_ends_while_judging_is_no_evidence_and_the_run_resumes(tmp_path, judged):
    reference, _, asked = judged
    with Server() as server:
        stopped = run(tmp_path, run_id=RUN, **on_server(server, **SMALL, max_calls=30))
        assert stopped.exit_code == 3
        assert all(row["outcome"]["name"] != "ungraded" for row in lines(paths(tmp_path).rollouts))
        summary = run(tmp_path, resume=RUN, max_calls=5000)
        assert summary.exit_code == 0, summary.message
        assert server.asked() == asked
    assert (store(tmp_path), decided(tmp_path)) == (store(reference), decided(reference))


def test_attempts_that_were_never_graded_are_not_asked_of_any_judge():
    tally = CalibrationTally([weighted("judge")])
    score = RewardScore("judge", 0.5, "", None)
    rollouts = (
        record(0, outcome=Scored(0.5, (score,)), scores=(score,)),
        record(1, outcome=Ungraded("rewarder", "abstained")),
        record(2, outcome=Ungraded("truncated", "cut off")),
        record(3, outcome=Failed("ModelTimeout", "late")),
    )
    tally.add(group(rollouts))
    block = tally.as_json()
    assert block is not None
    assert (block["rewarders"]["judge"]["attempts"], block["rewarders"]["judge"]["abstained"]) == (2, 1)


@pytest.mark.untraced
def test_embeddings_are_journalled_counted_and_replayed_offline(tmp_path):
    alike = {"name": "similarity", "weight": 0.5, "options": {"metric": "embeddings", "model": "embedder"}}
    chosen = json.dumps([{"name": "gt"}, alike])
    summary = run(tmp_path, run_id=RUN, **{**SMALL, "sample_size": 6, "rewarders": chosen}, dry_run=True)
    assert summary.exit_code == 0, summary.message
    found = roles(tmp_path)
    assert found["judge"] > 0
    assert summary.details["ledger"]["calls"] == sum(found.values())
    scores = [each for row in lines(paths(tmp_path).rollouts) for each in row["scores"]]
    assert {each["score"] for each in scores if each["rewarder_id"] == "similarity"} == {0.0, 1.0}
    assert run(tmp_path, replay=RUN).exit_code == 0
