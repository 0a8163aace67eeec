"""The account of a lesson: what counts, for how long, and what follows from it."""

from __future__ import annotations

import math
import stat
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.records.records import NOW, make_record
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.experiences.accounts import (
    MOST_SUPPORT,
    AccountEvent,
    accounts_of,
    append_events,
    contradictions,
    in_force,
    known,
    leaving,
    opening_event,
    read_events,
    successor,
    telling,
)


def event(name="a", kind="taught", group="g1", **changes):
    fields = {
        "event_id": "",
        "experience_id": name,
        "kind": kind,
        "run_id": "run-1",
        "simulated": False,
        "night": 0,
        "epoch": 1,
        "batch": 0,
        "group_id": group,
        "created_at": NOW,
    }
    return AccountEvent(**{**fields, **changes}).named()


def account(events, night=0, records=None, name="a"):
    return accounts_of(records or [make_record(name)], events, night)[name]


def test_net_support_is_for_minus_against_and_fades_by_a_fifth_a_night():
    events = [
        event(group="g1"),
        event(group="g2"),
        event(kind="confirmed", group="g3", night=1),
        event(kind="contradicted", group="g4", night=2),
    ]
    seen = account(events, night=2)
    assert seen.net == pytest.approx(2 * 0.64 + 0.8 - 1)
    assert seen.weight == pytest.approx(2 * 0.64 + 0.8 + 1)
    assert (seen.in_favour, seen.against, seen.age) == (3, 1, 2)


def test_net_support_has_a_bound_so_that_a_rule_that_turned_round_is_unlearned_as_fast_as_it_was_learned():
    events = [event(group=f"g{night}-{n}", night=night) for night in range(3) for n in range(15)]
    assert account(events[:15]).net == 15
    assert account(events, night=2).net == pytest.approx(0.8 * MOST_SUPPORT + 15) == 31
    assert account(events, night=4).net == pytest.approx(0.64 * MOST_SUPPORT)
    turned = [event(kind="contradicted", group=f"t{n}", night=4) for n in range(18)]
    assert account([*events, *turned], night=4).net == pytest.approx(0.64 * MOST_SUPPORT - 18)
    assert account([*events, *turned], night=5).net == pytest.approx(0.8 * (0.64 * MOST_SUPPORT - 18))
    assert account(events, night=2).in_favour == 45
    [unbounded] = accounts_of([make_record("a")], events, 2, most=math.inf).values()
    assert unbounded.net == pytest.approx(15 * (1 + 0.8 + 0.64))


def test_one_group_alone_brings_no_lesson_in_however_often_it_says_so():
    entries, twice = [make_record("a")], event(weight=2.0)
    unconfirmed = event(group="g2", weight=0.0)
    for events, groups in (
        ([twice], 1),
        ([twice, event(kind="confirmed")], 1),
        ([twice, unconfirmed], 1),
        ([twice, event(kind="contradicted", group="g3", weight=0.0)], 1),
        ([twice, event(kind="confirmed", group="g2")], 2),
        ([event(group="", weight=2.0)], 2),
    ):
        assert account(events).groups == groups
        assert bool(in_force(entries, accounts_of(entries, events, 0), 9)) == (groups == 2)
    assert in_force(entries, accounts_of(entries, [twice], 0), 9, standing={"a"})


def test_a_group_counts_once_for_a_lesson_and_once_against_it_whatever_it_says():
    events = [event(), event(kind="confirmed"), event(kind="judged", judgement="helped")]
    against = [event(kind="contradicted"), event(kind="judged", judgement="misled")]
    assert account(events).net == 1
    assert account([*events, *against]).net == 0
    assert account([*events, *against]).weight == 2


def test_a_lesson_that_went_unused_has_nothing_for_or_against_it():
    assert account([event(kind="judged", judgement="unused")]).weight == 0


