"""The runs that there are can be listed, and the newest one is called latest."""

import json
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from filelock import FileLock

import tfgrpo
from tests.support.records.line_files import sign
from tfgrpo.flows import cli
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.flows.run.index import record_unbegun, runs_of
from tfgrpo.flows.run.prepare import prepare
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.files.layout import TaskPaths


@pytest.fixture(autouse=True)
def _home(at_home):
    """Every test types its commands in an empty directory."""


@pytest.fixture
def ask(capsys, own_run):
    def ask(*arguments, code=0):
        assert cli.main([*arguments, "--out", str(own_run.out)]) == code
        return capsys.readouterr()

    return ask


def copied(run, name, *, task="tfgrpo-learning", **changes):
    """Another run of a task, with some fields of its manifest changed."""
    root = TaskPaths.of(run.out, task).run(name).root
    shutil.copytree(run.paths.root, root)
    sign(root / "manifest.json", run_id=name, **changes)
    return root


def listed(ask, *arguments):
    return json.loads(ask("runs", "--json", *arguments).out)["runs"]


def test_runs_lists_what_there_is_newest_first(ask, own_run):
    copied(own_run, "a-newer", started_at="2999-01-01T00:00:00+02:00", status="running", decision=None, message=None)
    copied(own_run, "other", task="another", started_at="1999-01-01T00:00:00", status="stopped", message="why")
    rows = listed(ask)
    assert [(row["task_id"], row["run_id"], row["status"]) for row in rows] == [
        ("tfgrpo-learning", "a-newer", "running"),
        ("tfgrpo-learning", "small", "finished"),
        ("another", "other", "stopped"),
    ]
    small = rows[1]
    manifest = json.loads(own_run.paths.manifest.read_text())
    assert small["started_at"] == manifest["started_at"]
    assert (small["decision"], small["message"]) == ("in force", manifest["message"])
    assert (small["spent"], small["lessons"]) == (manifest["ledger"]["spent"], len(manifest_lessons(manifest)))
    text = ask("runs").out.splitlines()
    assert "lessons tested" in text[0]
    assert len(text) == 5
    assert "unfinished" in text[1]
    assert manifest["message"] in text[2]
    calls, spent = manifest["ledger"]["calls"], 3 * manifest["ledger"]["nano_usd"] / 1e9
    assert text[4] == f"3 runs, {3 * calls:,} calls, ${spent:.4f} (SIMULATED)"
    (total,) = json.loads(ask("runs", "--json").out)["totals"]
    assert (total["runs"], total["calls"], total["simulated"]) == (3, 3 * calls, True)


def test_a_night_that_a_clock_dates_ahead_is_no_newer_than_the_nights_after_it(ask, own_run):
    """Else `latest`, the night before, and what keeps watch over the nights would be that one until the day has come."""
    started = json.loads(own_run.paths.manifest.read_text())["started_at"]
    back = (datetime.fromisoformat(started) - timedelta(hours=1)).isoformat()
    copied(own_run, "ahead", night=2, started_at="2999-01-01T00:00:00+00:00", ended_at="2999-01-01T00:00:01+00:00")
    copied(own_run, "after", night=3, started_at=back)
    assert [entry.run_id for entry in runs_of(own_run.task)] == ["after", "ahead", "small"]
    assert [row["run_id"] for row in listed(ask)] == ["after", "ahead", "small"]
    assert "runs/after/report.html" in ask("report", "latest").out
    assert {row["run_id"] for row in listed(ask, "--since", "1d")} == {"small", "after"}


def test_what_a_killed_run_has_spent_is_what_its_ledger_says_and_one_that_is_open_is_running(ask, own_run):
    root = copied(own_run, "killed", status="running", ledger=None, message=None)
    (row,) = (row for row in listed(ask) if row["run_id"] == "killed")
    manifest = json.loads(own_run.paths.manifest.read_text())
    assert (row["state"], row["spent"], row["night"]) == ("unfinished", manifest["ledger"]["spent"], 1)
    (root / "ledger.jsonl").write_bytes(bytes(64))
    with FileLock(root / ".lock"):
        (row,) = (row for row in listed(ask) if row["run_id"] == "killed")
    assert (row["state"], row["spent"]) == ("running", None)


