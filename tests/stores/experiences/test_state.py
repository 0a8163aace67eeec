"""The state of a task is a view, replaced at one stroke."""

from __future__ import annotations

import json

import pytest

from tests.support.records.records import NOW, make_batch
from tfgrpo.stores.experiences.library import Library, read_state, write_state


def test_the_view_shows_what_is_in_force_and_the_last_run(tmp_path):
    path = tmp_path / "out" / "task-1" / "state.json"
    library = Library(tuple(make_batch(2)))
    write_state(path, "task-1", library, last_run="run-7", clock=lambda: NOW)
    state = read_state(path)
    assert state == json.loads(path.read_text())
    assert state["task_id"] == "task-1"
    assert state["last_run"] == "run-7"
    assert state["updated_at"] == NOW.isoformat()
    assert (state["in_force"]["library_id"], state["in_force"]["simulated"]) == (library.library_id, False)
    assert state["in_force"]["experiences"][0] == {
        "experience_id": "exp-0",
        "polarity": "do",
        "text": "Check the units of exp-0.",
    }


@pytest.mark.parametrize("text", ["{", "[]", "{}", "\0"])
def test_a_damaged_view_is_none(tmp_path, text):
    (tmp_path / "state.json").write_text(text)
    assert read_state(tmp_path / "state.json") is None
