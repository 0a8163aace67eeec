"""What is fetched from a store: the best supported first, by thresholds, tags and sources, and only what is in force."""

from __future__ import annotations

import os
import random
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.records.experience_stores import MANIFEST, STALE, UNKNOWN, append_by_hand, ids, open_store
from tests.support.records.records import make_batch, make_record
from tfgrpo.stores.experiences import store as stored
from tfgrpo.stores.experiences.library import Library
from tfgrpo.stores.experiences.record import Skipped, parse, support_of
from tfgrpo.stores.experiences.store import ExperienceStore


@pytest.fixture
def store(tmp_path) -> ExperienceStore:
    return open_store(tmp_path)


def fetched(store, *args, **options):
    return ids(store.fetch_top("general", *args, **options))


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


def test_many_attempts_of_one_group_are_one_support():
    assert support_of(make_record(evidence=("g1/0", "g1/1", "g1/2"))) == 1
    assert support_of(make_record(evidence=("g1/0", "g/2/0", "g/2/1", "loose"))) == 3
    assert support_of(make_record(evidence=())) == 0


def test_the_reward_threshold_is_inclusive(store):
    store.record_batch([make_record("low", score=0.499), make_record("at", score=0.5), make_record("high")], MANIFEST)
    assert fetched(store, 9, 0.5) == ["high", "at"]
    assert fetched(store, 9, min_reward=1.01) == []
    assert fetched(store, 9, 0.0) == ["high", "at", "low"]


def test_only_records_of_the_domain_and_tags_are_fetched(store):
    store.record_batch(
        [
            make_record("both", tags=("sums", "units")),
            make_record("one", tags=("sums",)),
            make_record("none"),
            make_record("elsewhere", domain="law", tags=("sums",)),
        ],
        MANIFEST,
    )
    assert fetched(store, 9) == ["both", "none", "one"]
    assert fetched(store, 9, tags=["sums"]) == ["both", "one"]
    assert fetched(store, 9, tags=("units", "sums")) == ["both"]
    assert ids(store.fetch_top("law", 9)) == ["elsewhere"]
    assert store.fetch_top("unknown", 9) == []


def test_one_group_cannot_fill_the_list(store):
    store.record_batch(
        [make_record(f"a{n}", group_id="g1") for n in range(3)] + [make_record("b", group_id="g2")], MANIFEST
    )
    assert fetched(store, 9, max_per_group=1) == ["a0", "b"]
    assert fetched(store, 9, max_per_group=2) == ["a0", "a1", "b"]


def test_superseded_experiences_are_out_of_force(store):
    store.record_batch(make_batch(5), MANIFEST)
    store.record_batch(
        [
            make_record("m", operation="modify", supersedes=("exp-0",)),
            make_record("j", operation="merge", supersedes=("exp-1", "exp-2")),
        ],
        MANIFEST,
    )
    assert fetched(store, 9) == ["exp-3", "exp-4", "j", "m"]
    assert len(list(store.records())) == 7


def test_a_stale_or_forged_record_is_not_fetched_and_supersedes_none(store, tmp_path):
    store.record_batch(make_batch(2), MANIFEST)
    forged = make_record("f", operation="modify", supersedes=("exp-0",))
    forged = forged.model_copy(update={"stamp_signature": "f" * 64})
    append_by_hand(store, forged.model_dump_json())
    assert fetched(store, 9) == ["exp-0", "exp-1"]
    assert store.skipped == Skipped(unverified=1)
    retired = open_store(tmp_path, approved={"general": STALE})
    assert retired.fetch_top("general", 9) == []
    assert retired.skipped == Skipped(unverified=3)
    assert len(list(retired.records())) == 3


def test_lines_edited_by_hand_are_skipped_and_counted(store):
    store.record_batch(make_batch(2), MANIFEST)
    text = make_record("long").model_dump_json()
    append_by_hand(store, text.replace("Check the units of long.", "word " * 33))
    append_by_hand(store, text.replace("Check the units of long.", "x" * 281))
    append_by_hand(store, "not json")
    append_by_hand(store, '{"summary32": 7}')
    append_by_hand(store, "[" * 100_000)
    append_by_hand(store, text.replace('"schema_version":1', '"schema_version":2'))
    append_by_hand(store, make_record("exp-0").model_dump_json())
    assert fetched(store, 9) == ["exp-0", "exp-1"]
    assert store.skipped == Skipped(unreadable=4, over_long=2, repeated=1)
    assert ids(store.records()) == ["exp-0", "exp-1", "exp-0"]
    assert store.skipped == Skipped(unreadable=4, over_long=2)
    assert store.record_batch(make_batch(3), MANIFEST) == 1


def test_an_experience_above_a_lowered_limit_is_hidden_and_still_supersedes(store, tmp_path):
    store.record_batch([make_record("short", summary32="Check units.")], MANIFEST)
    wordy = make_record("wordy", operation="modify", supersedes=("short",), summary32="Always check all units twice.")
    store.record_batch([wordy], MANIFEST)
    strict = open_store(tmp_path, max_words=3)
    assert strict.fetch_top("general", 9) == []
    assert strict.skipped == Skipped(over_long=1)


@pytest.mark.parametrize(
    "options", [{"limit": -1}, {"limit": 1, "max_per_group": 0}, {"limit": 1, "min_reward": float("nan")}]
)
def test_an_invalid_limit_is_refused(store, options):
    with pytest.raises(ValueError, match=r"limit|min_reward"):
        store.fetch_top("general", **options)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(order=st.permutations(range(6)), limit=st.integers(0, 7))
