"""A run whose first batch has nothing right stops there, and shows attempts beside their references."""

from __future__ import annotations

import io
import json
import shutil

import pytest
from rich.console import Console as RichConsole

import tfgrpo
from tests.support.rewards.rewarder_examples import EXAMPLES
from tests.support.runs.running import RUN, SIZE, SMALL, Server, lines, manifest, on_server, paths, run
from tfgrpo.flows.console.progress import Progress
from tfgrpo.stores.files.layout import TaskPaths

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


def test_the_next_command_does_not_run_into_the_same_zeros(stopped):
    out, summary, _, _ = stopped
    assert summary.details["morning"]["next"] == f"tfgrpo report {RUN} --task-id tfgrpo-learning --out {out}"


@pytest.mark.parametrize(("name", "why"), [("breaks", "ValueError: no idea")])
def test_an_ungraded_first_batch_stops_with_the_reasons_and_their_counts(tmp_path, name, why):
    summary = run(tmp_path, run_id=RUN, rewarders=rewarder(name), tfgrpo__max_lost_share=1.0, **SMALL)
    assert (summary.status, summary.exit_code) == ("stopped", 3)
    reason = f"ungraded: {EXAMPLES}:{name}: {why}"
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
    look = tfgrpo.load_run(result.folder).message if result.status == "stopped" else str(result)
    assert said in look
    assert "rewards outside 0 to 1, their declared range: each counts as the end of it; score_range declares another" in look


def test_no_later_batch_stops_a_run(tmp_path, monkeypatch):
    kept = []

    def sinking(output, answer):
        kept.append(output)
        return 1.0 if len(kept) == 1 else 0.0

    result = tfgrpo.learn(None, rewarders=[sinking], dry_run=True, out=tmp_path, run_id=RUN, progress=False, **SIZE)
    assert result.status == "finished", result.message
    assert not TaskPaths.of(tmp_path, "tfgrpo-learning").run(RUN).manifest.read_text().count("nothing was right")
