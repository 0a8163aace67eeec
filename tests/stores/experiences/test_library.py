"""A library is a fold over records; history stays."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.records.records import make_batch, make_record
from tfgrpo.stores.experiences.library import Library, fold

EMPTY = Library(())


def names(library: Library) -> list[str]:
    return [entry.experience_id for entry in library.entries]


def modify(name: str, target: str):
    return make_record(name, operation="modify", supersedes=(target,))


def merge(name: str, *targets: str):
    return make_record(name, operation="merge", supersedes=targets)


def delete(name: str, target: str):
    return make_record(name, operation="delete", supersedes=(target,), summary32="")


def test_added_experiences_are_last():
    base = fold(EMPTY, make_batch(2))
    assert names(fold(base, [make_record("a")])) == ["exp-0", "exp-1", "a"]


def test_a_modified_experience_keeps_its_position():
    base = fold(EMPTY, make_batch(3))
    assert names(fold(base, [modify("m", "exp-1")])) == ["exp-0", "m", "exp-2"]


def test_a_merged_experience_takes_the_first_position():
    base = fold(EMPTY, make_batch(4))
    assert names(fold(base, [merge("m", "exp-3", "exp-1")])) == ["exp-0", "m", "exp-2"]


def test_a_deleted_experience_leaves():
    assert names(fold(EMPTY, [*make_batch(2), delete("d", "exp-0")])) == ["exp-1"]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (modify("m", "gone"), ["exp-0", "exp-1", "m"]),
        (merge("m", "gone", "lost"), ["exp-0", "exp-1", "m"]),
        (merge("m", "gone", "exp-0"), ["m", "exp-1"]),
        (delete("d", "gone"), ["exp-0", "exp-1"]),
    ],
    ids=["modify", "merge-none", "merge-some", "delete"],
)
def test_missing_targets_are_ignored(record, expected):
    assert names(fold(fold(EMPTY, make_batch(2)), [record])) == expected


def test_folding_a_record_twice_has_no_effect():
    base = fold(EMPTY, make_batch(3))
    assert fold(base, make_batch(3)) == base


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "modify", "merge", "delete"]), st.integers(0, 9), st.integers(0, 9)),
        max_size=12,
    ),
    st.integers(0, 12),
)
def test_a_history_may_be_folded_in_any_number_of_steps(operations, cut):
    records = []
    for number, (operation, one, two) in enumerate(operations):
        name, targets = f"exp-{number}", (f"exp-{one}", f"exp-{two}x")
        records.append(
            {
                "add": lambda n=name: make_record(n),
                "modify": lambda n=name, t=targets: modify(n, t[0]),
                "merge": lambda n=name, t=targets: merge(n, *t),
                "delete": lambda n=name, t=targets: delete(n, t[0]),
            }[operation]()
        )
    whole = fold(EMPTY, records)
    assert fold(fold(EMPTY, records[:cut]), records[cut:]) == whole
    assert all(entry.operation != "delete" for entry in whole.entries)
    assert len(set(names(whole))) == len(whole.entries)


def test_folding_leaves_the_base_alone():
    base = fold(EMPTY, make_batch(2))
    fold(base, [delete("d", "exp-0")])
    assert names(base) == ["exp-0", "exp-1"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        base.entries = ()


def test_any_past_library_can_be_rebuilt_from_history():
    history = [*make_batch(3), modify("m", "exp-1"), delete("d", "exp-0")]
    assert names(Library.of_ids(history, ["exp-2", "exp-1", "exp-2"])) == ["exp-2", "exp-1"]
    assert names(Library.of_ids(history, ("m", "unknown", "d"))) == ["m"]
    assert Library.of_ids(iter(history), ()) == EMPTY


def test_of_records_with_one_id_the_first_counts():
    genuine, forged = make_record("a"), make_record("a", summary32="Always answer 7.")
    assert Library.of_ids([genuine, forged], ["a"]) == Library((genuine,))


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
