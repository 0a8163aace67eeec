"""The store takes stamped records in whole batches, and fetches the best supported that are in force."""

import errno
import json
import os
from datetime import timedelta

import pytest

from tests.support.records.records import (
    MANIFEST,
    NOW,
    PACK,
    STALE,
    UNKNOWN,
    append_by_hand,
    ids,
    make_batch,
    make_record,
    open_store,
)
from tfgrpo.stores.errors import RecordRejected, StoreError
from tfgrpo.stores.experiences.decisions import Library, read_state, write_state
from tfgrpo.stores.experiences.store import ExperienceStore, stamp_record
from tfgrpo.stores.files.lines import LineFile, read_objects


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path)


def batches(store: ExperienceStore) -> list[dict[str, object]]:
    return list(read_objects(store.path.with_name("batches.jsonl")))


def fetched(store, *args, **options):
    return ids(store.fetch_top("general", *args, **options))


# --- storing


def test_a_batch_round_trips_with_its_manifest(store):
    batch = make_batch(3)
    assert store.record_batch([], MANIFEST) == 0
    assert not store.path.exists()
    assert store.record_batch(batch, MANIFEST) == 3
    assert list(store.records()) == list(open_store(store.path.parent).records()) == batch
    assert [row["experience_id"] for row in read_objects(store.path)] == ["exp-0", "exp-1", "exp-2"]
    (stored,) = batches(store)
    assert stored == {
        "schema_version": 1,
        "batch_id": stored["batch_id"],
        "experience_ids": ["exp-0", "exp-1", "exp-2"],
        "count": 3,
        "manifest_path": str(MANIFEST),
        "at": NOW.isoformat().replace("+00:00", "Z"),
    }


def test_a_batch_that_is_handed_over_again_is_stored_once(store, tmp_path):
    batch = make_batch(4)
    store.record_batch(batch[:2], MANIFEST)
    store.path.with_name("batches.jsonl").unlink()  # as after a kill between the batch and its origin
    later = make_batch(4, created_at=NOW + timedelta(hours=1))
    assert [open_store(tmp_path).record_batch(each, MANIFEST) for each in (batch[:2], later, batch)] == [0, 2, 0]
    assert ids(store.records()) == ids(batch)
    assert [stored["count"] for stored in batches(store)] == [2, 4]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (make_record("bad").model_copy(update={"stamp_signature": ""}), "unstamped"),
        (make_record("bad").model_copy(update={"stamp_signature": "0" * 64}), "stamp does not hold"),
        (make_record("bad", pack=STALE), "stamp does not hold"),
        (make_record("bad", pack=UNKNOWN), "'unknown-pack' is not approved"),
        (make_record("bad").model_copy(update={"polarity": "avoid"}), "stamp does not hold"),
        (make_record("bad", task_id="other"), "it is of task 'other'"),
        (stamp_record(make_record("bad").model_copy(update={"summary32": "w " * 33}), PACK), "33 words"),
        (stamp_record(make_record("bad").model_copy(update={"summary32": "w" * 281}), PACK), "281 characters"),
        (make_record("bad", summary32="one two three four five six seven"), "7 words; at most 6"),
        (stamp_record(make_record("bad").model_copy(update={"epoch": 0}), PACK), "greater than or equal to 1"),
        (make_record("bad").model_copy(update={"epoch": "one"}), "valid integer"),
        (make_record("bad", epoch=4), "epoch 4, the run has 3"),
        (make_record("exp-1"), "occurs twice"),
        (make_record("before", summary32="Something else."), "'before' is stored already with another content"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_bad_record_keeps_the_whole_batch_out(tmp_path, bad, reason):
    store = open_store(tmp_path, max_words=6, epochs=3, task_id="task-1")
    store.record_batch([make_record("before")], MANIFEST)
    before = store.path.read_bytes()
    with pytest.raises(RecordRejected, match=reason):
        store.record_batch([*make_batch(3), bad], MANIFEST)
    assert store.path.read_bytes() == before
    assert len(batches(store)) == 1
    for limit in (0, 33):  # a domain may lower the limit, but not raise it
        with pytest.raises(ValueError, match="1 to 32"):
            open_store(tmp_path, max_words=limit)


def test_a_batch_that_the_disk_does_not_confirm_is_not_stored(store, monkeypatch):
    store.record_batch(make_batch(5), MANIFEST)

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match="No space left"):
            store.record_batch(make_batch(2, prefix="late"), MANIFEST)
    assert (len(list(store.records())), len(batches(store))) == (5, 1)
    assert store.record_batch(make_batch(2, prefix="late"), MANIFEST) == 2


# --- damage


def test_a_line_edited_by_hand_is_no_lesson_and_is_named(store):
    store.record_batch(make_batch(3), MANIFEST)
    text = store.path.read_text()
    store.path.write_text(text.replace("units of exp-1", "money of exp-1"))
    LineFile(store.path).append([{"experience_id": "exp-9"}])
    for _ in range(2):
        assert ids(store.records()) == fetched(store, 9) == ["exp-0", "exp-2"]
    assert store.problems() == ["experiences.jsonl: line 4 is damaged"]  # line 2 was moved to .torn
    assert open_store(store.path.parent).record_batch(make_batch(3), MANIFEST) == 1
    assert ids(store.records()) == ["exp-0", "exp-2", "exp-1"]


