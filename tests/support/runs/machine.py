"""A bare machine on which the commands of docs/deploy.md are followed, with a real Prefect server and worker."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.runs.pages import ROOT
from tests.support.runs.running import PATIENCE_S

BIN = Path(sys.executable).parent
BY_HAND = ("git clone ", "python3 -m venv ", ".venv/bin/pip install ")
"""Done by tests/test_install.py, in a fresh environment."""
ENDS = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
STAY = ("server start", "worker start")
KEPT = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
if "POSTGRES_URL" in os.environ:
    KEPT["PREFECT_API_DATABASE_CONNECTION_URL"] = os.environ["POSTGRES_URL"]
"""What a bare machine has of this environment. An empty Postgres that ``POSTGRES_URL`` names takes the place of SQLite."""


@dataclass
class Machine:
    """A bare machine: an empty PREFECT_HOME, a free port, and whatever was started on it."""

    home: Path
    port: int
    env: dict[str, str] = field(default_factory=dict)
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    answers: dict[str, subprocess.CompletedProcess[str]] = field(default_factory=dict)
    client: httpx.Client = field(default_factory=partial(httpx.Client, timeout=60))

    def command(self, line: str) -> None:
        """Do what one line of the page says; the servers among them go on running."""
        if line.startswith(BY_HAND):
            return
        line = line.replace("4200", str(self.port)).replace("$PWD", str(ROOT))
        words = shlex.split(line)
        if words[0] == "export":
            self.env |= dict(word.split("=", 1) for word in words[1:])
        elif any(part in line for part in STAY):
            self.start(words)
        else:
            self.answers[line] = self.call(*words)

    def start(self, words: list[str]) -> None:
        with (self.home / f"{words[1]}.log").open("wb") as log:
            program = BIN / Path(words[0]).name
            self.running.append(
                subprocess.Popen([program, *words[1:]], env=self.env, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
            )
        if "server" in words:
            until(lambda: self.get("/health") is True, "the server to answer")

    def call(self, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        program = BIN / Path(words[0]).name
        return subprocess.run(
            [program, *words[1:]],
            env=env or self.env,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/api{path}"

    def get(self, path: str) -> Any:
        try:
            return self.client.get(self.url(path)).raise_for_status().json()
        except httpx.TransportError:
            return None

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return self.send("POST", path, body)

    def send(self, method: str, path: str, body: dict[str, Any]) -> httpx.Response:
        def answered() -> httpx.Response | None:
            """Prefect's server says 503 while its SQLite file is locked."""
            answer = self.client.request(method, self.url(path), json=body)
            return None if answer.status_code == 503 else answer

        answer: httpx.Response = until(answered, "the server to take the request")
        return answer

    def runs(self, deployment: str) -> list[dict[str, Any]]:
        found = self.post(
            "/flow_runs/filter", {"deployments": {"name": {"any_": [deployment]}}, "sort": "EXPECTED_START_TIME_ASC"}
        )
        return list(found.raise_for_status().json())

    def ask(self, deployment: str, parameters: dict[str, Any]) -> str:
        """Id of a new flow run."""
        asked = self.post(f"/deployments/{deployment}/create_flow_run", {"parameters": parameters})
        return str(asked.raise_for_status().json()["id"])

    def logs(self, run: str) -> list[str]:
        """Lines of the flow run's log."""
        asked = {"logs": {"flow_run_id": {"any_": [run]}}, "limit": 200}
        return [log["message"] for log in self.post("/logs/filter", asked).raise_for_status().json()]

    def artifacts(self, run: str) -> dict[str, Any]:
        """Artifacts of the flow run by their keys."""
        asked = {"artifacts": {"flow_run_id": {"any_": [run]}}}
        shown = self.post("/artifacts/filter", asked).raise_for_status().json()
        assert len({artifact["key"] for artifact in shown}) == len(shown), "one artifact a key"
        return {artifact["key"]: artifact["data"] for artifact in shown}

    def state(self, run: str) -> str:
        return str((self.get(f"/flow_runs/{run}") or {}).get("state_type"))

    def ended(self, run: str, state: str = "COMPLETED") -> dict[str, Any]:
        until(lambda: self.state(run) == state, f"the run to be {state}")
        return dict(self.get(f"/flow_runs/{run}"))

    def retried(self, run: str) -> dict[str, Any]:
        """The flow run after another try as the UI asks for it, however that ended."""
        before = self.get(f"/flow_runs/{run}")
        again = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}, "force": False}
        assert self.post(f"/flow_runs/{run}/set_state", again).raise_for_status().json()["status"] == "ACCEPT"

        def look() -> dict[str, Any] | None:
            now = self.get(f"/flow_runs/{run}") or {}
            if now.get("state_type") not in ENDS or now["state_id"] == before["state_id"]:
                return None
            return now

        return dict(until(look, "the retry to end"))

    def stop(self) -> None:
        self.client.close()
        for process in reversed(self.running):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=60)


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.5)  # to answer takes the server some hundredths
    pytest.fail(f"waited {PATIENCE_S:g} s for {what}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