def test_rewording_carries_both_columns_on_and_a_change_of_direction_neither():
    first, second = make_record("a"), make_record("b")
    merged = make_record("c", operation="merge", supersedes=("a", "b"))
    turned = make_record("d", operation="modify", supersedes=("c",), polarity="avoid")
    events = [
        event("a"),
        event("b"),
        event("b", group="g2"),
        event("a", "contradicted", "g3"),
        event("c", "confirmed", "g4"),
        event("d", group="g5"),
    ]
    found = accounts_of([first, second, merged, turned], events, 0)
    assert (found["c"].in_favour, found["c"].against) == (3, 1)
    assert (found["d"].in_favour, found["d"].against) == (1, 0)


def test_a_lesson_is_in_the_candidate_from_a_net_support_of_two_strongest_first_in_the_order_of_the_library():
    entries = [make_record(name) for name in "abcd"]
    groups = {"a": 3, "b": 1, "c": 2, "d": 4}
    events = [event(name, group=f"g{number}") for name, count in groups.items() for number in range(count)]
    found = accounts_of(entries, events, 0)
    assert [entry.experience_id for entry in in_force(entries, found, 9)] == ["a", "c", "d"]
    assert [entry.experience_id for entry in in_force(entries, found, 2)] == ["a", "d"]
    assert in_force(entries, {}, 9) == ()


def judged(name, helped, misled=0, **changes):
    """Events of groups that judged a lesson that they were given."""
    said = ["helped"] * helped + ["misled"] * misled
    return [event(name, "judged", f"{name}-{at}", judgement=each, **changes) for at, each in enumerate(said)]


def test_a_lesson_was_tried_as_often_as_attempts_with_it_were_judged_and_what_is_proposed_counts_nothing():
    assert account([event(group="g1"), event(kind="confirmed", group="g2")]).tried == 0.0
    assert account([event(kind="contradicted", group="g1")]).tried == 0.0
    assert account(judged("a", 4)).tried == pytest.approx(2.0)
    assert account(judged("a", 9, 7)).tried == pytest.approx(2 / 4)
    assert account(judged("a", 4), night=1).tried == pytest.approx(math.sqrt(4 * 0.8))
    assert account(judged("a", 8, weight=0.5)).tried == pytest.approx(2.0)
    assert account(judged("a", 1, weight=0.5)).tried == pytest.approx(0.5), "little is known of it"


def test_what_is_imported_counts_as_tried_until_its_own_judgements_outweigh_it():
    brought = opening_event(make_record("a"), night=0, simulated=False, now=NOW)
    assert account([brought]).tried == pytest.approx(math.sqrt(2))
    assert account([brought], night=30).tried == pytest.approx(math.sqrt(2)), "in force until attempts speak against it"
    assert account([brought, *judged("a", 0, 2)]).tried == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("helped", "misled", "joins", "stays"),
    [(4, 0, True, True), (3, 0, False, True), (6, 4, False, False), (0, 0, False, False)],
)
def test_a_library_in_force_is_followed_by_lessons_that_helped_where_they_were_tried(helped, misled, joins, stays):
    other, record = make_record("other"), make_record("a")
    accounts = accounts_of([other, record], [*judged("other", 9), *judged("a", helped, misled)], 0)
    assert successor([other, record], [other], accounts) == ((other, record) if joins else (other,))
    assert successor([other, record], [record], accounts) == ((other, record) if stays else (other,))
    assert successor([other, record], [], accounts) == (other, record), "on none follows the candidate as it is"


def test_a_rewording_of_a_lesson_in_force_stays_as_that_lesson_would():
    old, new = make_record("old"), make_record("new", operation="modify", supersedes=("old",))
    accounts = accounts_of([old, new], judged("old", 1), 0)
    assert successor([new], [old], accounts) == (new,)


def test_of_equal_texts_only_the_first_has_a_slot():
    text = {"summary32": "Check the units of a."}
    entries = [make_record("a"), make_record("b", **text), make_record("c"), make_record("d", polarity="avoid", **text)]
    events = [event(name, group=f"g{number}") for name in "abbcd" for number in range(3)]
    found = accounts_of(entries, events, 0)
    assert [entry.experience_id for entry in in_force(entries, found, 3)] == ["a", "c", "d"]
    retired = accounts_of(entries, [*events, event("a", "retired")], 0)
    assert [entry.experience_id for entry in in_force(entries, retired, 3)] == ["b", "c", "d"]


