"""Does a run without a Prefect server get one, only where it has none, and is it gone afterwards?"""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from types import SimpleNamespace

import httpx
import pytest
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_SERVER_ALLOW_EPHEMERAL_MODE,
    PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS,
    get_current_settings,
    temporary_settings,
)

from flows import local_server
from flows.local_server import LocalServer, serve_locally
from stores.errors import RunAborted

HEALTHY = """
    import http.server, os, signal, socket, sys
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/api/health" else 404)
            self.end_headers()
        def log_message(self, *said):
            pass
    {first}
    server = http.server.HTTPServer(("127.0.0.1", 0), Answer, bind_and_activate=False)
    server.socket = socket.socket(fileno=int(sys.argv[1]))
    server.serve_forever()
"""


@pytest.fixture
def stand_in(monkeypatch):
    """Has a program of ours started instead of the server; it is told the descriptor of the socket."""

    def use(program, **parts):
        text = textwrap.dedent(program).replace("{first}", parts.get("first", ""))
        monkeypatch.setattr(local_server, "_command", lambda fd: [sys.executable, "-c", text, str(fd)])

    return use


@pytest.fixture
def farewells(monkeypatch):
    """What is to be called when the process ends; called at the end of the test."""
    registered = []
    monkeypatch.setattr(local_server, "atexit", SimpleNamespace(register=registered.append))
    yield registered
    for call in registered:
        call()


def server_of(environment):
    return LocalServer(environment, get_current_settings())


def test_a_machine_without_a_server_gets_one_that_prefect_then_uses(stand_in, farewells):
    stand_in(HEALTHY)
    environment = dict(os.environ)
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        serve_locally(environment)
    url = environment["PREFECT_API_URL"]
    assert httpx.get(f"{url}/health").status_code == 200
    for stop in farewells:
        stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")


@pytest.mark.parametrize(
    "settings",
    [{PREFECT_API_URL: "http://127.0.0.1:1/api"}, {PREFECT_SERVER_ALLOW_EPHEMERAL_MODE: False}],
    ids=["there is an address", "none is allowed"],
)
def test_a_server_that_is_named_or_not_wanted_is_left_alone(settings, stand_in, farewells):
    stand_in("raise SystemExit('started')")
    environment = {}
    restored = set() if PREFECT_API_URL in settings else {PREFECT_API_URL}
    with temporary_settings(settings, restore_defaults=restored):
        serve_locally(environment)
    assert environment == {}
    assert farewells == []


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; print('no such table', file=sys.stderr); raise SystemExit(3)", "no such table"),
        ("raise SystemExit(3)", "it said nothing"),
    ],
)
def test_a_server_that_ends_at_once_is_told_with_its_last_words(stand_in, program, said, capfd):
    stand_in(program)
    server = server_of(dict(os.environ))
    try:
        with pytest.raises(RunAborted, match=f"ended with 3 before it answered: {said}"):
            server.wait(60.0)
    finally:
        server.stop()
    assert capfd.readouterr() == ("", "")


def test_a_server_that_never_answers_is_given_up_on_and_leaves_no_process(stand_in, farewells):
    stand_in("import time; time.sleep(600)")
    environment = dict(os.environ)
    environment.pop("PREFECT_API_URL", None)
    limit = {PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS: 1}
    with (
        temporary_settings(limit, restore_defaults={PREFECT_API_URL}),
        pytest.raises(RunAborted, match="did not answer within 1 s"),
    ):
        serve_locally(environment)
    assert "PREFECT_API_URL" not in environment
    assert len(farewells) == 1


def test_one_that_does_not_heed_its_end_is_killed(stand_in, monkeypatch):
    monkeypatch.setattr(local_server, "_STOPPING_S", 0.1)
    stand_in(HEALTHY, first="signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    server = server_of(dict(os.environ))
    server.wait(60.0)
    server.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.api_url}/health")


def test_an_interrupt_of_the_terminal_does_not_reach_it(stand_in):
    stand_in(HEALTHY, first="assert os.getsid(0) == os.getpid()")
    server = server_of(dict(os.environ))
    try:
        server.wait(60.0)
    finally:
        server.stop()
    assert server._process.returncode == -signal.SIGTERM


def test_the_real_server_is_started_as_prefect_starts_its_own():
    command = local_server._command(7)
    assert command[:5] == [sys.executable, "-m", "uvicorn", "--factory", "prefect.server.api.server:create_app"]
    assert command[command.index("--fd") + 1] == "7"
