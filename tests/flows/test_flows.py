"""What does Prefect see of runs and selections? States with names of their own, and one message."""

import io

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

from tests.support.runs.chat_server import ChatServer
from tests.support.runs.running import RUN, SMALL, TASK, interrupt, prefect_server, request
from tfgrpo.flows.console.console import PeopleConsole
from tfgrpo.flows.console.observer import Progress, Screen
from tfgrpo.flows.learning_flow import run_locally, tfgrpo_learning
from tfgrpo.flows.orchestration.request import SelectRequest
from tfgrpo.flows.run import close as closing
from tfgrpo.flows.run import execution
from tfgrpo.flows.run.prepare import prepare
from tfgrpo.flows.selection_flow import tfgrpo_select
from tfgrpo.stores.errors import FlowFailed

pytestmark = pytest.mark.xdist_group("prefect")


@pytest.fixture(autouse=True)
def _api():
    with temporary_settings({PREFECT_API_URL: prefect_server()}):
        yield


def locally(asked):
    """A run as the command does it, with what was said about Prefect."""
    lines, shown = [], []
    screen = Screen(lines.append, Progress(PeopleConsole(file=io.StringIO())), shown.append)
    summary = run_locally(prepare(asked, {}), screen)
    assert shown == [summary]
    return summary, lines


def test_a_run_that_stops_at_a_cap_has_a_state_name_of_its_own(tmp_path):
    asked = request(tmp_path, max_calls=15, **SMALL)
    state = tfgrpo_learning(settings=asked.settings, return_state=True)
    assert (state.type.value, state.name) == ("COMPLETED", "StoppedEarly")
    run_id = state.result()["run_id"]
    summary, lines = locally(request(tmp_path, resume=run_id))
    assert (summary.status, summary.run_id, summary.exit_code) == ("stopped", run_id, 3)
    assert "max_calls" in summary.message
    assert summary.details["resume with"] == f"--resume {run_id}"
    assert not any("not informed" in line for line in lines)
    with get_client(sync_client=True) as client:
        informed = [run for run in client.read_flow_runs() if run.state.message == summary.message]
    assert [run.state.name for run in informed] == ["StoppedEarly", "StoppedEarly"]
    assert {run.name for run in informed} == {f"{TASK} night 1"}


def test_an_interrupt_while_the_books_are_closed_is_no_crash_for_prefect_and_what_a_run_needs_is_read_once(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.setattr(closing, "check_spec", interrupt)
    monkeypatch.setattr(execution, "prepare", lambda *_, **__: pytest.fail("it was prepared before"))
    with get_client(sync_client=True) as client:
        earlier = {run.id for run in client.read_flow_runs()}  # of other tests on this server
    summary, lines = locally(request(tmp_path, run_id=RUN, **SMALL))
    assert (summary.status, summary.exit_code) == ("stopped", 3)
    assert not any("not informed" in line for line in lines)
    with get_client(sync_client=True) as client:
        informed = [run.state for run in client.read_flow_runs() if run.id not in earlier]
    assert [(state.name, state.message) for state in informed] == [("StoppedEarly", summary.message)]
    assert "rash" not in "".join(capfd.readouterr())


def state_of(**asked):
    shown = {name: value for name, value in asked.items() if name in tfgrpo_select.parameters.properties}
    settings = {SelectRequest.KEYS[name]: value for name, value in asked.items() if name not in shown}
    state = tfgrpo_select(**shown, settings=settings, return_state=True)
    data = state.result(raise_on_failure=False)
    return state, data.summary if isinstance(data, FlowFailed) else data


def test_a_selection_is_completed_with_its_value_as_data():
    state, data = state_of(dry_run=True, k=3)
    assert (state.type.value, state.name) == ("COMPLETED", "Completed")
    assert (data["status"], len(data["candidates"])) == ("finished", 3)
    assert state.message == data["message"]


def test_ends_without_a_choice_have_states_of_their_own():
    with ChatServer(lambda number, body: "no model") as server:
        asked = {"prompt": "x", "format": "powl", "base_url": server.url, "model": "m", "k": 2, "max_validations": 1}
        state, data = state_of(**asked)
        assert (state.type.value, data["status"]) == ("FAILED", "failed")
        state, data = state_of(**asked, max_calls=2)
        assert (state.type.value, state.name, data["status"]) == ("COMPLETED", "StoppedEarly", "stopped")


def test_bad_input_fails_with_every_problem():
    state, data = state_of(k=99, min_success=77)
    assert state.type.value == "FAILED"
    assert {problem["source"] for problem in data["problems"]} == {"parameter k", "settings selection.min_success"}
    with pytest.raises(FlowFailed, match="settings selection"):
        tfgrpo_select(k=99, settings={"selection.min_success": 77})


def test_a_history_that_cannot_be_read_fails_with_one_message(tmp_path):
    path = tmp_path / "t" / "selections.jsonl"
    path.parent.mkdir()
    path.write_text("{}\n", encoding="utf-8")
    state, data = state_of(dry_run=True, task_id="t", out=str(tmp_path))
    assert (state.type.value, data["status"]) == ("FAILED", "failed")
    assert state.message.startswith("CorruptFile: ")
