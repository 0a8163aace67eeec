"""Footprints are what their definitions say: of blocks by nested loops, of languages by writing every trace down."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from benchmarks.parts.powl import model_of, nested_loops, with_pairs
from tests.support.cpu_time import cpu_seconds
from tests.support.rewards.powl_models import TooMany, any_models, few_labels, language, pairs_of, small_models
from tfgrpo.rewarders.powl import Activity, Operator, PowlError, footprint, footprint_from_value, labels_of, parse_text

LARGE = model_of(100)
MODES = ("block", "direct", "order")


def traces_of(model):
    try:
        return language(model)
    except TooMany:
        assume(False)


def compared(labels, follows):
    """The three relations by their definition."""
    every = set(itertools.product(labels, repeat=2))
    return (
        {(a, b) for a, b in every if (a, b) in follows and (b, a) not in follows},
        {(a, b) for a, b in every if (a, b) in follows and (b, a) in follows},
        {(a, b) for a, b in every if (a, b) not in follows and (b, a) not in follows},
    )


def relations(found):
    return found.direct_succession, found.concurrency, found.exclusive


@settings(max_examples=250)
@given(small_models)
@example(parse_text("LOOP(XOR(a, SILENT()), XOR(b, SILENT()))"))
@example(parse_text("LOOP(SILENT(), SEQUENCE(a, b))"))
@example(parse_text("PARTIAL_ORDER(a, XOR(b, SILENT()), XOR(c, SILENT()), d, ORDER(0->1, 1->3, 0->2, 2->3))"))
@example(parse_text("PARTIAL_ORDER(XOR(a, SILENT()), b, LOOP(c, SILENT()), ORDER(0->1))"))
@example(parse_text("SEQUENCE(a, SILENT(), a)"))
@example(parse_text("PARTIAL_ORDER(a, b, c, d, ORDER(0->1->2, 0->3))"))
def test_direct_and_order_are_exact_for_the_language(model):
    traces = traces_of(model)
    labels = set(labels_of(model))
    direct, order = footprint(model, "direct"), footprint(model, "order")
    assert relations(direct) == compared(labels, {pair for trace in traces for pair in itertools.pairwise(trace)})
    later = {pair for trace in traces for pair in itertools.combinations(trace, 2)}
    assert relations(order) == compared(labels, later)
    assert direct.start_activities == {trace[0] for trace in traces if trace}
    assert direct.end_activities == {trace[-1] for trace in traces if trace}
    assert direct.min_trace_length == min(map(len, traces))


def plain_operators(children):
    """What the nested loops know of: four operators, and no silence."""
    loops = st.tuples(st.just("LOOP"), st.tuples(children, children))
    several = st.lists(children, min_size=1, max_size=3).map(tuple)
    return (loops | st.tuples(st.sampled_from(["SEQUENCE", "XOR", "PARALLEL"]), several)).map(lambda both: Operator(*both))


@given(st.recursive(few_labels.map(Activity), plain_operators, max_leaves=12))
def test_block_is_what_nested_loops_over_the_definition_give(model):
    assert with_pairs(model) == nested_loops(model)
    assert with_pairs(LARGE) == nested_loops(LARGE)


@pytest.mark.parametrize(
    ("silent", "plain"),
    [
        ("SEQUENCE(a, SILENT(), b)", "SEQUENCE(a, b)"),
        ("SEQUENCE(SILENT(), a, XOR(SILENT()), b)", "SEQUENCE(a, b)"),
        ("XOR(a, SILENT(), b)", "XOR(a, b)"),
        ("PARALLEL(a, SILENT())", "PARALLEL(a)"),
        ("PARTIAL_ORDER(a, SILENT(), b, ORDER(0->1->2))", "SEQUENCE(a, b)"),
        ("LOOP(SEQUENCE(a, b), SILENT())", "LOOP(SILENT(), SEQUENCE(a, b))"),
    ],
)
def test_silent_blocks_are_absent_and_make_neighbours_of_what_they_separate(silent, plain):
    assert footprint(parse_text(silent)) == footprint(parse_text(plain))


def test_a_loop_around_one_block_repeats_it():
    assert footprint(parse_text("LOOP(XOR(a, b), SILENT())")).direct_succession == set(itertools.product("ab", repeat=2))
    empty = footprint(parse_text("LOOP(SILENT(), SILENT())"), "direct")
    assert (empty.activities, relations(empty), empty.min_trace_length) == ((), (frozenset(),) * 3, 0)


@given(any_models, st.sampled_from(MODES))
def test_a_footprint_is_written_and_read_again(model, mode):
    found = footprint(model, mode)
    again = footprint_from_value(pairs_of(found))
    assert (again.mode, again.activities, again.rows) == (found.mode, found.activities, found.rows)


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ([["a", "b"]], ""),
        ({"mode": "x"}, "/mode"),
        ({"activities": "ab"}, "/activities"),
        ({"exclusive": {}}, "/exclusive"),
        ({"concurrency": [["a", "b"], ["a"]]}, "/concurrency/1"),
        ({"direct_succession": [["a", 1]]}, "/direct_succession/0"),
    ],
)
def test_what_is_no_footprint_is_refused_with_a_pointer(value, pointer):
    with pytest.raises(PowlError) as caught:
        footprint_from_value(value)
    assert caught.value.pointer == pointer


def test_relations_go_by_the_names_of_process_mining_too():
    found = footprint(parse_text("SEQUENCE(a, PARALLEL(b, c))"), mode="direct")
    assert found.sequence == found.direct_succession == {("a", "b"), ("a", "c")}
    assert found.parallel == found.concurrency == {("b", "c"), ("c", "b")}
    assert (found.start_activities, found.end_activities, found.min_trace_length) == ({"a"}, {"b", "c"}, 3)
    assert repr(found) == "Footprint(direct: 3 activities; direct_succession 2, concurrency 2, exclusive 3)"
    with pytest.raises(ValueError, match="known: block, direct, order"):
        footprint(parse_text("ACTIVITY(a)"), "blocks")


@pytest.mark.untraced
def test_large_footprints_are_not_slower_than_nested_loops():
    assert cpu_seconds(lambda: footprint(LARGE), rounds=10) < 1.1 * cpu_seconds(lambda: nested_loops(LARGE), rounds=10)