def test_the_order_of_storing_does_not_matter(tmp_path_factory, order, limit):
    store = open_store(tmp_path_factory.mktemp("store"))
    records = [
        make_record(f"exp-{n}", score=n % 3 / 2, rank=n % 2, evidence=tuple(f"g{g}/0" for g in range(n % 2)))
        for n in range(6)
    ]
    store.record_batch([records[place] for place in order], MANIFEST)
    best = sorted(records, key=lambda r: (-support_of(r), -r.reward.gt_score, -r.reward.relative_rank, r.experience_id))
    assert fetched(store, limit) == ids(best)[:limit]


def test_verify_stamp_is_false_for_unknown_outdated_and_changed(store):
    assert store.verify_stamp(make_record())
    assert not store.verify_stamp(make_record(pack=UNKNOWN))
    assert not store.verify_stamp(make_record(pack=STALE))
    assert not store.verify_stamp(make_record().model_copy(update={"domain": "law"}))


def test_edits_by_hand_are_what_is_fetched(store):
    def both():
        opened = open_store(store.path.parent)
        assert fetched(opened, 99) == fetched(store, 99)
        assert ids(opened.find(["exp-1", "exp-3", "new"])) == ids(store.find(["exp-1", "exp-3", "new"]))
        return fetched(store, 99)

    store.record_batch(make_batch(5), MANIFEST)
    assert both() == ids(make_batch(5))
    text = store.path.read_text()
    store.path.write_text(text.replace('"experience_id":"exp-1"', '"experience_id":"exp-X"'))  # the same length
    os.utime(store.path, ns=(1, 1))
    assert both() == ["exp-0", "exp-2", "exp-3", "exp-4"]
    store.path.write_text(text.replace("exp-1", "exp-longer"))
    append_by_hand(store, make_record("new").model_dump_json())
    assert both() == ["exp-0", "exp-2", "exp-3", "exp-4", "new"]
    beside = store.path.with_name("other")
    beside.write_text(text)
    beside.replace(store.path)
    assert both() == ids(make_batch(5))
    store.path.write_text("")
    assert both() == []
    store.path.write_text(text)
    assert both() == ids(make_batch(5))
    store.path.unlink()
    assert both() == []


def test_a_store_that_was_read_reads_only_what_was_appended(store, monkeypatch):
    parsed = []
    monkeypatch.setattr(stored, "parse", lambda line: parsed.append(line) or parse(line))
    store.record_batch(make_batch(40), MANIFEST)
    assert len(fetched(store, 99)) == 40
    assert len(parsed) == 40
    assert len(fetched(store, 99)) == len(list(store.records())) == 40
    open_store(store.path.parent).record_batch([make_record("new")], MANIFEST)
    parsed.clear()
    assert ids(store.find(["new", "exp-3"])) == ["exp-3", "new"]
    assert len(fetched(store, 99)) == 41
    assert len(parsed) == 1


def test_an_edited_pack_retires_its_records_until_it_is_restored(store, tmp_path):
    store.record_batch(make_batch(5), MANIFEST)
    assert fetched(open_store(tmp_path, approved={"general": STALE}), 9) == []
    assert len(fetched(open_store(tmp_path), 9)) == 5
    assert fetched(open_store(tmp_path, task_id="another"), 9) == []
    assert len(fetched(open_store(tmp_path, task_id="task-1"), 9)) == 5


def by_reading_through(store):
    """What is in force by the definition: of each id the first whose stamp holds, but for what such a one supersedes."""
    verified = {}
    for record in store.records():
        if record.domain == "general" and store.verify_stamp(record):
            verified.setdefault(record.experience_id, record)
    gone = {name for record in verified.values() for name in record.supersedes}
    live = [record for record in verified.values() if record.experience_id not in gone]

    def worth(record):
        return -support_of(record), -record.reward.gt_score, -record.reward.relative_rank, record.experience_id

    return ids(sorted(live, key=worth))


def drawn(rng, number):
    operation, targets = rng.choice([("add", 0), ("modify", 1), ("merge", 2)])
    record = make_record(
        f"e{rng.randrange(number + 3)}",
        operation=operation,
        supersedes=tuple(f"e{rng.randrange(number + 3)}" for _ in range(targets)),
        summary32=f"Check {number}.",
        domain=rng.choice(["general", "general", "law"]),
        score=rng.choice([0.0, 0.5, 1.0]),
        evidence=tuple(f"g{group}/0" for group in range(rng.randrange(3))),
    )
    return record if rng.random() < 0.8 else record.model_copy(update={"epoch": 2})


@pytest.mark.parametrize("seed", range(8))
def test_records_in_force_do_not_depend_on_when_the_file_was_read(tmp_path, seed):
    rng = random.Random(seed)
    followed = open_store(tmp_path)
    for number in range(60):
        append_by_hand(followed, drawn(rng, number).model_dump_json())
        if rng.random() < 0.3:
            assert ids(followed.fetch_top("general", 99)) == by_reading_through(followed)
    assert ids(open_store(tmp_path).fetch_top("general", 99)) == by_reading_through(followed)


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


def test_threads_that_store_and_fetch_at_once_see_whole_batches(store):
    def write(writer):
        for batch in range(5):
            store.record_batch(make_batch(10, prefix=f"w{writer}-b{batch}"), MANIFEST)

    writers = [threading.Thread(target=write, args=(number,), daemon=True) for number in range(4)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert len(fetched(store, 999)) % 10 == 0
    assert len(fetched(store, 999)) == 200
