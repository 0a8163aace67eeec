"""What becomes of a run when calls break or nothing is right? Lost evidence is counted, never scored."""

import io
import json
import re
import shutil
import zlib
from pathlib import Path

import pytest
from rich.console import Console as RichConsole

import tfgrpo
from tests.support.models.faults import FAULTS
from tests.support.rewards.rewarder_examples import EXAMPLES
from tests.support.runs.chat_server import ChatServer
from tests.support.runs.running import LEARNING, RUN, SIZE, SMALL, Server, lines, manifest, on_server, paths, run, store
from tfgrpo.flows.commands.run import show_summary
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.observer import Progress
from tfgrpo.stores.files.layout import TaskPaths

QUICK = {"model__timeout_s": 0.4, "model__max_retries": 1, "tfgrpo__max_lost_share": 1.0}


def broken_run(tmp_path, faults: dict[str, float], **asked):
    with Server(**faults) as server:
        summary = run(tmp_path, run_id=RUN, **on_server(server, **{**QUICK, **asked}))
    return server, summary


def few_are_enough(kinds, *quick):
    """Every kind of failure has its unit test; whole runs with all of them are slow."""
    return [kind if kind in quick else pytest.param(kind, marks=pytest.mark.slow) for kind in kinds]


@pytest.mark.parametrize("kind", few_are_enough(FAULTS, "truncated"))
def test_a_tenth_of_calls_broken_in_one_way_ends_in_a_finished_run(tmp_path, kind):
    # On a busy machine a sound call may take a second; only one that hangs is to be given up on.
    limit = QUICK["model__timeout_s"] if kind == "hang" else 20.0
    faults = {kind: 0.1}
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


@pytest.mark.parametrize(("cap", "ended"), [(20, "stopped"), (None, "finished")])
def test_losses_are_on_the_page_with_their_count_whether_an_epoch_ended_or_not(tmp_path, cap, ended):
    asked = {"model__max_retries": 0, "model__timeout_s": 20.0, "max_calls": cap, "sample_size": 8}
    _, summary = broken_run(tmp_path, {"truncated": 0.4}, **asked)
    assert summary.status == ended, summary.message
    lost = summary.details["lost"]
    texts = [line["text"] for line in summary.details["morning"]["lines"] if line["label"] == "look at"]
    [said] = [text for text in texts if "rollouts lost" in text]
    assert said.startswith(f"{lost['rollouts']} of {lost['of']} rollouts lost (")
    assert said.endswith(f"most often {lost['rollouts']} × ungraded: the answer was cut off (length)")


def test_a_tenth_of_calls_broken_in_every_way_is_survived_with_few_losses(tmp_path):
    faults = dict.fromkeys(FAULTS, 0.1 / len(FAULTS))
    server, summary = broken_run(tmp_path, faults, model__max_retries=4, sample_size=20, batch_size=10)
    assert summary.exit_code == 0, summary.message
    lost = summary.details["lost"]
    assert lost["rollouts"] <= 0.1 * lost["of"]
    assert summary.details["ledger"]["calls"] == len(server.bodies)
    assert set(server.answered) >= {200, 429, 500}


def test_an_endpoint_that_goes_down_ends_the_run_in_one_sentence_and_it_can_be_resumed(tmp_path):
    with Server() as server:
        server.before_answer = lambda number: 500 if number > 14 else None
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


@pytest.mark.parametrize(("status", "body", "sent", "said", "then"), [
    (401, {"error": {"message": "wrong"}}, 4, "ModelAuthRefused: ", "run --resume"),
    (404, {"error": {"message": "no such model"}}, 8, "begin a new run with the right model", "report"),
])  # fmt: skip
def test_a_wrong_key_is_sent_no_more_and_a_wrong_model_is_no_run_to_resume(tmp_path, status, body, sent, said, then):
    with ChatServer(lambda *_: (status, body)) as server:
        summary = run(tmp_path, run_id=RUN, **on_server(server, model="simulated", tfgrpo__concurrency=4))
    assert summary.status == "failed"
    assert len(server.bodies) <= sent, "none but those in flight"
    assert said in summary.message
    assert summary.details["morning"]["next"].startswith(f"tfgrpo {then} {RUN}")


ROGUE = """
import os, re, resource, signal, time

def hangs():
    time.sleep(60)

def backtracks():
    re.match(r"(a+)+$", "a" * 60 + "b")

def exits():
    os._exit(7)

def is_killed():
    os.kill(os.getpid(), signal.SIGKILL)

def raises():
    raise ValueError("no idea")

def asked(output, answer):
    if sum(map(ord, output)) % 7 == 0:
        {kind}()
    return 0.5
"""
REASONS = {
    "hangs": "no score within 0.4 s",
    "backtracks": "no score within 0.4 s",
    "exits": "its process ended with exit code 7",
    "is_killed": "its process ended by SIGKILL",
    "raises": "ValueError: no idea",
}


