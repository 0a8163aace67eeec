"""A run goes on when its terminal is closed, and so does an agent that prints."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.support.runs.running import PATIENCE_S, ROOT, RUN, SMALL, lines, manifest, paths, prefect_server, words

pytestmark = pytest.mark.xdist_group("prefect")
TERMINAL = """
import os, pty, sys
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.executable, [sys.executable, "-m", "flows.tfgrpo", *sys.argv[1:]])
shown = b""
while b"begins" not in shown:
    shown += os.read(terminal, 65536)
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def talkative(prompt, chat):
    time.sleep(0.1)
    print("one attempt", flush=True)  # noqa: T201 - raises where standard output is a closed terminal
    return chat(prompt)


def test_a_run_goes_on_and_finishes_when_its_terminal_is_closed(tmp_path):
    actor = "tests.flows.orchestration.test_hangup:talkative"
    asked = ["--dry-run", "--actor", actor, *words(SMALL), "--concurrency", "4"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PREFECT_API_URL": prefect_server(), "TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-c", TERMINAL, *asked, "--out", str(tmp_path), "--run-id", RUN],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("0\n", "")
    assert manifest(tmp_path)["status"] == "finished"
    assert {row["outcome"]["name"] for row in lines(paths(tmp_path).rollouts)} == {"scored"}
    assert paths(tmp_path).report.exists()