def test_a_lesson_in_force_stays_while_anything_speaks_for_it():
    entries = [make_record("a"), make_record("b")]
    events = [event("a", group="g1"), event("a", group="g2"), event("b", group="g1"), event("b", group="g2")]
    later = accounts_of(entries, events, 1)  # a net support of 1.6
    assert in_force(entries, later, 9) == ()
    assert in_force(entries, later, 9, {"a"}) == (entries[0],)
    against = [event("a", "contradicted", f"h{number}") for number in range(2)]
    assert in_force(entries, accounts_of(entries, [*events, *against], 0), 9, {"a"}) == (entries[1],)
    reworded = make_record("c", operation="modify", supersedes=("a",))
    assert in_force([reworded], accounts_of([*entries, reworded], events, 1), 9, {"a"}) == (reworded,)


@pytest.mark.parametrize("named_by", ["a", "b"])
def test_of_two_opposites_only_the_stronger_is_in_the_candidate(named_by):
    entries = [make_record("a"), make_record("b")]
    other = {"a": "b", "b": "a"}[named_by]
    events = [
        *(event("a", group=f"g{number}") for number in range(3)),
        *(event("b", group=f"h{number}") for number in range(5)),
        event(named_by, "contradicted", "i1", opposite=other),
    ]
    found = accounts_of(entries, events, 0)
    assert [entry.experience_id for entry in in_force(entries, found, 9)] == ["b"]


def test_a_champions_lesson_leaves_below_minus_one_and_says_why():
    entries = [make_record("a"), make_record("b")]
    events = [
        event("a"),
        *(event(name, "contradicted", f"h{n}") for name, most in (("a", 3), ("b", 1)) for n in range(most)),
    ]
    found = accounts_of(entries, events, 0)
    assert leaving(entries, found) == {"a": "net support -2.00 (1 for, 3 against)"}


def test_a_champions_lesson_leaves_with_what_counts_against_its_rewording():
    old, new = make_record("a"), make_record("b", operation="modify", supersedes=("a",))
    events = [event("a"), *(event("b", "contradicted", f"h{number}") for number in range(3))]
    assert list(leaving([old], accounts_of([old, new], events, 0))) == ["a"]


def test_a_retired_lesson_stays_out_for_six_nights_unless_it_is_restored():
    entries = [make_record("a")]
    events = [event(group=f"g{night}-{n}", night=night) for night in range(9) for n in range(4)]
    out = [*events, event(kind="retired", group="", night=2)]
    assert [bool(in_force(entries, accounts_of(entries, out, night), 9)) for night in range(1, 9)] == [
        *[False] * 7,
        True,
    ]
    assert leaving(entries, accounts_of(entries, out, 3)) == {"a": "measured as harmful"}
    back = [*out, event(kind="restored", group="", night=3)]
    assert in_force(entries, accounts_of(entries, back, 3), 9)


def test_the_known_lessons_are_those_of_which_most_is_known():
    entries = [make_record(name) for name in "abcd"]
    events = [event("a"), *(event("b", "contradicted", f"g{n}") for n in range(3)), event("d", group="g9")]
    found = accounts_of(entries, events, 0)
    assert [entry.experience_id for entry in known(entries, found, 9)] == ["a", "b", "d"]
    assert [entry.experience_id for entry in known(entries, found, 2)] == ["b", "d"]
    assert [entry.experience_id for entry in known(entries, found, 2, kept=["c"])] == ["b", "c"]
    assert known(entries, accounts_of(entries, events, 30), 9) == ()


