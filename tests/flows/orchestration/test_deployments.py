"""The commands of docs/deploy.md lead from an empty PREFECT_HOME to a finished run, with a real server and a real worker."""

import json
import os
import re
import shlex
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Failed

from tests.support.runs.machine import ENDS, KEPT, Machine, free_port, until
from tests.support.runs.pages import ROOT, blocks, commands
from tests.support.runs.running import PATIENCE_S
from tests.support.runs.webhook import Webhook
from tfgrpo.flows.cli import main
from tfgrpo.flows.commands import deploy
from tfgrpo.flows.orchestration.request import RunRequest

pytestmark = pytest.mark.xdist_group("deployments")
VERDICTS = ("In force: ", "Not yet: ")


def small(line: str, out: Path) -> str:
    """The same run with fewer items, into a directory of the test."""
    words = shlex.split(line)
    if "deployment run" not in line:
        return line
    asked = {}
    if "--params" in words:  # asked for second: this run is cancelled under way
        *words, _, asked = words
        asked = json.loads(asked)
        RunRequest(**asked)
        asked = {**asked, "settings": {"simulated.latency_s": 5.0, **asked.get("settings", {})}}
    return shlex.join([*words, "--params", json.dumps(few(out, asked))])


def few(out: Path, asked: dict[str, Any] | None = None) -> dict[str, Any]:
    """Parameters of a run of four items."""
    asked = asked or {}
    settings = {"tfgrpo.batch_size": 2, "out": str(out), **asked.get("settings", {})}
    return {"epochs": 2, **asked, "sample_size": 4, "settings": settings}


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """The page followed to its end; both runs of step 4 were asked for, one after the other."""
    home = tmp_path_factory.mktemp("bare")
    machine = Machine(
        home,
        free_port(),
        {
            **KEPT,
            "PREFECT_HOME": str(home / "prefect"),
            "PREFECT_WORKER_QUERY_SECONDS": "2",
            "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "1",
        },
    )
    try:
        for block in blocks("docs/deploy.md", "bash"):
            for line in commands(block):  # the two that ask for a run one after the other, or the second may come first
                machine.command(small(line, home / "out"))
        yield machine
    finally:
        machine.stop()


COMMANDS = """if True:
    import shlex, sys
    from prefect.cli import app
    for line in sys.argv[1:]:
        sys.argv = shlex.split(line)
        try:
            app()
        except SystemExit as end:
            assert not end.code, line
"""
"""In one process: each that imports Prefect takes more than a second."""


def finished(machine: Machine) -> dict[str, Any]:
    """The first run that has ended: of two asked for at once either may begin."""

    def look() -> dict[str, Any] | None:
        ended = [run for run in machine.runs("tfgrpo-learning") if run["state_type"] in ENDS]
        return min(ended, key=lambda run: str(run["end_time"]), default=None)

    return dict(until(look, "the run to end"))


def test_every_command_of_the_page_succeeds(machine):
    assert [line for line, done in machine.answers.items() if done.returncode != 0] == []
    assert sum("deployment run" in line for line in machine.answers) == 2


def test_deploying_says_what_it_found_and_made(machine):
    (first,) = [done.stderr for line, done in machine.answers.items() if line.endswith("tfgrpo deploy")]
    assert f"checkout  {ROOT} (TFGRPO_HOME)" in first
    assert "work pool  tfgrpo, created" in first
    assert "deployment  tfgrpo-learning/nightly, 30 1 * * * Europe/Berlin\n" in first
    assert "deployment  tfgrpo-learning/tfgrpo-learning, on demand" in first
    assert "worker  none online; start one: prefect worker start --pool tfgrpo" in first


@pytest.fixture
def deploying(machine, monkeypatch, capsys):
    """Call ``tfgrpo deploy`` in this process; return its exit code and what it wrote on both streams."""

    def deploying(*arguments: str, **changed: str) -> tuple[int, str, str]:
        for name, value in {**machine.env, **changed}.items():
            monkeypatch.setenv(name, value)
        capsys.readouterr()
        with temporary_settings({PREFECT_API_URL: changed.get("PREFECT_API_URL", machine.url("")) or None}):
            code = main(["deploy", *arguments])
        return code, *capsys.readouterr()

    return deploying


