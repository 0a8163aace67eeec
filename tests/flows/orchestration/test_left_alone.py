"""Nights outlive what happens around them: a worker, a machine and a server that are killed, on a real server and worker.

The shorter story, with schedule, pause, cancel, Retry and refusals, is in ``test_deployments.py``.
"""

import json
import os
import signal
import time
from typing import Any

import pytest

from tests.support.runs.machine import KEPT, Machine, free_port, until
from tests.support.runs.pages import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("left alone"), pytest.mark.timeout(1800)]
WORKER = ["prefect", "worker", "start", "--pool", "tfgrpo"]


class Night:
    """A run of a few slow calls, and its files."""

    def __init__(self, machine: Machine, latency_s: float) -> None:
        deployment = machine.get("/deployments/name/tfgrpo-learning/tfgrpo-learning")["id"]
        out = machine.home / "out"
        settings = {"tfgrpo.batch_size": 3, "out": str(out), "simulated.latency_s": latency_s}
        self.machine = machine
        self.run = machine.ask(deployment, {"sample_size": 6, "settings": settings})
        self.files = out / "tfgrpo-learning" / "runs" / self.run

    def calls(self) -> list[str]:
        journal = self.files / "journal.jsonl"
        return journal.read_text().splitlines() if journal.is_file() else []

    def answered(self, calls: int = 3) -> None:
        until(lambda: len(self.calls()) >= calls, f"{calls} answered calls")

    def manifest(self) -> dict[str, Any]:
        return dict(json.loads((self.files / "manifest.json").read_text()))

    def ended_well(self, warning: str = "") -> None:
        """The state, the page and the files agree on a finished night that nothing was lost of, with that warning or none."""
        message = self.machine.ended(self.run)["state"]["message"]
        manifest = self.manifest()
        assert (manifest["status"], manifest["message"]) == ("finished", message)
        assert [each.partition(":")[0] for each in manifest["warnings"]] == ([warning] if warning else [])
        shown = self.machine.artifacts(self.run)
        assert shown["night"].startswith(f"# {message.partition(':')[0].upper()}\n")
        assert shown["progress"] == 100.0
        keys = [str(json.loads(line)["key"]) for line in self.calls()]
        assert len(keys) == len(set(keys)), "no call is paid for twice"


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A machine with a server, the deployments and a worker."""
    home = tmp_path_factory.mktemp("alone")
    port = free_port()
    server = {"PREFECT_HOME": str(home / "prefect"), "PREFECT_API_URL": f"http://127.0.0.1:{port}/api"}
    fast = {"PREFECT_WORKER_QUERY_SECONDS": "1", "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "2"}
    quiet = {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "TFGRPO_HOME": str(ROOT)}
    machine = Machine(home, port, {**KEPT, **server, **fast, **quiet})
    try:
        machine.start(serve(machine))
        machine.call("tfgrpo", "deploy").check_returncode()
        machine.start(WORKER)
        yield machine
    finally:
        machine.stop()


def serve(machine: Machine) -> list[str]:
    return ["prefect", "server", "start", "--host", "127.0.0.1", "--port", str(machine.port)]


def kill(machine: Machine, word: str) -> None:
    """Kill the server or the worker, and not the runs of the worker."""
    process = next(each for each in machine.running if word in each.args)
    machine.running.remove(process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(60)


def test_a_killed_worker_ends_nothing_of_its_run(machine):
    night = Night(machine, 1.5)
    night.answered()
    kill(machine, "worker")
    night.ended_well()
    machine.start(WORKER)


def test_a_run_that_is_terminated_after_its_worker_says_that_the_worker_was_lost(machine):
    night = Night(machine, 1.5)
    night.answered()
    process = int(machine.get(f"/flow_runs/{night.run}")["infrastructure_pid"].rpartition(":")[2])
    kill(machine, "worker")
    time.sleep(1.0)
    os.kill(process, signal.SIGTERM)
    until(lambda: night.manifest()["status"] != "running", "the run to close its books")
    assert night.manifest()["message"] == "worker lost; every answered call is in the journal"
    machine.start(WORKER)
    machine.ended(night.run, "CRASHED")


def test_a_run_that_lost_its_machine_is_ended_the_next_one_waits_for_that_and_goes_on_with_it(machine):
    (automation,) = machine.post("/automations/filter", {}).raise_for_status().json()
    assert automation["trigger"]["within"] >= 3 * 30
    automation["trigger"]["within"] = 95.0  # still three heartbeats; the retry takes longer than that
    body = {name: automation[name] for name in ("name", "description", "enabled", "trigger", "actions")}
    machine.send("PUT", f"/automations/{automation['id']}", body).raise_for_status()
    dead = Night(machine, 6.0)
    dead.answered()
    process = int(machine.get(f"/flow_runs/{dead.run}")["infrastructure_pid"].rpartition(":")[2])
    kill(machine, "worker")
    os.kill(process, signal.SIGKILL)
    machine.start(WORKER)
    following = Night(machine, 6.0)  # with the settings of the dead one, which it goes on with before it begins
    waits = "AwaitingConcurrencySlot"
    until(lambda: machine.get(f"/flow_runs/{following.run}")["state_name"] == waits, "the next night to wait")
    assert machine.state(dead.run) == "RUNNING"
    crashed = machine.ended(dead.run, "CRASHED")
    assert crashed["state"]["message"] == "no heartbeat for 180 s: worker lost"
    began = time.monotonic()
    following.ended_well(f"run {dead.run} was killed before its end, and was resumed first")
    assert time.monotonic() - began > 95.0, "going on took longer than the automation waits, and was not shot"
    assert dead.manifest()["status"] == "finished", dead.manifest()["message"]
    decision = dead.manifest()["decision"]["decision"]
    assert machine.artifacts(dead.run)["night"].startswith(f"# {decision.upper()}"), "not RUNNING for ever"
    keys = [str(json.loads(line)["key"]) for line in dead.calls()]
    assert len(keys) == len(set(keys)), "no call is paid for twice"


@pytest.mark.parametrize("ends_without_server", [False, True], ids=["in the middle", "at the end"])
def test_a_server_that_is_killed_and_comes_back_shows_the_end_of_the_night(machine, ends_without_server):
    night = Night(machine, 1.5)
    night.answered(40)
    kill(machine, "server")
    if ends_without_server:
        until(lambda: night.manifest()["status"] == "finished", "the run to close its books")
    else:
        time.sleep(5.0)
    machine.start(serve(machine))
    night.ended_well()
