"""The store takes stamped records in whole batches and shows the best that are in force."""

from __future__ import annotations

import errno
import json
import os
import stat
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.records import writers
from tests.support.records.experience_stores import MANIFEST, STALE, UNKNOWN, append_by_hand, ids, open_store
from tests.support.records.processes import SPAWN, all_at_once, bytes_read, in_process
from tests.support.records.records import NOW, PACK, make_batch, make_record
from tfgrpo.stores.errors import RecordRejected, StoreError
from tfgrpo.stores.experiences.record import Skipped, stamp_record
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.atomic import KeyedJsonl


@pytest.fixture
def store(tmp_path) -> ExperienceStore:
    return open_store(tmp_path)


def batches(store: ExperienceStore) -> list[dict[str, object]]:
    path = store.path.with_name("batches.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# --- storing


def test_a_batch_round_trips_with_its_manifest(store):
    batch = make_batch(3)
    assert store.record_batch(batch, MANIFEST) == 3
    assert list(store.records()) == batch
    (stored,) = batches(store)
    assert stored == {
        "schema_version": 1,
        "batch_id": stored["batch_id"],
        "experience_ids": ["exp-0", "exp-1", "exp-2"],
        "count": 3,
        "manifest_path": str(MANIFEST),
        "at": NOW.isoformat().replace("+00:00", "Z"),
    }
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_every_line_of_the_store_is_a_plain_record(store):
    store.record_batch(make_batch(2), MANIFEST)
    lines = [json.loads(line) for line in store.path.read_text().splitlines()]
    assert [line["experience_id"] for line in lines] == ["exp-0", "exp-1"]
    assert all("summary32" in line and "batch_id" not in line for line in lines)


def test_an_empty_batch_makes_no_file(store):
    assert store.record_batch([], MANIFEST) == 0
    assert list(store.path.parent.iterdir()) == []
    assert list(store.records()) == []
    assert batches(store) == []


def test_a_batch_that_is_handed_over_again_is_stored_once(store, tmp_path):
    batch = make_batch(3)
    later = make_batch(3, created_at=NOW + timedelta(hours=1))
    assert store.record_batch(batch, MANIFEST) == 3
    assert store.record_batch(batch, MANIFEST) == 0
    assert open_store(tmp_path).record_batch(later, MANIFEST) == 0
    assert list(store.records()) == batch
    assert len(batches(store)) == 1


def test_of_a_batch_that_is_partly_stored_the_rest_is_added(store):
    batch = make_batch(4)
    store.record_batch(batch[:2], MANIFEST)
    assert store.record_batch(batch, MANIFEST) == 2
    assert list(store.records()) == batch


def test_a_kill_between_batch_and_origin_is_mended_by_the_resumed_run(store):
    batch = make_batch(2)
    store.record_batch(batch, MANIFEST)
    store.path.with_name("batches.jsonl").unlink()
    assert store.record_batch(batch, MANIFEST) == 0
    assert open_store(store.path.parent).record_batch(batch, MANIFEST) == 0
    assert [stored["manifest_path"] for stored in batches(store)] == [str(MANIFEST)]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (make_record("bad").model_copy(update={"stamp_signature": ""}), "unstamped"),
        (make_record("bad").model_copy(update={"stamp_signature": "0" * 64}), "stamp does not hold"),
        (make_record("bad", pack=STALE), "stamp does not hold"),
        (make_record("bad", pack=UNKNOWN), "'unknown-pack' is not approved"),
        (make_record("bad").model_copy(update={"polarity": "avoid"}), "stamp does not hold"),
        (stamp_record(make_record("bad").model_copy(update={"summary32": "w " * 33}), PACK), "33 words"),
        (stamp_record(make_record("bad").model_copy(update={"summary32": "w" * 281}), PACK), "281 characters"),
        (stamp_record(make_record("bad").model_copy(update={"epoch": 0}), PACK), "greater than or equal to 1"),
        (make_record("bad").model_copy(update={"epoch": "one"}), "valid integer"),
        (make_record("exp-1"), "occurs twice"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_bad_record_keeps_the_whole_batch_out(store, bad, reason):
    store.record_batch([make_record("before")], MANIFEST)
    before = store.path.read_bytes()
    with pytest.raises(RecordRejected, match=reason):
        store.record_batch([*make_batch(3), bad], MANIFEST)
    assert store.path.read_bytes() == before
    assert len(batches(store)) == 1


def test_a_known_id_with_another_content_is_refused(store):
    store.record_batch(make_batch(2), MANIFEST)
    before = store.path.read_bytes()
    with pytest.raises(RecordRejected, match="'exp-1' is stored already with another content"):
        store.record_batch([make_record("new"), make_record("exp-1", summary32="Something else.")], MANIFEST)
    assert store.path.read_bytes() == before


def test_a_domain_may_lower_the_word_limit_but_not_raise_it(tmp_path):
    strict = open_store(tmp_path, max_words=4)
    with pytest.raises(RecordRejected, match="5 words; at most 4"):
        strict.record_batch([make_record(summary32="one two three four five")], MANIFEST)
    for limit in (0, 33):
        with pytest.raises(ValueError, match="1 to 32"):
            open_store(tmp_path, max_words=limit)


def test_an_epoch_beyond_those_of_the_run_is_refused(tmp_path):
    store = open_store(tmp_path, epochs=3)
    assert store.record_batch([make_record(epoch=3)], MANIFEST) == 1
    with pytest.raises(RecordRejected, match="epoch 4, the run has 3"):
        store.record_batch([make_record("late", epoch=4)], MANIFEST)


@pytest.mark.untraced
def test_eight_processes_store_two_hundred_records_each_and_none_is_lost_or_torn(store):
    all_at_once(writers.store_batches, [(store.path, n, 8, 25) for n in range(8)])
    stored = ids(store.records())
    assert store.skipped == Skipped()
    assert sorted(stored) == sorted(f"w{w}-b{b}-{n}" for w in range(8) for b in range(8) for n in range(25))
    for start in range(0, len(stored), 25):
        prefix = stored[start].rpartition("-")[0]
        assert stored[start : start + 25] == [f"{prefix}-{number}" for number in range(25)]
    assert len(batches(store)) == 64
    # This object has never looked before; it knows what the others wrote.
    assert store.record_batch(make_batch(25, prefix="w3-b5"), MANIFEST) == 0


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


def test_a_full_disk_leaves_the_store_unchanged(store):
    store.record_batch(make_batch(5), MANIFEST)
    before = store.path.read_bytes()
    assert in_process(writers.store_on_a_full_disk, store.path, len(before) + 3_000) == 0
    assert store.path.read_bytes() == before
    assert len(batches(store)) == 1


def test_without_room_for_its_origin_a_batch_is_undone(store, monkeypatch):
    store.record_batch(make_batch(5), MANIFEST)
    before = store.path.read_bytes()

    def full(*_: object) -> None:
        raise StoreError("batches.jsonl: no space")

    with monkeypatch.context() as patched:
        patched.setattr(KeyedJsonl, "append", full)
        with pytest.raises(StoreError, match="no space"):
            store.record_batch(make_batch(3, prefix="late"), MANIFEST)
    assert store.path.read_bytes() == before
    assert store.record_batch(make_batch(3, prefix="late"), MANIFEST) == 3


def test_a_batch_that_the_disk_does_not_confirm_is_not_stored(store, monkeypatch):
    store.record_batch(make_batch(5), MANIFEST)

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match="No space left"):
            store.record_batch([make_record("late")], MANIFEST)
    assert (len(list(store.records())), len(batches(store))) == (5, 1)
    assert store.record_batch([make_record("late")], MANIFEST) == 1


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counts bytes by /proc")
def test_storing_cost_depends_on_the_batch_not_the_store(tmp_path):
    costs = []
    for name, size in (("small", 1), ("large", 5_000)):
        store = open_store(tmp_path / name)
        (tmp_path / name).mkdir()
        line = make_record().model_dump_json()
        with store.path.open("w") as file:
            file.writelines(line.replace('"exp-1"', f'"old-{number}"') + "\n" for number in range(size))
        store.record_batch([make_record("first")], MANIFEST)
        before = bytes_read()
        store.record_batch(make_batch(20), MANIFEST)
        costs.append(bytes_read() - before)
    assert costs[1] <= costs[0] + 150_000  # the last 64 kB are read to find the last line's end


# --- damage


def test_a_torn_tail_is_invisible_and_repaired_by_the_next_batch(store):
    store.record_batch(make_batch(2), MANIFEST)
    with store.path.open("ab") as file:
        file.write(b'{"schema_version":1,"experience_id":"exp-9","ru')
    assert ids(store.records()) == ["exp-0", "exp-1"]
    assert store.record_batch(make_batch(3), MANIFEST) == 1
    assert ids(store.records()) == ["exp-0", "exp-1", "exp-2"]


def test_a_store_shortened_by_hand_can_be_filled_again(store):
    for _ in range(2):  # the second time the object has seen all of its lines
        store.record_batch(make_batch(3), MANIFEST)
    first = store.path.read_bytes().splitlines(keepends=True)[0]
    os.truncate(store.path, len(first))
    assert store.record_batch(make_batch(3), MANIFEST) == 2


def test_an_id_is_found_however_its_line_is_written(store):
    spread = json.dumps(make_record('say "hi" \u00e4').model_dump(mode="json"), sort_keys=True)
    append_by_hand(store, spread)
    append_by_hand(store, '{"experience_id": 7}')
    assert store.record_batch([make_record('say "hi" \u00e4')], MANIFEST) == 0
