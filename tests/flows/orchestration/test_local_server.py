"""Does a run without a Prefect server get one, only where it has none, and is it gone afterwards, however that ends?"""

import os
import signal
import textwrap
from types import SimpleNamespace

import httpx
import psutil
import pytest

from tests.support.runs.running import PATIENCE_S
from tfgrpo.flows.orchestration import local_server
from tfgrpo.flows.orchestration.local_server import LocalServer, start_server
from tfgrpo.stores.errors import PrefectUnavailable

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
        monkeypatch.setattr(local_server, "_PROGRAM", text)

    return use


@pytest.fixture
def farewells(monkeypatch):
    """What is to be called when the process ends; called at the end of the test."""
    registered = []
    monkeypatch.setattr(local_server, "atexit", SimpleNamespace(register=registered.append))
    yield registered
    for call in registered:
        call()


def test_a_machine_without_a_server_gets_one_that_is_gone_when_the_process_ends(stand_in, farewells):
    stand_in(HEALTHY)
    environment = dict(os.environ)
    server = start_server(environment)
    server.serve(environment, PATIENCE_S)
    url = environment["PREFECT_API_URL"]
    assert httpx.get(f"{url}/health").status_code == 200
    process = psutil.Process(server._process.pid)
    assert farewells == [server.stop]
    server.stop()
    assert not process.is_running()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")


TRACEBACK = "Traceback\\n  File\\nsql.Error: no such table\\n(see there)\\n\\nfailed"


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("print('no such table', file=sys.stderr)", "no such table"),
        (f"print('{TRACEBACK}')", "sql.Error: no such table"),
        ("", "it said nothing"),
    ],
)
def test_a_server_that_ends_at_once_is_told_with_what_it_said_of_the_cause(stand_in, says, told, capfd):
    stand_in(f"import sys; {says}\nraise SystemExit(3)")
    environment = dict(os.environ)
    server = LocalServer(environment)
    with pytest.raises(PrefectUnavailable, match=f"ended with 3 before it answered: {told}$"):
        server.serve(environment, PATIENCE_S)
    server.stop()
    assert environment == os.environ
    assert capfd.readouterr() == ("", "")


def test_a_server_that_never_answers_is_given_up_on(stand_in):
    stand_in("import time; time.sleep(600)")
    server = LocalServer(os.environ)
    with pytest.raises(PrefectUnavailable, match="did not answer within 1 s"):
        server.serve({}, 1.0)
    process = psutil.Process(server._process.pid)
    server.stop()
    assert not process.is_running()


def test_an_interrupt_of_the_terminal_does_not_reach_it(stand_in):
    stand_in(HEALTHY, first="assert os.getsid(0) == os.getpid()")
    server = LocalServer(os.environ)
    server.serve({}, PATIENCE_S)
    server.stop()
    assert server._process.returncode == -signal.SIGTERM


@pytest.mark.parametrize("asked", [None, "true"])
def test_the_runs_own_server_sends_no_usage_data_unless_it_is_asked_for(asked, monkeypatch):
    started = []
    monkeypatch.setattr(local_server.subprocess, "Popen", lambda command, **more: started.append(more["env"]))
    given = {} if asked is None else {"PREFECT_SERVER_ANALYTICS_ENABLED": asked}
    local_server.LocalServer({"DO_NOT_TRACK": "1", **given})._said.close()
    assert started[0]["PREFECT_SERVER_ANALYTICS_ENABLED"] == (asked or "false")