def test_a_run_that_did_not_begin_is_listed_and_is_no_latest_run(ask, own_run):
    run = TaskPaths.of(own_run.out, "tfgrpo-learning").run("refused")
    record_unbegun(run, "refused", "--epochs: got x", clock=utc_now)
    assert next((row["run_id"], row["state"], row["message"]) for row in listed(ask)) == (
        "refused", "refused", "--epochs: got x",
    )  # fmt: skip
    assert "/small/report.html" in ask("report", "latest").out
    assert prepare(RunRequest(run_id="refused", out=str(own_run.out), dry_run=True), {}).request.run_id == "refused"
    record_unbegun(own_run.paths, "failed", "never written", clock=utc_now)
    assert json.loads(own_run.paths.manifest.read_text())["status"] == "finished"


def manifest_lessons(manifest):
    return range(manifest["tfgrpo"]["epochs"][-1]["lessons"])


def test_a_damaged_manifest_is_listed_as_unreadable(ask, own_run):
    (copied(own_run, "torn") / "manifest.json").write_text("{torn")
    assert {row["run_id"]: row["status"] for row in listed(ask)} == {"torn": "unreadable", "small": "finished"}


def test_report_export_and_compare_take_the_latest_run(ask, own_run):
    copied(own_run, "a-older", started_at="1999-01-01T00:00:00+00:00")
    assert "/small/report.html" in ask("report", "latest").out
    assert "small" in ask("export", "latest", "--to", "jsonl").out
    assert ask("compare", "latest").out == ask("compare", "a-older", "small").out


def test_the_beginning_of_one_run_is_its_name(ask, own_run):
    for run_id in ("5c2dc615-1", "5c2dc616-1"):
        copied(own_run, run_id)
    assert "5c2dc615-1" in ask("report", "5c2dc615").out
    for name in ("5c2dc61", "5c2", own_run.paths.root.parent.parent.name[:5]):
        assert "accepted: a run of" in ask("report", name, code=2).err, "several, too short, or of a task"
    (copied(own_run, "5c2dc615") / "manifest.json").unlink()
    assert "accepted: a run of" in ask("report", "5c2dc615", code=2).err, "the damaged run of this name is meant"


def test_the_directory_of_a_run_names_it_wherever_a_run_is_named(ask, own_run):
    copied(own_run, "other", task="mine", started_at="2999-01-01T00:00:00+00:00")
    folder = str(own_run.paths.root)
    assert "/small/report.html" in ask("report", folder).out
    assert "the task and 1 run" in ask("verify", folder).out
    assert tfgrpo.load_run(folder).run_id == "small"
    assert prepare(RunRequest(resume=folder), {}).request.resume == "small"
    assert "accepted: a run of" in ask("report", "x" * 5000, code=2).err


def test_latest_is_of_the_task_that_was_used_last_unless_one_is_named(ask, own_run, monkeypatch):
    dry = RunRequest(resume="latest", out=str(own_run.out))
    copied(own_run, "older", task="mine", started_at="2001-01-01T00:00:00+00:00")
    assert "tfgrpo-learning/runs/small" in ask("report", "latest").out
    copied(own_run, "newer", task="mine", started_at="2999-01-01T00:00:00+00:00")
    assert "mine/runs/newer" in ask("report", "latest").out
    assert tfgrpo.load_run("latest", out=own_run.out).run_id == "newer"
    assert prepare(dry, {}).request.resume == "newer"
    Path("own.yaml").write_text("task_id: tfgrpo-learning\n")
    assert prepare(dry.model_copy(update={"pipeline": "own.yaml"}), {}).request.resume == "small"
    copied(own_run, "again", task="third", started_at="1999-01-01T00:00:00+00:00", resumed_at="2999-01-02T00:00:00+00:00")
    assert "third/runs/again" in ask("report", "latest").out
    assert "third" in ask("report", "latest", "--task-id", "nobody", code=2).err
    assert "mine/runs/newer" in ask("report", "latest", "--task-id", "mine").out
    assert "small" in ask("report", "small").out, "an id is found in any task"
    monkeypatch.setenv("TFGRPO_TASK_ID", "tfgrpo-learning")
    assert "tfgrpo-learning/runs/small" in ask("report", "latest").out


