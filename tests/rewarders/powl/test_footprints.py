"""Footprints are what their definitions say, and their similarity is a symmetric number from 0 to 1."""

import itertools

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from benchmarks.parts.powl import nested_loops, with_pairs
from tests.support.rewards.powl_models import TooMany, any_models, few_labels, language, models, pairs_of, small_models
from tfgrpo.rewarders.powl import (
    Activity,
    Operator,
    PowlError,
    footprint,
    footprint_from_value,
    footprint_similarity,
    group_consensus,
    labels_of,
    parse_text,
    self_consistency,
)
from tfgrpo.rewarders.powl.footprints import RelationWeights

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


@settings(max_examples=125)
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


def test_silent_blocks_are_absent_and_make_neighbours_of_what_they_separate():
    for silent, plain in (
        ("SEQUENCE(SILENT(), a, XOR(SILENT()), b)", "SEQUENCE(a, b)"),
        ("XOR(a, SILENT(), b)", "XOR(a, b)"),
        ("PARALLEL(a, SILENT())", "PARALLEL(a)"),
        ("PARTIAL_ORDER(a, SILENT(), b, ORDER(0->1->2))", "SEQUENCE(a, b)"),
        ("LOOP(SEQUENCE(a, b), SILENT())", "LOOP(SILENT(), SEQUENCE(a, b))"),
    ):
        assert footprint(parse_text(silent)) == footprint(parse_text(plain)), silent


def test_a_loop_around_one_block_repeats_it():
    assert footprint(parse_text("LOOP(XOR(a, b), SILENT())")).direct_succession == set(itertools.product("ab", repeat=2))
    empty = footprint(parse_text("LOOP(SILENT(), SILENT())"), "direct")
    assert (empty.activities, relations(empty), empty.min_trace_length) == ((), (frozenset(),) * 3, 0)


@given(any_models, st.sampled_from(MODES))
def test_a_footprint_is_written_and_read_again(model, mode):
    found = footprint(model, mode)
    again = footprint_from_value(pairs_of(found))
    assert (again.mode, again.activities, again.rows) == (found.mode, found.activities, found.rows)


def test_what_is_no_footprint_is_refused_with_a_pointer():
    for value, pointer in (
        ([["a", "b"]], ""),
        ({"mode": "x"}, "/mode"),
        ({"activities": "ab"}, "/activities"),
        ({"exclusive": {}}, "/exclusive"),
        ({"concurrency": [["a", "b"], ["a"]]}, "/concurrency/1"),
        ({"direct_succession": [["a", 1]]}, "/direct_succession/0"),
    ):
        with pytest.raises(PowlError) as caught:
            footprint_from_value(value)
        assert caught.value.pointer == pointer


def test_a_direct_footprint_knows_where_traces_begin_and_end():
    found = footprint(parse_text("SEQUENCE(a, PARALLEL(b, c))"), mode="direct")
    assert found.direct_succession == {("a", "b"), ("a", "c")}
    assert found.concurrency == {("b", "c"), ("c", "b")}
    assert (found.start_activities, found.end_activities, found.min_trace_length) == ({"a"}, {"b", "c"}, 3)
    assert repr(found) == "Footprint(direct: 3 activities; direct_succession 2, concurrency 2, exclusive 3)"
    with pytest.raises(ValueError, match="known: block, direct, order"):
        footprint(parse_text("ACTIVITY(a)"), "blocks")


AGGREGATES = st.sampled_from(["pooled", "macro"])
mixed_models = models(st.sampled_from("abcdefxyz"), max_leaves=8)


def likeness(one, other, *args, **options):
    return footprint_similarity(parse_text(one), parse_text(other), *args, **options)


@given(mixed_models, mixed_models)
def test_counted_in_masks_or_in_sets_it_is_the_same(one, other):
    def share(x, y):
        return len(x & y) / len(x | y) if x | y else 1.0

    a, b = footprint(one), footprint(other)
    tagged = [{(at, pair) for at, pairs in enumerate(relations(each)) for pair in pairs} for each in (a, b)]
    assert footprint_similarity(a, b) == share(*tagged) * share({*a.activities}, {*b.activities})
    first, second, third = map(share, relations(a), relations(b))
    assert footprint_similarity(a, b, "macro") == (first + second + third) / 3