def test_what_the_command_of_prefect_refuses_to_deploy_is_shown_with_its_words(deploying, monkeypatch):
    monkeypatch.setattr(deploy, "_DEPLOY", [sys.executable, "-c", "raise SystemExit('no flow at http://me:secret@lost')"])
    code, _, said = deploying()
    assert code == 1
    assert f"`prefect deploy --all` failed in {ROOT}:\nno flow at http://lost\n" in said


@pytest.mark.slow
def test_a_selection_is_asked_for_by_its_parameters(machine):
    deployment = machine.get("/deployments/name/tfgrpo-select/tfgrpo-select")
    run = machine.ask(deployment["id"], {"dry_run": True, "k": 3, "rewarders": ["gt"]})
    assert "candidate" in machine.ended(run)["state"]["message"]


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"PREFECT_API_URL": "http://127.0.0.1:9/api"}, "PREFECT_API_URL: got 'http://127.0.0.1:9/api'"),
        ({"PREFECT_API_URL": ""}, "PREFECT_API_URL: got nothing"),
        ({"TFGRPO_HOME": "/nowhere"}, "TFGRPO_HOME: got '/nowhere/prefect.yaml' (FileNotFoundError)"),
    ],
)
def test_deploying_without_what_it_needs_is_refused(deploying, monkeypatch, changed, complaint):
    monkeypatch.setattr(deploy, "_TIMEOUT_S", 0.5)
    code, _, said = deploying(**changed)
    assert code == 2
    assert complaint in said


def test_the_run_asked_for_ends_completed_with_the_sentence_of_its_decision_and_its_record_where_it_was_told_to(machine):
    run, task = finished(machine), machine.home / "out" / "tfgrpo-learning"
    assert (run["state_type"], run["state_name"]) == ("COMPLETED", "Completed"), run["state"]["message"]
    assert run["state"]["message"].startswith(VERDICTS)
    assert json.loads((task / "runs" / run["id"] / "manifest.json").read_text())["status"] == "finished"
    assert (task / "runs" / run["id"] / "report.html").is_file()
    assert (task / "experiences.jsonl").is_file()


def test_a_run_waits_for_its_turn_and_a_cancelled_one_closes_its_books_quietly(machine):
    first = finished(machine)["id"]
    run = next(each["id"] for each in machine.runs("tfgrpo-learning") if each["id"] != first)
    deployment = machine.get("/deployments/name/tfgrpo-learning/tfgrpo-learning")
    until(lambda: machine.state(run) == "RUNNING", "the second run to start")
    third = machine.ask(deployment["id"], few(machine.home / "third"))
    waits = "AwaitingConcurrencySlot"
    until(lambda: machine.get(f"/flow_runs/{third}")["state_name"] == waits, "the third run to wait")
    assert machine.state(run) == "RUNNING", "the second run goes on undisturbed"
    machine.send("DELETE", f"/flow_runs/{third}", {}).raise_for_status()
    files = machine.home / "out" / "tfgrpo-learning" / "runs" / run
    journal = files / "journal.jsonl"
    until(lambda: journal.is_file() and journal.stat().st_size, "an answered call")
    log = machine.home / "worker.log"
    before = log.stat().st_size
    # As the UI asks for it: the command takes seconds to start, and the run may have ended.
    machine.post(f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}}).raise_for_status()
    machine.ended(run, "CANCELLED")
    manifest = json.loads((files / "manifest.json").read_text())
    assert manifest["status"] == "stopped"
    assert manifest["message"] == "cancelled; every answered call is in the journal"
    assert (files / "report.html").is_file()
    said = log.read_text(encoding="utf-8", errors="replace")[before:]
    assert [line for line in said.splitlines() if "ERROR" in line or "Traceback" in line] == []
    assert "cancelled; every answered call" in machine.artifacts(run)["night"]