def test_commands_take_the_task_that_was_used_last_and_say_which(ask, own_run):
    alone = ask("experiences", "list")
    assert "used last" not in alone.err, "there is one task"
    copied(own_run, "n1", task="mine", started_at="2999-01-01T00:00:00+00:00")
    said = ask("experiences", "list", code=2).err
    assert "the task used last in" in said
    assert "got 'mine'" in said
    said = ask("history").err
    assert "task mine, the one used last; --task-id names another" in said
    other = ask("experiences", "list", "--task-id", "tfgrpo-learning")
    assert (other.out, other.err) == (alone.out, alone.err)

    state = own_run.task.state  # a library that a person changed since
    view = json.loads(state.read_text())
    state.write_text(json.dumps({**view, "updated_at": "2999-02-01T00:00:00+00:00"}))
    again = ask("experiences", "list")
    assert again.out == alone.out
    assert "task tfgrpo-learning, the one used last" in again.err


def test_a_run_that_is_called_latest_is_meant_by_that_name(ask, own_run):
    copied(own_run, "latest", started_at="1999-01-01T00:00:00+00:00")
    assert "/latest/report.html" in ask("report", "latest").out


@pytest.mark.parametrize(
    ("changes", "since", "code", "why"),
    [
        ({}, "1d", 0, None),
        ({"status": "stopped"}, "26h", 0, None),
        ({"status": "failed"}, "26h", 1, "1 run failed since"),
        ({"status": "running"}, "7d", 1, "a (killed)"),
        ({}, "2020-01-01", 0, None),
        ({}, "2020-01-01T00:00:00+02:00", 0, None),
        ({}, "0m", 1, "no run has ended since"),
        ({"started_at": "2020-01-01T00:00:00+00:00"}, "90m", 0, None),
        ({"ended_at": f"{utc_now() + timedelta(minutes=9):%Y-%m-%dT%H:%M}+00:00"}, "1d", 0, None),
        ({"ended_at": f"{utc_now() + timedelta(hours=1):%Y-%m-%dT%H:%M}+00:00"}, "1d", 1, "no run has ended since"),
        ({"started_at": "2020-01-01T00:00:00+00:00", "ended_at": None}, "1w", 1, "no run has ended since"),
        ({"status": "failed", "ended_at": "2020-01-01T00:00:00+00:00"}, "1w", 1, "no run has ended since"),
    ],
)
def test_runs_since_says_by_its_exit_code_whether_all_is_well(tmp_path, own_run, capsys, changes, since, code, why):
    root = TaskPaths.of(tmp_path, "t").run("a").root
    shutil.copytree(own_run.paths.root, root)
    now = utc_now().isoformat()
    written = json.loads((root / "manifest.json").read_text()) | {"started_at": now, "ended_at": now, **changes}
    (root / "manifest.json").write_text(json.dumps(written))
    asked = ["runs", "--out", str(tmp_path), "--since", since]
    assert cli.main([*asked, "--json"]) == code
    answer = json.loads(capsys.readouterr().out)
    assert (answer["ok"], bool(answer["runs"])) == (code == 0, why is None or "no run" not in why)
    assert why is None or why in answer["why"]
    assert cli.main(asked) == code
    assert why is None or why in capsys.readouterr().err


@pytest.mark.parametrize("since", ["yesterday", "", "1", "-1d", "1.5h", "2999-01-01", "9999999d", "999999w"])
def test_a_moment_that_is_none_or_to_come_is_refused(tmp_path, capsys, since):
    assert cli.main(["runs", "--out", str(tmp_path), f"--since={since}"]) == 2
    assert f"--since: got {since!r}; accepted: an age such as 1d, 26h" in capsys.readouterr().err
