"""The index of a store is a view: whatever happens to it, what is fetched and found is what the file says."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import stat
import tracemalloc

import pytest

from tests.support.records import writers
from tests.support.records.experience_stores import MANIFEST, STALE, append_by_hand, ids, open_store
from tests.support.records.processes import SPAWN, all_at_once, in_process
from tests.support.records.records import make_batch, make_record
from tfgrpo.stores.errors import CorruptFile, StoreError
from tfgrpo.stores.experiences import index as experience_index
from tfgrpo.stores.experiences.index import ExperienceIndex
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.experiences.record import Skipped
from tfgrpo.stores.experiences.store import ExperienceStore, best_of


@pytest.fixture
def store(tmp_path) -> ExperienceStore:
    store = open_store(tmp_path)
    store.record_batch(make_batch(5), MANIFEST)
    assert ids(store.fetch_top("general", 9)) == [f"exp-{number}" for number in range(5)]
    return store


def index_of(store):
    return store.path.with_name("experiences.index")


def everything(store):
    """What is fetched and what is found, from a store that was opened anew."""
    store = open_store(store.path.parent)
    return ids(store.fetch_top("general", 99)), ids(store.find(["exp-1", "exp-3", "new", "nobody"])), store.skipped


def no_database(path):
    path.write_bytes(b"no database" * 1000)


def cut_in_half(path):
    os.truncate(path, path.stat().st_size // 2)


def of_another_version(path):
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()


def without_rows(path):
    with sqlite3.connect(path) as database:
        database.execute("UPDATE record SET offset = offset + 1")
    database.close()


def forged(path):
    with sqlite3.connect(path) as database:
        database.execute("UPDATE record SET status = 'live'")
    database.close()


@pytest.mark.parametrize(
    "damage",
    [os.unlink, no_database, cut_in_half, of_another_version, without_rows, forged],
    ids=lambda one: one.__name__,
)
def test_an_index_that_does_not_fit_is_made_anew(store, damage):
    changed = make_record("new").model_copy(update={"polarity": "avoid"})  # its stamp does not hold
    append_by_hand(store, changed.model_dump_json())
    expected = (["exp-0", "exp-1", "exp-2", "exp-3", "exp-4"], ["exp-1", "exp-3", "new"], Skipped(unverified=1))
    assert everything(store) == expected
    damage(index_of(store))
    assert everything(store) == expected
    assert everything(store) == expected
    assert store.record_batch(make_batch(6), MANIFEST) == 1


def test_the_index_file_is_private(store):
    assert stat.S_IMODE(index_of(store).stat().st_mode) == 0o600


def test_edits_by_hand_are_what_is_fetched(store):
    text = store.path.read_text()
    store.path.write_text(text.replace('"experience_id":"exp-1"', '"experience_id":"exp-X"'))  # the same length
    os.utime(store.path, ns=(1, 1))
    assert everything(store)[0] == ["exp-0", "exp-2", "exp-3", "exp-4"]
    store.path.write_text(text.replace("exp-1", "exp-longer"))
    append_by_hand(store, make_record("new").model_dump_json())
    assert everything(store)[0] == ["exp-0", "exp-2", "exp-3", "exp-4", "new"]
    beside = store.path.with_name("other")
    beside.write_text(text)
    beside.replace(store.path)
    assert everything(store)[0] == ids(make_batch(5))
    store.path.write_text("")
    assert everything(store)[0] == []


def test_an_edited_pack_retires_its_records_until_it_is_restored(store, tmp_path):
    assert open_store(tmp_path, approved={"general": STALE}).fetch_top("general", 9) == []
    assert len(open_store(tmp_path).fetch_top("general", 9)) == 5
    assert open_store(tmp_path, task_id="another").fetch_top("general", 9) == []
    assert len(open_store(tmp_path, task_id="task-1").fetch_top("general", 9)) == 5


def test_a_store_is_readable_where_no_index_can_be_written(store, monkeypatch):
    expected = everything(store)
    index_of(store).unlink()
    index_of(store).mkdir()
    assert everything(store) == expected
    assert store.record_batch(make_batch(6), MANIFEST) == 1

    def refused(*_: object, **__: object):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(experience_index.sqlite3, "connect", refused)
    with pytest.raises(StoreError, match=r"cannot be indexed: disk I/O error"):
        store.fetch_top("general", 9)


def test_a_file_that_changes_while_it_is_read_is_an_error(store, monkeypatch):
    monkeypatch.setattr(experience_index.LineReader, "at", lambda *_: b"{}")
    with pytest.raises(CorruptFile, match="its index does not fit it"):
        store.fetch_top("general", 9)


def by_reading_through(store):
    """What is in force by the definition: of each id the first whose stamp holds, but for what such a one supersedes."""
    verified = {}
    for record in store.records():
        if record.domain == "general" and store.verify_stamp(record):
            verified.setdefault(record.experience_id, record)
    gone = {name for record in verified.values() for name in record.supersedes}
    live = [record for record in verified.values() if record.experience_id not in gone and record.operation != "delete"]
    return ids(best_of(live, 99))


def drawn(rng, number):
    operation, targets = rng.choice([("add", 0), ("modify", 1), ("merge", 2), ("delete", 1)])
    record = make_record(
        f"e{rng.randrange(number + 3)}",
        operation=operation,
        supersedes=tuple(f"e{rng.randrange(number + 3)}" for _ in range(targets)),
        summary32="" if operation == "delete" else f"Check {number}.",
        domain=rng.choice(["general", "general", "law"]),
        score=rng.choice([0.0, 0.5, 1.0]),
        evidence=tuple(f"g{group}/0" for group in range(rng.randrange(3))),
    )
    return record if rng.random() < 0.8 else record.model_copy(update={"epoch": 2})


@pytest.mark.parametrize("seed", range(8))
def test_records_in_force_do_not_depend_on_how_the_index_was_built(tmp_path, seed):
    rng = random.Random(seed)
    followed = open_store(tmp_path)
    for number in range(60):
        append_by_hand(followed, drawn(rng, number).model_dump_json())
        if rng.random() < 0.3:
            assert ids(followed.fetch_top("general", 99)) == by_reading_through(followed)
    index_of(followed).unlink()
    assert ids(open_store(tmp_path).fetch_top("general", 99)) == by_reading_through(followed)


def test_an_indexer_that_is_killed_leaves_an_index_that_is_gone_on_with(tmp_path):
    store = open_store(tmp_path)
    store.path.write_text("".join(f"{record.model_dump_json()}\n" for record in make_batch(40)))
    for kept in (0, 7, 19):
        assert in_process(writers.die_while_indexing, store.path, kept) == -signal.SIGKILL
    assert len(store.fetch_top("general", 99)) == 40


def test_readers_and_writers_at_once_see_whole_batches(tmp_path):
    path = tmp_path / "experiences.jsonl"
    readers = [SPAWN.Process(target=writers.fetch_often, args=(path, 25, 40)) for _ in range(2)]
    for reader in readers:
        reader.start()
    all_at_once(writers.store_batches, [(path, writer, 4, 25) for writer in range(4)])
    for reader in readers:
        reader.join(120)
    assert [reader.exitcode for reader in readers] == [0, 0]
    assert len(open_store(tmp_path).fetch_top("general", 999)) == 400


@pytest.mark.untraced
def test_memory_does_not_grow_with_the_store(tmp_path):
    store = open_store(tmp_path)
    line = make_record("exp").model_dump_json()
    with store.path.open("w") as file:
        file.writelines(line.replace('"exp"', f'"exp-{number}"') + "\n" for number in range(10_000))
    append_by_hand(store, make_record("good").model_dump_json())

    def peak(work):
        tracemalloc.start()
        try:
            work()
            return tracemalloc.get_traced_memory()[1] / 1e6
        finally:
            tracemalloc.stop()

    held = 10.0  # of 6 MB in the file and 30 MB as objects: a chunk of it and its lines
    assert peak(lambda: store.fetch_top("general", 10)) < held
    assert ids(store.fetch_top("general", 10)) == ["good"]
    assert peak(lambda: store.fetch_top("general", 10)) < 1.0
    assert peak(lambda: store.find(["exp-77", "good"])) < 1.0
    assert peak(lambda: store.find_by_prefix("exp-", limit=5)) < 1.0
    assert peak(lambda: sum(1 for _ in store.records())) < held


def test_ids_are_found_by_prefix_and_in_file_order(tmp_path):
    store = open_store(tmp_path)
    odd = ["b%", "b_", "bä", "b\U0001f600", "b", "a", "c"]
    store.record_batch([make_record(name) for name in odd], MANIFEST)
    assert ids(store.find_by_prefix("b", limit=9)) == ["b", "b%", "b_", "bä", "b\U0001f600"]
    assert ids(store.find_by_prefix("b", limit=2)) == ["b", "b%"]
    assert ids(store.find_by_prefix("b%", limit=2)) == ["b%"]
    many = [f"n{number}" for number in range(1_200)]
    store.record_batch([make_record(name) for name in many], MANIFEST)
    assert ids(store.find([*many[::-1], "a"])) == ["a", *many]
    assert ids(open_store(tmp_path, approved={}).find(["c", "a"])) == ["a", "c"]
    assert Library.of_ids(store.find(["a", "c"]), ["c", "a"]).entries[0].experience_id == "c"


@pytest.mark.parametrize("times", [1, 99])
def test_an_index_that_others_make_anew_for_their_packs_meanwhile_hides_no_lesson(store, monkeypatch, times):
    other = open_store(store.path.parent, approved={"general": STALE})
    catch_up, left = ExperienceIndex._catch_up, [times]

    def disturbed(index, *args, **options):
        catch_up(index, *args, **options)
        if index is store._index and left[0]:
            left[0] -= 1
            assert other.fetch_top("general", 9) == []

    monkeypatch.setattr(ExperienceIndex, "_catch_up", disturbed)
    assert other.fetch_top("general", 9) == []
    assert ids(store.fetch_top("general", 9)) == [f"exp-{number}" for number in range(5)]


def test_readers_with_different_packs_do_not_wait_for_each_other_for_ever(store):
    versions = iter(range(10_000))
    index = ExperienceIndex(store.path, store.verify_stamp, lambda _: str(next(versions)))
    with pytest.raises(CorruptFile, match="rebuilt by another process"):
        index.read(lambda view: list(view.ranked("general", None, 32)))