def test_prefect_shows_one_page_and_one_bar_of_a_run(machine):
    run = finished(machine)
    assert run["name"] == "tfgrpo-learning night 1"
    artifacts = machine.artifacts(run["id"])
    assert sorted(artifacts) == ["night", "progress"]
    assert artifacts["progress"] == 100.0
    page = artifacts["night"].replace("\\", "")
    verdict = run["state"]["message"].partition(":")[0]
    assert page.startswith(f"# {verdict.upper()}")
    assert f"**report**: {machine.home}/out/tfgrpo-learning/runs/{run['id']}/report.html\n" in page
    # A cell wider than the page is cut off.
    assert max(len(line) for line in page.splitlines() if line.startswith("|")) < 100
    manifest = json.loads((machine.home / f"out/tfgrpo-learning/runs/{run['id']}/manifest.json").read_text())
    assert manifest["warnings"] == []
    assert set(run["tags"]) == {"tfgrpo", "tfgrpo-learning", "simulated", manifest["decision"]["decision"]}
    ours = {"flow_runs": {"id": {"any_": [run["id"]]}}}
    names = [task["name"] for task in machine.post("/task_runs/filter", ours).raise_for_status().json()]
    assert len(names) <= 50, "each adds to Prefect's database"
    items = {
        json.loads(line)["item_id"]
        for line in (machine.home / f"out/tfgrpo-learning/runs/{run['id']}/groups.jsonl").read_text().splitlines()
    }
    assert {re.split(" and [0-9]+ more, epoch |, epoch ", name)[0] for name in names} <= items


def test_the_log_of_the_flow_run_tells_its_progress(machine):
    run = finished(machine)
    assert run["name"] == "tfgrpo-learning night 1"

    def lines() -> list[str]:
        kept = machine.logs(run["id"])
        return kept if any(line.startswith(VERDICTS) for line in kept) else []

    told = until(lines, "the log to reach the server")
    assert f"run {run['id']} begins" in told
    assert any(line.startswith("epoch 1 train done: ") for line in told)


def test_deploying_again_shows_the_worker_and_leaves_parameters_and_what_was_paused_as_they_are(machine, deploying):
    def deployment() -> dict[str, Any]:
        return dict(machine.get("/deployments/name/tfgrpo-learning/nightly"))

    def on_demand() -> dict[str, Any]:
        return dict(machine.get("/deployments/name/tfgrpo-learning/tfgrpo-learning"))

    def automation() -> dict[str, Any]:
        (found,) = machine.post("/automations/filter", {}).raise_for_status().json()
        return dict(found)

    def paused(active: bool) -> None:
        path = f"/deployments/{deployment()['id']}/schedules/{deployment()['schedules'][0]['id']}"
        machine.send("PATCH", path, {"active": active}).raise_for_status()
        machine.send("PATCH", f"/deployments/{on_demand()['id']}", {"paused": not active}).raise_for_status()
        machine.send("PATCH", f"/automations/{automation()['id']}", {"enabled": active}).raise_for_status()

    ours = [
        f"prefect.deployment.{machine.get(f'/deployments/name/{name}')['id']}"
        for name in ("tfgrpo-learning/nightly", "tfgrpo-learning/tfgrpo-learning", "tfgrpo-select/tfgrpo-select")
    ]
    assert set(automation()["trigger"]["match_related"]["prefect.resource.id"]) == set(ours)
    paused(False)
    added = [{"schedule": {"cron": "0 5 * * *", "timezone": "UTC"}, "active": True}]
    machine.post(f"/deployments/{deployment()['id']}/schedules", added).raise_for_status()
    before = deployment()["parameters"]
    code, shown, _ = deploying("--json")
    assert (code, deployment()["schedules"][0]["active"], automation()["enabled"]) == (0, False, False)
    assert on_demand()["paused"], "a whole deployment, too"
    assert deployment()["parameters"] == before
    found = [f"{each['check']}: {each['found']}" for each in json.loads(shown)["findings"]]
    assert {"work pool: tfgrpo, of type process", "worker: 1 online"} <= {*found}
    assert any("nightly, 30 1 * * * Europe/Berlin (PAUSED); paused in the server and left so" in each for each in found)
    assert any("; REMOVED 0 5 * * * UTC, which prefect.yaml does not have" in each for each in found)
    assert any("tfgrpo-learning, on demand; paused in the server and left so" in each for each in found)
    assert any("machine (PAUSED)" in each for each in found)
    paused(True)
    assert deployment()["schedules"][0]["active"] is True


