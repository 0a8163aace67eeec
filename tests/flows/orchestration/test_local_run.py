"""Which server does a run use, and what is said when there is none?"""

import io
import json
import os
import re
import signal
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Failed

from tests.support.runs.running import PATIENCE_S, start
from tfgrpo.flows import cli, learning_flow
from tfgrpo.flows.console.console import PeopleConsole
from tfgrpo.flows.console.observer import Progress, Screen
from tfgrpo.flows.learning_flow import run_locally
from tfgrpo.flows.orchestration import deployed
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.flows.run.index import runs_of
from tfgrpo.flows.run.prepare import prepare
from tfgrpo.stores.errors import PrefectUnavailable, SettingsError
from tfgrpo.stores.files.layout import TaskPaths

NOBODY = "http://127.0.0.1:9/api"


@pytest.fixture
def flow(monkeypatch, tmp_path):
    """Something in place of the flow; a function of the request. Runs are listed in a directory of their own."""
    monkeypatch.chdir(tmp_path)
    calls = []

    def run(does):
        monkeypatch.setattr(learning_flow, "tfgrpo_learning", lambda **_: calls.append(1) or does())
        return calls

    return run


def run_nothing(server=None):
    """A run that Prefect does not begin."""
    screen = Screen(lambda line: None, Progress(PeopleConsole(file=io.StringIO())), lambda summary: None)
    return run_locally(prepare(RunRequest(), {}), screen, server)


@pytest.fixture
def unnamed():
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        yield


def test_a_server_that_is_starting_is_waited_for_where_none_is_named(flow, unnamed, monkeypatch):
    waited = []
    monkeypatch.setattr(learning_flow, "refresh_global_settings_context", lambda: waited.append("Prefect told"))
    flow(lambda: Failed(message=f"after {waited}"))
    server = SimpleNamespace(serve=lambda environment, limit: waited.append((environment is os.environ, limit > 0)))
    with pytest.raises(PrefectUnavailable, match=re.escape("after [(True, True), 'Prefect told']")):
        run_nothing(server)


def test_a_server_that_is_named_and_does_not_answer_is_asked_until_the_limit_before_the_flow(flow, monkeypatch):
    monkeypatch.setattr(learning_flow, "_ANSWER_S", 2.0)
    calls = flow(lambda: None)
    named = NOBODY.replace("//", "//me:secret@")
    began = time.monotonic()
    with temporary_settings({PREFECT_API_URL: named}), pytest.raises(PrefectUnavailable) as failed:
        run_nothing()
    assert time.monotonic() - began >= 2.0
    assert str(failed.value).startswith(f"Prefect's server at {NOBODY}, of PREFECT_API_URL, does not answer: ConnectError")
    assert calls == []


@pytest.mark.parametrize(("status", "code"), [(401, SettingsError), (404, SettingsError), (503, PrefectUnavailable)])
def test_a_server_that_refuses_is_a_wrong_setting_at_once(flow, monkeypatch, status, code):
    reply = httpx.Response(status, request=httpx.Request("GET", NOBODY))
    error = httpx.HTTPStatusError("no", request=reply.request, response=reply)
    asked = []
    monkeypatch.setattr(learning_flow, "_ANSWER_S", 1.0)
    monkeypatch.setattr(deployed, "_why_silent", lambda _: asked.append(status) or error)
    flow(lambda: None)
    with temporary_settings({PREFECT_API_URL: NOBODY}), pytest.raises(code):
        run_nothing()
    assert (len(asked) == 1) == (code is SettingsError)


def test_a_server_that_fails_or_refuses_the_run_is_told_in_one_line(flow, unnamed):
    def busy():
        raise RuntimeError("Server error '503' for url 'http://me:secret@localhost/api'\nFor more information check …")

    said = "did not register the run: "
    for does, why in (
        (busy, r"RuntimeError: Server error '503' for url 'http://localhost/api'$"),
        (lambda: Failed(message="too many runs"), ".*too many runs"),
    ):
        flow(does)
        with pytest.raises(PrefectUnavailable, match=said + why):
            run_nothing()


def test_ctrl_c_while_prefect_takes_the_end_of_a_run_leaves_that_end_as_it_is(flow):
    hangs = threading.Event()
    flow(hangs.wait)
    flow_run = learning_flow._FlowRun(RunRequest())
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    assert flow_run.end(lambda line: None) == "interrupted"
    hangs.set()


def test_a_setting_that_prefect_refuses_is_one_clear_message(tmp_path):
    # In a process of its own: Prefect reads its settings when it is imported.
    home = {"PREFECT_HOME": str(tmp_path / "prefect"), "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "maybe"}
    process = start(tmp_path / "out", "--dry-run", env=home)
    said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert "a setting of Prefect's, enabled: got 'maybe'" in "".join(part or "" for part in said)
    assert "Traceback" not in "".join(part or "" for part in said)
    assert not (tmp_path / "out").exists()


def test_a_run_that_finds_no_server_is_listed(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(learning_flow, "_ANSWER_S", 0.1)
    monkeypatch.chdir(tmp_path)
    with temporary_settings({PREFECT_API_URL: NOBODY}):
        monkeypatch.setenv("PREFECT_API_URL", NOBODY)
        assert cli.main(["run", "--dry-run"]) == 1
    assert f"PrefectUnavailable: Prefect's server at {NOBODY}" in capsys.readouterr().err
    assert cli.main(["runs", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["runs"]
    assert (row["state"], row["message"].partition(",")[0]) == ("failed", f"Prefect's server at {NOBODY}")


def test_a_run_of_a_task_that_its_request_does_not_name_is_listed_with_that_task(monkeypatch, tmp_path):
    monkeypatch.setattr(learning_flow, "_ANSWER_S", 0.1)
    monkeypatch.chdir(tmp_path)
    prepared = prepare(RunRequest(dry_run=True), {})
    mine = TaskPaths.of(tmp_path / "out", "mine")  # as of `tfgrpo test`, which takes the task that was used last
    prepared = replace(prepared, plan=replace(prepared.plan, paths=mine))
    screen = Screen(lambda line: None, Progress(PeopleConsole(file=io.StringIO())), lambda summary: None)
    with temporary_settings({PREFECT_API_URL: NOBODY}), pytest.raises(PrefectUnavailable):
        run_locally(prepared, screen)
    (entry,) = runs_of(mine)
    assert (entry.status, entry.simulated) == ("failed", True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]
