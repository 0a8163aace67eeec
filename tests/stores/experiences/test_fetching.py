"""What is fetched from a store: the best supported first, by thresholds, tags and sources, and only what is in force."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.records.experience_stores import MANIFEST, STALE, UNKNOWN, append_by_hand, ids, open_store
from tests.support.records.records import make_batch, make_record
from tfgrpo.stores.experiences.record import Skipped, support_of
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


def test_superseded_and_deleted_experiences_are_out_of_force(store):
    store.record_batch(make_batch(5), MANIFEST)
    store.record_batch(
        [
            make_record("m", operation="modify", supersedes=("exp-0",)),
            make_record("j", operation="merge", supersedes=("exp-1", "exp-2")),
            make_record("x", operation="delete", supersedes=("exp-3",), summary32=""),
        ],
        MANIFEST,
    )
    assert fetched(store, 9) == ["exp-4", "j", "m"]
    assert len(list(store.records())) == 8


def test_a_stale_or_forged_record_is_not_fetched_and_supersedes_none(store, tmp_path):
    store.record_batch(make_batch(2), MANIFEST)
    forged = make_record("f", operation="delete", supersedes=("exp-0",), summary32="").model_copy(
        update={"stamp_signature": "f" * 64}
    )
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
    append_by_hand(store, text.replace('"schema_version":3', '"schema_version":4'))
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
