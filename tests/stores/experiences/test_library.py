"""A library is named by its content and can be rebuilt from history; the view of a task is replaced at one stroke."""

from __future__ import annotations

import json

import pytest

from tests.support.records.records import NOW, ids, make_batch, make_record
from tfgrpo.stores.experiences.decisions import Library, read_state, write_state

EMPTY = Library(())


def test_any_past_library_can_be_rebuilt_from_history():
    history = [*make_batch(3), make_record("m", operation="modify", supersedes=("exp-1",))]
    assert ids(Library.of_ids(history, ["exp-2", "exp-1", "exp-2"]).entries) == ["exp-2", "exp-1"]
    assert ids(Library.of_ids(history, ("m", "unknown")).entries) == ["m"]
    assert Library.of_ids(iter(history), ()) == EMPTY


def test_a_library_is_named_by_ids_polarities_texts_and_order():
    one, two = make_record("a"), make_record("b")
    library = Library((one, two))
    others = [
        EMPTY,
        Library((two, one)),
        Library((one,)),
        Library((one, two.model_copy(update={"summary32": "Other."}))),
        Library((one, two.model_copy(update={"polarity": "avoid"}))),
    ]
    assert len({library.library_id, *(other.library_id for other in others)}) == 6
    assert library.library_id == Library((one, two.model_copy(update={"epoch": 2}))).library_id
    assert len(library.library_id) == 16


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
