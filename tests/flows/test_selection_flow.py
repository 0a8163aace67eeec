"""What Prefect sees of a selection: its states, its message, and the selection as data."""

from __future__ import annotations

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from tests.support.runs.chat_server import ChatServer
from tests.support.runs.running import prefect_server
from tfgrpo.flows.orchestration.request import SelectRequest
from tfgrpo.flows.selection_flow import tfgrpo_select
from tfgrpo.stores.errors import FlowFailed

pytestmark = pytest.mark.xdist_group("prefect")


@pytest.fixture(autouse=True)
def _api():
    with temporary_settings({PREFECT_API_URL: prefect_server()}):
        yield


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
