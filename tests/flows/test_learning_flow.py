"""What does Prefect see of a run? States with names of their own, and one message."""

from __future__ import annotations

import io

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

from tests.support.runs.running import RUN, SMALL, TASK, prefect_server, request
from tfgrpo.flows.console.console import PeopleConsole
from tfgrpo.flows.console.progress import Progress, Screen
from tfgrpo.flows.learning_flow import tfgrpo_learning
from tfgrpo.flows.orchestration.local_run import run_locally
from tfgrpo.flows.run import close as closing
from tfgrpo.flows.run import execution
from tfgrpo.flows.run.prepare import prepare

pytestmark = pytest.mark.xdist_group("prefect")


@pytest.fixture
def api():
    with temporary_settings({PREFECT_API_URL: prefect_server()}):
        yield


def locally(asked):
    """A run as the command does it, with what was said about Prefect."""
    lines, shown = [], []
    screen = Screen(lines.append, Progress(PeopleConsole(file=io.StringIO())), shown.append)
    summary = run_locally(prepare(asked, {}), screen)
    assert shown == [summary]
    return summary, lines


def test_a_run_that_stops_at_a_cap_has_a_state_name_of_its_own(api, tmp_path):
    asked = request(tmp_path, run_id=RUN, max_calls=15, **SMALL)
    state = tfgrpo_learning(request=asked, return_state=True)
    assert (state.type.value, state.name) == ("COMPLETED", "StoppedEarly")
    summary, lines = locally(request(tmp_path, resume=RUN))
    assert (summary.status, summary.run_id, summary.exit_code) == ("stopped", RUN, 3)
    assert "max_calls" in summary.message
    assert summary.details["resume with"] == f"--resume {RUN}"
    assert not any("not informed" in line for line in lines)
    with get_client(sync_client=True) as client:
        informed = [run for run in client.read_flow_runs() if run.state.message == summary.message]
    assert [run.state.name for run in informed] == ["StoppedEarly", "StoppedEarly"]
    assert {run.name for run in informed} == {f"{TASK} night 1"}


def test_an_interrupt_while_the_books_are_closed_is_no_crash_for_prefect(api, tmp_path, monkeypatch, capfd):
    def interrupted(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(closing, "check_spec", interrupted)
    with get_client(sync_client=True) as client:
        earlier = {run.id for run in client.read_flow_runs()}  # of other tests on this server
    summary, lines = locally(request(tmp_path, run_id=RUN, **SMALL))
    assert (summary.status, summary.exit_code) == ("stopped", 3)
    assert not any("not informed" in line for line in lines)
    with get_client(sync_client=True) as client:
        informed = [run.state for run in client.read_flow_runs() if run.id not in earlier]
    assert [(state.name, state.message) for state in informed] == [("StoppedEarly", summary.message)]
    assert "rash" not in "".join(capfd.readouterr())


def test_what_a_run_needs_is_read_and_asked_for_once(api, tmp_path, monkeypatch):
    asked = request(tmp_path, run_id=RUN, **SMALL)
    prepared = prepare(asked, {})
    monkeypatch.setattr(execution, "prepare", lambda *_: pytest.fail("it was prepared before"))
    screen = Screen(lambda line: None, Progress(PeopleConsole(file=io.StringIO())), lambda summary: None)
    assert run_locally(prepared, screen).status == "finished"