def with_rogue(tmp_path, kind, weight=1.0):
    """Return a pipeline whose second rewarder, in a file of the user's, does this on some of the outputs."""
    (tmp_path / "mine.py").write_text(ROGUE.replace("{kind}", kind))
    rewarders = [
        {"name": "gt", "options": {"match": "numeric"}},
        {"name": f"{tmp_path / 'mine.py'}:asked", "weight": weight, "timeout_s": 0.4, "options": {"rewarder_id": "mine"}},
    ]
    pipeline = {"pipeline": "rogue", "pack": "arithmetic", "tfgrpo": {"enabled": True}, "rewarders": rewarders}
    path = tmp_path / "rogue.yaml"
    path.write_text(json.dumps({**pipeline, "stages": [{"name": "learn"}, {"name": "spec-guard"}]}))
    return str(path)


@pytest.mark.parametrize("kind", few_are_enough(REASONS, "hangs"))
def test_a_rewarder_that_fails_costs_its_attempts_and_is_on_record_and_a_replay_is_equal(tmp_path, kind):
    pipeline = with_rogue(tmp_path, kind)
    out = tmp_path / "out"
    summary = run(out, run_id=RUN, pipeline=pipeline, **{**SIZE, "sample_size": 8, "batch_size": 4})
    assert summary.exit_code == 0, summary.message
    rollouts = lines(paths(out).rollouts)
    lost = [row for row in rollouts if row["outcome"]["name"] != "scored"]
    assert 0 < len(lost) < len(rollouts) / 3
    error_type = "rewarder_late" if kind in ("hangs", "backtracks") else "rewarder_broke"
    for row in lost:
        assert row["outcome"]["error_type"] == error_type
        assert row["failures"].keys() == {"mine"}
        assert row["failures"]["mine"].startswith(REASONS[kind])
        assert [score["rewarder_id"] for score in row["scores"]] == ["gt"]
        assert row["advantage"] is None
    assert all(row["failures"] == {} and len(row["scores"]) == 2 for row in rollouts if row not in lost)
    epochs = sorted({row["epoch"] for row in lost})
    failed = [line for line in lines(paths(out).metrics) if line["status"] == "failed"]
    assert [line["tfgrpo_epoch"] for line in failed] == epochs
    for epoch, line in zip(epochs, failed, strict=True):
        count = sum(row["epoch"] == epoch for row in lost)
        assert line["reason"].startswith(f"mine failed on {count} attempt")
        assert f"epoch {epoch}: {line['reason']}" in manifest(out)["warnings"]
    assert summary.details["lost"] == {"rollouts": len(lost), "of": len(rollouts)}
    page = paths(out).report.read_text()
    assert f"{len(lost)} of {len(rollouts)}" in page
    assert "mine failed on" in page
    assert store(out), "nothing was learned from the others"
    (tmp_path / "mine.py").write_text("def asked(output, answer):\n    return 0.5\n")
    copy = shutil.copytree(out, tmp_path / "copy")
    assert run(copy, resume=RUN, pipeline=pipeline).details["lost"] == summary.details["lost"]
    assert lines(paths(copy).rollouts) == rollouts
    assert [line for line in lines(paths(copy).metrics) if line["status"] == "failed"] == failed
    assert store(copy) == store(out)
    replayed = run(out, replay=RUN, pipeline=pipeline)
    assert replayed.exit_code == 0, replayed.message


def test_a_rewarder_that_does_not_count_costs_no_attempt_and_is_on_record_all_the_same(tmp_path):
    pipeline = with_rogue(tmp_path, "raises", weight=0)
    out = tmp_path / "out"
    summary = run(out, run_id=RUN, pipeline=pipeline, **SIZE)
    assert (summary.exit_code, summary.details["lost"]["rollouts"]) == (0, 0)
    assert any("mine failed on" in warning and REASONS["raises"] in warning for warning in manifest(out)["warnings"])
    (tmp_path / "mine.py").write_text("def asked(output, answer):\n    return 0.5\n")
    replayed = run(out, replay=RUN, pipeline=pipeline)
    assert replayed.exit_code == 0, replayed.message