def test_macro_rewards_absent_relations_and_pooled_does_not():
    for one, other, pooled, macro in (
        ("ACTIVITY(x)", "SEQUENCE(a, b, c)", 0.0, 2 / 3),
        ("SEQUENCE(a, b)", "SEQUENCE(b, a)", 0.0, 2 / 3),
        ("XOR(a, b)", "PARALLEL(a, b)", 0.0, 1 / 3),
        ("SEQUENCE(a, b)", "SEQUENCE(a, b, c)", 1 / 2 * 2 / 3, 5 / 6),
        ("SILENT()", "SILENT()", 1.0, 1.0),
    ):
        assert (likeness(one, other), likeness(one, other, "macro")) == (pooled, pytest.approx(macro))


def test_weights_are_what_a_relation_counts():
    one, other = "SEQUENCE(a, XOR(b, c))", "SEQUENCE(a, PARALLEL(b, c))"
    assert likeness(one, other) == 2 / 6
    assert likeness(one, other, weights=RelationWeights(1, 0, 0)) == 1.0
    assert likeness(one, other, weights=RelationWeights(2, 1, 1)) == 4 / 8
    assert likeness(one, other, "macro", weights=RelationWeights(0.4, 0.3, 0.3)) == pytest.approx(0.4)
    assert likeness("ACTIVITY(a)", "ACTIVITY(a)", weights=RelationWeights(0, 1, 0)) == 1.0


def test_unusable_weights_and_what_cannot_be_compared_are_refused():
    for weights in ((0, 0, 0), (-1, 1, 1), (float("nan"), 1, 1), (float("inf"), 1, 1)):
        with pytest.raises(ValueError, match="weights"):
            likeness("ACTIVITY(a)", "ACTIVITY(a)", weights=RelationWeights(*weights))
    model = parse_text("SEQUENCE(a, b)")
    with pytest.raises(ValueError, match="block and order"):
        footprint_similarity(footprint(model), footprint(model, "order"))
    with pytest.raises(ValueError, match="known: pooled, macro"):
        footprint_similarity(model, model, "micro")
    assert footprint_similarity(footprint(model, "order"), model, mode="order") == 1.0


def test_a_model_contradicts_itself_where_a_pair_is_in_two_relations():
    assert self_consistency(parse_text("SEQUENCE(a, XOR(b, c), PARALLEL(d, e))")) == 1.0
    assert self_consistency(parse_text("SEQUENCE(a, XOR(b, c), PARALLEL(b, d))")) == 1 - 2 / 6
    assert self_consistency(parse_text("SEQUENCE(XOR(a, b), PARALLEL(a, b))")) == 1 - 1 / 3
    assert self_consistency(parse_text("SEQUENCE(XOR(a, b), a)")) == 1 - 1 / 2
    assert self_consistency(Activity("a")) == 1.0
    one_way = footprint_from_value({"direct_succession": [("b", "a")], "exclusive": [("a", "b"), ("b", "a")]})
    assert self_consistency(one_way) == 0.0


@given(st.lists(models(few_labels, max_leaves=4), min_size=2, max_size=5), AGGREGATES)
def test_consensus_is_the_mean_similarity_to_the_others(group, aggregate):
    found = group_consensus(group, aggregate)
    for place, share in enumerate(found):
        others = [footprint_similarity(group[place], other, aggregate) for other in group[:place] + group[place + 1 :]]
        assert share == pytest.approx(sum(others) / len(others))


def test_the_odd_one_out_has_the_least_consensus_and_one_alone_has_none():
    same = parse_text("SEQUENCE(a, b, c)")
    assert group_consensus([same, parse_text("XOR(x, y)"), footprint(same)]) == (0.5, 0.0, 0.5)
    with pytest.raises(ValueError, match="at least two"):
        group_consensus([same])