@pytest.mark.slow
def test_caps_of_the_deployment_hold_whatever_a_run_asks_for_and_a_retry_goes_on_with_the_run_that_was_killed(machine):
    finished(machine)
    nightly = machine.get("/deployments/name/tfgrpo-learning/nightly")
    kept = nightly["parameters"] | {"settings": {"budget.max_tokens": 8_000_000, "tfgrpo.epochs": 4}}
    machine.send("PATCH", f"/deployments/{nightly['id']}", {"parameters": kept}).raise_for_status()
    out = machine.home / "killed"
    asked = {"epochs": 2, "max_usd": 5.0, "settings": {"simulated.latency_s": 0.3}}
    run = machine.ask(nightly["id"], few(out, asked))
    task = out / "tfgrpo-learning"
    journal = task / "runs" / run / "journal.jsonl"
    until(lambda: journal.is_file() and len(journal.read_bytes().splitlines()) > 12, "a dozen answered calls")
    process = machine.get(f"/flow_runs/{run}")["infrastructure_pid"]
    os.kill(int(process.rpartition(":")[2]), signal.SIGKILL)
    machine.ended(run, "CRASHED")
    # The worker reports the crash a second time, seconds later; that would end a retry which has begun meanwhile.
    reported = "prefect.flow_runs.worker - Check whether"
    until(lambda: reported in (machine.home / "worker.log").read_text(), "the worker to report the crash, too")
    answered = journal.read_bytes()
    again = machine.retried(run)
    assert again["state_type"] == "COMPLETED"
    assert again["state"]["message"].startswith(VERDICTS)
    assert [path.name for path in task.glob("runs/*")] == [run]
    manifest = json.loads((task / f"runs/{run}/manifest.json").read_text())
    assert manifest["resumed_at"] is not None
    settings = manifest["settings"]
    caps = {"max_usd": 5.0, "max_tokens": 8_000_000, "max_calls": 5000}
    assert {name: settings["budget"][name] for name in caps} == caps
    assert (settings["tfgrpo"]["epochs"], settings["tfgrpo"]["batch_size"]) == (2, 2)
    assert settings["pipeline"] == "tfgrpo-learning"
    assert journal.read_bytes().startswith(answered[: answered.rindex(b"\n") + 1])
    assert sorted(machine.artifacts(run)) == ["night", "progress"]
    keys = [json.loads(line)["key"] for line in journal.read_bytes().splitlines()]
    assert len(keys) == len(set(map(str, keys)))


def test_a_parameter_of_another_type_is_refused_by_the_server(machine):
    nightly = machine.get("/deployments/name/tfgrpo-learning/nightly")["id"]
    answer = machine.post(f"/deployments/{nightly}/create_flow_run", {"parameters": {"epochs": "three"}})
    assert (answer.status_code, "'three' is not valid" in answer.text) == (409, True)


@pytest.mark.slow
def test_of_the_nights_of_a_schedule_that_no_worker_took_the_newest_alone_is_made_up_for(machine):
    finished(machine)
    nightly = machine.get("/deployments/name/tfgrpo-learning/nightly")
    place, out = f"/deployments/{nightly['id']}", machine.home / "missed"
    small = {"parameters": nightly["parameters"] | few(out)}
    machine.send("PATCH", place, small).raise_for_status()
    now = datetime.now(UTC)
    # One night, before the last of the other schedule, which is due when it begins.
    on = now.astimezone(ZoneInfo("Europe/Berlin")) - timedelta(hours=1, minutes=30)
    cron = {"cron": f"0 0 {on.day} {on.month} *", "timezone": "Europe/Berlin"}
    other = {"slug": "other", "schedule": cron, "parameters": {"task_id": "other"}}
    (added,) = machine.post(f"{place}/schedules", [other]).raise_for_status().json()
    days = {"start_time": f"{now - timedelta(days=2):%Y-%m-%dT%H:%M:%SZ}", "end_time": f"{now:%Y-%m-%dT%H:%M:%SZ}"}
    machine.post(f"{place}/schedule", days).raise_for_status()
    machine.send("PATCH", place, {"parameters": nightly["parameters"]}).raise_for_status()
    scheduled = [run for run in machine.runs("nightly") if run["auto_scheduled"]]
    missed, *newest = [run for run in scheduled if run["expected_start_time"] < now.isoformat()]
    assert [run["parameters"].get("task_id") for run in newest] == ["other", None]
    for run in newest:
        assert machine.ended(run["id"])["state"]["message"].startswith(VERDICTS)
    message = machine.ended(missed["id"], "FAILED")["state"]["message"]
    assert re.match(r"the schedule: got the night of 20.* UTC, when that of 20.* UTC is due as well; accepted: ", message)
    entries = [json.loads(path.read_text()) for path in (out / "tfgrpo-learning").rglob("manifest.json")]
    assert sorted(entry["status"] for entry in entries) == ["finished", "refused"]
    assert machine.retried(missed["id"])["state_type"] == "COMPLETED", "a person wants it all the same"
    machine.send("DELETE", f"{place}/schedules/{added['id']}", {}).raise_for_status()