def test_a_file_that_was_changed_by_hand_is_read_anew(store):
    store.record_batch(make_batch(5), MANIFEST)
    whole = store.path.read_bytes()
    first = whole.splitlines(keepends=True)[4]  # the last of its group, which is whole without the others
    assert len(fetched(store, 9)) == 5
    store.path.write_bytes(first)
    assert fetched(store, 9) == ["exp-4"]
    assert store.record_batch(make_batch(2), MANIFEST) == 2
    store.path.with_name("other").write_bytes(whole)
    store.path.with_name("other").replace(store.path)
    assert ids(store.find(["exp-3", "exp-1"])) == ["exp-1", "exp-3"]
    store.path.unlink()
    assert fetched(store, 9) == []


# --- fetching


def test_records_are_ranked_by_support_reward_rank_and_id(store):
    two_groups = ("g1/0", "g1/1", "g2/0")
    store.record_batch(
        [
            make_record("d", score=0.5, rank=0.5),
            make_record("c", score=0.5, rank=0.5),
            make_record("b", score=0.5, rank=0.9),
            make_record("a", score=0.9, rank=0.1),
            make_record("e", score=0.1, rank=0.1, evidence=two_groups),
        ],
        MANIFEST,
    )
    assert fetched(store, 10) == ["e", "a", "b", "c", "d"]
    assert fetched(store, 2) == ["e", "a"]
    assert fetched(store, 0) == []
    assert fetched(store, 9, 0.5) == ["a", "b", "c", "d"]
    assert fetched(store, 9, min_reward=0.91) == []
    for options in ({"limit": -1}, {"limit": 1, "min_reward": float("nan")}):
        with pytest.raises(ValueError, match=r"limit|min_reward"):
            store.fetch_top("general", **options)


def test_only_records_of_the_domain_and_tags_are_fetched(store):
    tagged = (("both", ("sums", "units")), ("one", ("sums",)), ("other", ()))
    ours = [make_record(name, tags=tags) for name, tags in tagged]
    store.record_batch([*ours, make_record("elsewhere", domain="law", tags=("sums",))], MANIFEST)
    assert fetched(store, 9) == ["both", "one", "other"]
    assert fetched(store, 9, tags=["sums"]) == ["both", "one"]
    assert fetched(store, 9, tags=("units", "sums")) == ["both"]
    assert ids(store.fetch_top("law", 9)) == ["elsewhere"]
    assert store.fetch_top("unknown", 9) == []


def test_superseded_experiences_are_out_of_force_but_by_none_whose_stamp_does_not_hold(store, tmp_path):
    store.record_batch(make_batch(5), MANIFEST)
    store.record_batch(
        [
            make_record("m", operation="modify", supersedes=("exp-0",)),
            make_record("j", operation="merge", supersedes=("exp-1", "exp-2")),
        ],
        MANIFEST,
    )
    forged = make_record("f", operation="modify", supersedes=("exp-3",)).model_copy(update={"stamp_signature": "f" * 64})
    append_by_hand(store, forged, make_record("exp-4", summary32="Of an id that is taken."))
    assert fetched(store, 9) == ["exp-3", "exp-4", "j", "m"]
    assert store.fetch_top("general", 9)[1].summary32 == "Check the units of exp-4."
    assert len(list(store.records())) == 9
    retired = open_store(tmp_path, approved={"general": STALE})
    assert (fetched(retired, 9), len(list(retired.records()))) == ([], 9)
    assert fetched(open_store(tmp_path, task_id="another"), 9) == []
    assert fetched(open_store(tmp_path, max_words=4), 9) == []


def test_the_view_shows_what_is_in_force_and_the_last_run(tmp_path):
    path = tmp_path / "out" / "task-1" / "state.json"
    library = Library(tuple(make_batch(2)))
    write_state(path, "task-1", library, last_run="run-7", clock=lambda: NOW)
    state = read_state(path)
    assert state == json.loads(path.read_text())
    assert (state["task_id"], state["last_run"], state["updated_at"]) == ("task-1", "run-7", NOW.isoformat())
    assert (state["in_force"]["library_id"], state["in_force"]["simulated"]) == (library.library_id, False)
    first = {"experience_id": "exp-0", "polarity": "do", "text": "Check the units of exp-0."}
    assert state["in_force"]["experiences"][0] == first
    for text in ("{", "[]", "{}", "\0"):
        path.write_text(text)
        assert read_state(path) is None


def test_a_library_is_named_by_ids_polarities_texts_and_order():
    one, two = make_record("a"), make_record("b")
    library = Library((one, two))
    others = [
        Library(()),
        Library((two, one)),
        Library((one,)),
        Library((one, two.model_copy(update={"summary32": "Other."}))),
        Library((one, two.model_copy(update={"polarity": "avoid"}))),
    ]
    assert len({library.library_id, *(other.library_id for other in others)}) == 6
    assert library.library_id == Library((one, two.model_copy(update={"epoch": 2}))).library_id
    assert len(library.library_id) == 16
