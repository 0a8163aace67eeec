"""The end of a run belongs to the run: neither a lost server of Prefect nor a closed terminal changes it."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from tests.support.runs.prefect_proxy import PrefectProxy
from tests.support.runs.running import (
    PATIENCE_S,
    ROOT,
    RUN,
    SMALL,
    TASK,
    Server,
    finish,
    lines,
    manifest,
    paths,
    prefect_server,
    start,
    words,
)
from tfgrpo.flows.run.index import runs_of
from tfgrpo.stores.files.layout import TaskPaths

pytestmark = pytest.mark.xdist_group("prefect")
WARNING = "Prefect was not informed of the end of the run"
SOON_S = 120.0
"""Far above all limits together and far below the minutes that Prefect's client tries."""


@pytest.fixture
def model():
    with Server() as server:
        yield server


@pytest.fixture
def proxy():
    with PrefectProxy(prefect_server()) as between:
        yield between


def begin(tmp_path, proxy, model):
    asked = ("--model", "simulated", "--base-url", model.url, *words(SMALL))
    return start(tmp_path, "--run-id", RUN, *asked, env={"PREFECT_API_URL": proxy.url, "OPENAI_API_KEY": "none"})


def ended(process):
    """Exit code, summary and stderr, and that they came in time and without a page of Prefect's."""
    began = time.monotonic()
    code, summary, said = finish(process)
    assert time.monotonic() - began < SOON_S
    assert "Traceback" not in said
    assert " | ERROR " not in said
    return code, summary, said


@pytest.mark.slow
def test_a_reply_of_prefects_that_is_lost_changes_nothing_about_a_finished_run(tmp_path, proxy, model):
    proxy.become("losing")
    code, summary, said = ended(begin(tmp_path, proxy, model))
    assert proxy.lost == 1
    assert (code, summary["status"]) == (0, "finished"), said
    assert WARNING not in said


def test_a_server_that_falls_silent_delays_the_end_of_a_run_by_seconds_and_is_a_warning(tmp_path, proxy, model):
    process = begin(tmp_path, proxy, model)
    model.wait_for(8)
    proxy.become("silent")
    code, summary, said = ended(process)
    assert (code, summary["status"]) == (0, "finished"), said
    report = said.index(str(paths(tmp_path).report))
    assert report < said.index("waiting for Prefect") < said.index(f"warning: {WARNING}: no reply")
    assert manifest(tmp_path)["status"] == "finished"
    assert [text for text in manifest(tmp_path)["warnings"] if text.startswith(WARNING)]


@pytest.mark.slow
def test_a_stop_ends_like_any_other_when_the_server_is_gone(tmp_path, proxy, model):
    process = begin(tmp_path, proxy, model)
    model.wait_for(8)
    proxy.become("gone")
    process.send_signal(signal.SIGTERM)
    code, summary, said = ended(process)
    assert (code, summary["status"]) == (3, "stopped"), said
    assert f"warning: {WARNING}" in said
    assert manifest(tmp_path)["status"] == "stopped"
    assert paths(tmp_path).root.joinpath("report.html").is_file()


@pytest.mark.slow
def test_a_server_that_never_answers_fails_the_run_within_a_limit_that_the_screen_names_and_it_is_listed(
    tmp_path, proxy, model
):
    proxy.become("silent")
    code, summary, said = ended(begin(tmp_path, proxy, model))
    assert (code, summary["status"]) == (1, "failed")
    assert f"connecting to Prefect at {proxy.url}, at most 20 s" in said
    why = f"Prefect's server at {proxy.url}, of PREFECT_API_URL, does not answer: TimeoutError: no answer within"
    assert why in summary["message"]
    assert said.index("forecast: ") < said.index("starting Prefect …") < said.index("connecting to Prefect")
    assert model.bodies == []
    (entry,) = runs_of(TaskPaths.of(tmp_path, TASK))
    assert (entry.run_id, entry.state, why in entry.message) == (RUN, "failed", True)


@pytest.mark.slow
def test_a_server_that_refuses_connections_is_asked_again_until_it_answers(tmp_path, model):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        proxy = PrefectProxy(prefect_server())
        proxy._listener.close()
        proxy._listener, proxy.url = listener, f"http://127.0.0.1:{listener.getsockname()[1]}/api"
        process = begin(tmp_path, proxy, model)
        threading.Timer(8.0, lambda: (listener.listen(), proxy._accept())).start()
        code, summary, said = ended(process)
        proxy.become("gone")
    assert (code, summary["status"]) == (0, "finished"), said


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
    actor = "tests.flows.orchestration.test_lost_prefect:talkative"
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