def test_the_schedule_makes_runs_at_half_past_one_in_berlin(machine):
    def made() -> list[dict[str, Any]]:
        nights = [run for run in machine.runs("nightly") if run["auto_scheduled"]]
        return [run for run in nights if run["parameters"].get("task_id") != "other"]  # of a schedule beside it

    starts = [datetime.fromisoformat(run["expected_start_time"]) for run in until(made, "the scheduler to make runs")]
    local = {start.astimezone(ZoneInfo("Europe/Berlin")).strftime("%H:%M") for start in starts}
    assert local == {"01:30"}


def test_the_checkout_named_while_deploying_is_written_into_the_deployment(machine):
    deployment = machine.get("/deployments/name/tfgrpo-learning/nightly")
    assert deployment["pull_steps"] == [{"prefect.deployments.steps.set_working_directory": {"directory": str(ROOT)}}]


@pytest.mark.slow
def test_deployed_without_a_checkout_named_each_worker_has_its_own(machine):
    unnamed = {name: value for name, value in machine.env.items() if name != "TFGRPO_HOME"}
    machine.call("prefect", "--no-prompt", "deploy", "--name", "nightly", env=unnamed)
    deployment = machine.get("/deployments/name/tfgrpo-learning/nightly")
    (step,) = deployment["pull_steps"]
    assert step["prefect.deployments.steps.set_working_directory"]["directory"] == "{{ $TFGRPO_HOME }}"


def test_a_run_that_fails_notifies_by_the_block_that_deploy_was_given(machine, deploying, monkeypatch):
    with Webhook() as webhook, temporary_settings({PREFECT_API_URL: machine.url("")}):
        block = CustomWebhookNotificationBlock(name="nights", url=webhook.url, json_data={"text": "{{subject}}\n{{body}}"})
        block.save("nights", overwrite=True)
        code, _, said = deploying("--notify", "nobody")
        assert code == 2
        assert "--notify: got 'nobody'; accepted: a notification block of the server: custom-webhook/nights" in said
        monkeypatch.setattr(deploy, "_apply", lambda *_: None)  # what is deployed stays as it is
        for name in ("nights", "custom-webhook/nights"):  # the second time nothing is made twice
            assert deploying("--notify", name)[2].count(f": notifies {name}") == 3
        with get_client(sync_client=True) as client:
            assert len([each for each in client.read_automations() if "--notify" in each.description]) == 3
            for name in ("tfgrpo-select/tfgrpo-select", "tfgrpo-learning/nightly"):
                run = client.create_flow_run_from_deployment(client.read_deployment_by_name(name).id)
                client.set_flow_run_state(run.id, Failed(message=f"{name} is down"), force=True)
            until(lambda: webhook.bodies, "the notification")
    assert [body["text"].splitlines()[1] for body in webhook.bodies] == ["tfgrpo-learning/nightly is down"]


def test_the_page_takes_everything_down_that_deploy_made(machine):  # the last of this file
    lines = [line.removeprefix("$ ") for line in blocks("docs/deploy.md", "console")[-1].text.splitlines()]
    assert len(lines) == 5
    worker = machine.running.pop()
    os.killpg(worker.pid, signal.SIGINT)  # first, as the page says: it makes its pool again
    worker.wait(PATIENCE_S)
    done = machine.call("python", "-c", COMMANDS, *lines)
    assert done.returncode == 0, done.stderr
    with temporary_settings({PREFECT_API_URL: machine.url("")}), get_client(sync_client=True) as client:
        assert client.read_deployments() == []
        assert [pool.name for pool in client.read_work_pools() if pool.name == "tfgrpo"] == []
        assert [each.name for each in client.read_automations() if "--notify" not in each.description] == []