def test_a_rewarder_that_fails_on_everything_ends_the_run_with_its_reason(tmp_path):
    pipeline, why = with_rogue(tmp_path, "exits"), REASONS["exits"]
    source = (tmp_path / "mine.py").read_text()
    (tmp_path / "mine.py").write_text(source.replace("% 7 == 0", ">= 0 and answer != '42'"))
    summary = run(tmp_path / "out", run_id=RUN, pipeline=pipeline, **SIZE)
    assert summary.exit_code == 1
    assert f"mine: {why}" in summary.message or f"in a row: {why}" in summary.message
    assert "\n" not in summary.message


def _refused_learning(status=500, share=1):
    """A server that refuses the requests for lessons of every ``share``-th item, by the text of the item."""
    server = Server()

    def before_answer(number):
        body = server.bodies[number - 1]
        if "tfgrpo_reflection" not in body:
            return None
        task = re.search(r'task\\+":\s*\\+"(.*?)\\+"', body)
        assert task, body
        return status if zlib.crc32(task[1].encode()) % share == 0 else None

    server.before_answer = before_answer
    return server


@pytest.mark.parametrize("status", [500, 400])
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
        asked = on_server(server, **LEARNING, model__max_retries=0, tfgrpo__max_lost_share=1.0)
        summary = run(tmp_path, run_id=RUN, **asked)
        again = run(tmp_path, resume=RUN)
    assert summary.exit_code == 0, summary.message
    assert again.details["epochs"] == summary.details["epochs"]
    # Groups that all fail are reflected on, too.
    rows = [row for row in lines(paths(tmp_path).groups) if row["phase"] == "train"]
    mixed = [row for row in rows if row["signal"] == "mixed"]
    failed = [row for row in rows if row["reflection_failure"]]
    assert 0 < len(failed) < len(mixed)
    epochs_told = summary.details["epochs"]
    assert sum(epoch["learning_lost"] for epoch in epochs_told) == len(failed)
    assert sum(epoch["learning_asked"] for epoch in epochs_told) >= len(mixed)
    assert summary.details["learning_lost"]["steps"] == len(failed)
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


def test_an_agent_that_changes_the_working_directory_moves_no_file_of_its_run(tmp_path, monkeypatch):
    """As a function it shares the process, and out/ is relative unless the settings say otherwise."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        summary = run(Path("out"), run_id=name, actor="tests.support.agents.rogues:moves_away", **SMALL)
        assert summary.exit_code == 0, summary.message
        assert summary.details["morning"]["lines"]
        monkeypatch.chdir(tmp_path)
    assert [manifest(tmp_path / "out", name)["night"] for name in ("one", "two")] == [1, 2]
    assert paths(tmp_path / "out", "two").report.is_file()
    written = {path: path.read_text() for path in (tmp_path / "out").rglob("*.*") if path.is_file()}
    assert {"batches.jsonl", "manifest.json", "report.html"} <= {path.name for path in written}
    assert [path.name for path, text in written.items() if str(tmp_path) in text] == [], "out/ may be moved"


FIRST_BATCH = 2 * 4
"""Attempts of the pipeline's groups of four."""