@given(
    st.lists(
        st.builds(
            lambda name, said, **more: event(name, said[0], judgement=said[1], **more),
            st.sampled_from("ab"),
            st.sampled_from([("taught", None), ("judged", "misled"), ("judged", "unused"), ("retired", None)]),
            group=st.sampled_from(["g1", "g2", "g3"]),
            family=st.sampled_from(["", "x", "y"]),
            night=st.integers(0, 2),
        )
    )
)
def test_judgements_that_count_nothing_are_told_once_and_the_accounts_are_the_same(events):
    records = [make_record("a"), make_record("b", operation="modify", supersedes=("a",))]
    told = telling(events)
    assert accounts_of(records, told, 3) == accounts_of(records, events, 3)
    unused = [(each.experience_id, each.night, each.family) for each in told if each.judgement == "unused"]
    assert len(unused) == len(set(unused))


def test_a_lesson_in_force_from_before_begins_with_the_groups_behind_it():
    groups = {1: 2, 3: 3, 9: 4}
    for support, weight in groups.items():
        record = make_record(evidence=tuple(f"g{number}/0" for number in range(support)))
        assert opening_event(record, night=5, simulated=False, now=NOW).weight == weight


def test_an_epoch_is_written_batch_by_batch_in_little_memory(tmp_path):
    written = tmp_path / "accounts.jsonl"
    append_events(written, [event("b")])
    events = [event(group=f"g{number}", batch=number // 50, why="“so”" * 50) for number in range(3000)]
    tracemalloc.start()
    try:
        assert append_events(written, events) == 3000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert read_events(written)[1:] == events
    assert peak < 0.6 * written.stat().st_size


def test_the_file_takes_each_event_once_and_reads_as_far_as_asked(tmp_path):
    path = tmp_path / "task" / "accounts.jsonl"
    first, second = event(), event(group="g2")
    assert append_events(path, [first]) == 1
    assert append_events(path, [first, second]) == 1
    assert read_events(path) == [first, second]
    assert read_events(path, 1) == [first]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_events(path.with_name("none.jsonl")) == []
    path.write_text("{}\n")
    with pytest.raises(CorruptFile, match="line 1 is not an event"):
        read_events(path)


@pytest.mark.parametrize(("first", "then"), [("retired", "restored"), ("restored", "retired")])
def test_the_last_word_about_a_lesson_is_the_one_written_last(first, then):
    """A measurement speaks in the last epoch of a night, a person before the first of the next, which is the same night."""
    for epochs in ((3, 0), (0, 3)):
        words = [event(kind=kind, epoch=epoch, group="") for kind, epoch in zip((first, then), epochs, strict=True)]
        assert bool(account(words).retired) is (then == "retired")


events_of_two = st.lists(
    st.builds(
        lambda name, kind, group, night: event(name, kind, f"g{group}", night=night),
        st.sampled_from("ab"),
        st.sampled_from(["taught", "confirmed", "contradicted"]),
        st.integers(0, 4),
        st.integers(0, 3),
    ),
    max_size=12,
)


@given(events_of_two, st.randoms(use_true_random=False))
def test_neither_the_order_of_the_lines_nor_a_second_copy_changes_an_account(events, random):
    shuffled = [*events, *events]
    random.shuffle(shuffled)
    entries = [make_record("a"), make_record("b", operation="modify", supersedes=("a",))]
    assert accounts_of(entries, shuffled, 3) == accounts_of(entries, events, 3)


@given(events_of_two)
def test_one_more_group_for_a_lesson_never_lowers_it_and_one_against_never_raises_it(events):
    before = account(events, 3)
    assert account([*events, event(group="new", night=3)], 3).net >= before.net
    assert account([*events, event(kind="contradicted", group="new", night=3)], 3).net <= before.net


def test_contradictions_are_mutual_follow_rewordings_and_name_the_best_supported_first():
    records = [make_record(name) for name in "abcd"]
    records += [make_record("b2", operation="modify", supersedes=("b",))]
    events = [
        event("a", "contradicted", "g1", opposite="b"),
        event("c", "taught", "g2", opposite="a"),
        event("c", group="g3"),
    ]
    accounts = accounts_of(records, events, 0)
    known_ones = {name: accounts[name] for name in ("a", "b2", "c", "d")}
    assert contradictions(known_ones) == {"a": ("c", "b2"), "b2": ("a",), "c": ("a",)}
