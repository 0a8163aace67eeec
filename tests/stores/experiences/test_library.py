"""A library is named by its content; any past one is rebuilt from the history."""

from __future__ import annotations

from tests.support.records.experience_stores import ids
from tests.support.records.records import make_batch, make_record
from tfgrpo.stores.experiences.library import Library

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
