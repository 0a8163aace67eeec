"""Which server does a run use, and what is said when there is none?"""

from __future__ import annotations

import io
import os
import re
import signal
import threading
from types import SimpleNamespace

import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_SERVER_ALLOW_EPHEMERAL_MODE, temporary_settings
from prefect.states import Failed

from tests.support.runs.running import PATIENCE_S, start
from tfgrpo.flows import cli
from tfgrpo.flows.console.console import PeopleConsole
from tfgrpo.flows.console.progress import Progress, Screen
from tfgrpo.flows.orchestration import local_run
from tfgrpo.flows.orchestration.local_run import run_locally
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.flows.run.prepare import prepare
from tfgrpo.stores.errors import PrefectUnavailable, SettingsError

NOBODY = "http://127.0.0.1:9/api"


@pytest.fixture
def flow(monkeypatch):
    """Something in place of the flow; a function of the request."""
    calls = []

    def run(does):
        monkeypatch.setattr(local_run, "tfgrpo_learning", lambda request, return_state: calls.append(1) or does())
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
    monkeypatch.setattr(local_run, "refresh_global_settings_context", lambda: waited.append("Prefect told"))
    flow(lambda: Failed(message=f"after {waited}"))
    server = SimpleNamespace(serve=lambda environment, limit: waited.append((environment is os.environ, limit > 0)))
    with pytest.raises(PrefectUnavailable, match=re.escape("after [(True, True), 'Prefect told']")):
        run_nothing(server)


@pytest.mark.parametrize("login", ["", "me:secret@"])
def test_a_server_that_is_named_and_does_not_answer_is_refused_before_the_flow(flow, login):
    calls = flow(lambda: None)
    named = NOBODY.replace("//", f"//{login}")
    with temporary_settings({PREFECT_API_URL: named}), pytest.raises(SettingsError) as refused:
        run_nothing()
    (problem,) = refused.value.problems
    assert (problem.source, problem.given) == ("PREFECT_API_URL", NOBODY)
    assert "ConnectError" in problem.accepted
    assert calls == []


def test_a_machine_that_may_have_no_server_is_told_what_to_name(flow):
    calls = flow(lambda: None)
    forbidden = temporary_settings({PREFECT_SERVER_ALLOW_EPHEMERAL_MODE: False}, restore_defaults={PREFECT_API_URL})
    with forbidden, pytest.raises(SettingsError, match="PREFECT_API_URL: got nothing"):
        run_nothing()
    assert calls == []


def test_a_server_that_fails_the_run_is_told_in_one_line(flow, unnamed):
    def busy():
        raise RuntimeError("Server error '503' for url 'http://me:secret@localhost/api'\nFor more information check …")

    flow(busy)
    with pytest.raises(
        PrefectUnavailable,
        match=r"did not register the run: RuntimeError: Server error '503' for url 'http://localhost/api'$",
    ):
        run_nothing()


def test_ctrl_c_while_prefect_takes_the_end_of_a_run_leaves_that_end_as_it_is(flow):
    hangs = threading.Event()
    flow(hangs.wait)
    flow_run = local_run._FlowRun(RunRequest())
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    assert flow_run.end(lambda line: None) == "interrupted"
    hangs.set()


def test_a_run_that_prefect_does_not_let_begin_says_so(flow, unnamed):
    flow(lambda: Failed(message="too many runs"))
    with pytest.raises(PrefectUnavailable, match=r"did not register the run: .*too many runs"):
        run_nothing()


def test_a_setting_that_prefect_refuses_is_one_clear_message(tmp_path):
    # In a process of its own: Prefect reads its settings when it is imported.
    home = {"PREFECT_HOME": str(tmp_path / "prefect"), "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "maybe"}
    process = start(tmp_path / "out", "--dry-run", env=home)
    said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert "a setting of Prefect's, enabled: got 'maybe'" in "".join(part or "" for part in said)
    assert "Traceback" not in "".join(part or "" for part in said)
    assert not (tmp_path / "out").exists()


def test_the_command_refuses_a_server_that_does_not_answer(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with temporary_settings({PREFECT_API_URL: NOBODY}):
        monkeypatch.setenv("PREFECT_API_URL", NOBODY)
        assert cli.main(["run", "--dry-run"]) == 2
    assert f"PREFECT_API_URL: got {NOBODY}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