def rewarder(name, **more):
    return json.dumps([{"name": f"{EXAMPLES}:{name}", **more}])


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that stopped, what it showed as it did, and the number of requests that it made."""
    out, console = tmp_path_factory.mktemp("stopped"), RichConsole(file=io.StringIO(), width=400)
    with Server() as server:
        asked = on_server(server, rewarders=rewarder("nothing_right"))
        summary = run(out, run_id=RUN, observer=Progress(console), **asked)
        yield out, summary, console.file.getvalue(), server


def test_a_run_in_which_nothing_is_right_stops_after_its_first_batch(stopped):
    out, summary, _, server = stopped
    assert (summary.status, summary.exit_code) == ("stopped", 3), summary.message
    assert len(server.bodies) == FIRST_BATCH
    closed = manifest(out)
    assert (closed["status"], closed["ledger"]["calls"]) == ("stopped", FIRST_BATCH)
    assert len(lines(paths(out).rollouts)) == FIRST_BATCH, "the attempts that were paid for are on disk"
    assert summary.message.startswith(
        "nothing was right: 8 graded attempts of the first batch, each with the lowest reward, 0; "
    )
    assert f"--resume {RUN} --allow-zero goes on" in summary.message
    look = f"tfgrpo report {RUN} --task-id tfgrpo-learning --out {out}"
    assert summary.details["morning"]["next"] == look, "not the same zeros again"


def test_it_shows_three_attempts_beside_their_references_wherever_a_night_is_read(stopped):
    out, summary, progress, _ = stopped
    rows = {row["rollout_id"]: row for row in lines(paths(out).rollouts)}
    items = {row["item_id"]: row for row in lines(paths(out).items)}
    examples = summary.details["first_batch"]["examples"]
    assert examples == manifest(out)["first_batch"]["examples"]
    assert len({each["item_id"] for each in examples}) == 2
    look = summary.details["morning"]["look"][0]
    assert look.startswith("nothing was right: 8 graded attempts")
    assert "nothing was right: 8 graded attempts" in progress
    for each in examples:
        row, item = rows[each["rollout_id"]], items[each["item_id"]]
        assert each["reference"] == item["answer"]
        assert item["prompt"].startswith(each["question"].removesuffix("…"))
        assert " ".join(row["output"].split()).endswith(each["output"].removeprefix("…"))
        assert each["verdict"].startswith(f"{EXAMPLES}:nothing_right 0: ")
        shown = f"reference “{each['reference']}”, answered “{each['output']}”; {each['verdict']}"
        assert shown in look
        assert shown in progress
    assert "nothing was right: 8 graded attempts" in paths(out).report.read_text()
    assert "nothing was right: 8 graded attempts" in str(tfgrpo.load_run(paths(out).root))


def test_a_stopped_run_stops_again_without_a_call_and_goes_on_where_zeros_are_allowed(stopped, tmp_path):
    out, summary, _, server = stopped
    copy = tmp_path / "out"
    shutil.copytree(out, copy)
    sent = len(server.bodies)
    again = run(copy, resume=RUN)
    assert (again.status, again.message, len(server.bodies)) == ("stopped", summary.message, sent)
    assert again.details["resume with"] == f"--resume {RUN} --allow-zero"

    went_on = run(copy, resume=RUN, allow_zero=True)
    assert went_on.exit_code == 0, went_on.message
    assert max(server.asked().values()) == 1, "an answered call was sent again"
    assert manifest(copy)["first_batch"]["stops"] is False
    assert went_on.details["morning"]["look"][0].startswith("nothing was right: 8 graded attempts")
    replayed = run(copy, replay=RUN)
    assert (replayed.status, replayed.exit_code) == ("finished", 0), replayed.message


def test_an_ungraded_first_batch_stops_with_the_reasons_and_their_counts(tmp_path):
    summary = run(tmp_path, run_id=RUN, rewarders=rewarder("breaks"), tfgrpo__max_lost_share=1.0, **SMALL)
    assert (summary.status, summary.exit_code) == ("stopped", 3)
    reason = f"ungraded: {EXAMPLES}:breaks: ValueError: no idea"
    assert summary.message.startswith(
        f"no attempt of the first batch could be graded: {FIRST_BATCH} × {reason}; mend what causes it"
    )
    found = summary.details["first_batch"]
    assert {each["verdict"] for each in found["examples"]} == {reason}
    assert len(lines(paths(tmp_path).rollouts)) == FIRST_BATCH


def test_a_first_batch_with_everything_right_is_shown_and_the_run_goes_on(tmp_path):
    console = RichConsole(file=io.StringIO(), width=400)
    asked = {"rewarders": rewarder("everything_right"), "observer": Progress(console), **SMALL}
    summary = run(tmp_path, run_id=RUN, **asked)
    assert summary.exit_code == 0, summary.message
    look = summary.details["morning"]["look"][0]
    assert look.startswith("everything was right: 8 graded attempts of the first batch, each with the highest reward, 1")
    assert look.count("everything_right 1: ") == console.file.getvalue().count("everything_right 1: ") == 3


@pytest.mark.parametrize(("reward", "said"), [(-1.0, "nothing was right"), (90.0, "everything was right")])
def test_rewards_outside_their_declared_range_are_named_as_the_reason(tmp_path, reward, said):
    result = tfgrpo.learn(None, rewarders=[lambda output, answer: reward], dry_run=True, out=tmp_path, **SIZE)
    look = tfgrpo.load_run(result.folder).message
    assert result.status == "stopped", "the scale is another one: the rest would be paid for without a chance to learn"
    assert said in look
    assert "rewards outside 0 to 1, their declared range: each counts as the end of it; score_range declares another" in look


def test_no_later_batch_stops_a_run(tmp_path):
    kept = []

    def sinking(output, answer):
        kept.append(output)
        return 1.0 if len(kept) == 1 else 0.0

    result = tfgrpo.learn(None, rewarders=[sinking], dry_run=True, out=tmp_path, run_id=RUN, progress=False, **SIZE)
    assert result.status == "finished", result.message
    assert not TaskPaths.of(tmp_path, "tfgrpo-learning").run(RUN).manifest.read_text().count("nothing was right")
