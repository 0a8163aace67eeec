"""Similarity is a symmetric number from 0 to 1, and low for unrelated models."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rewards.powl_models import few_labels, models, small_models
from tfgrpo.rewarders.powl import (
    Activity,
    footprint,
    footprint_from_value,
    footprint_similarity,
    group_consensus,
    parse_text,
    self_consistency,
)
from tfgrpo.rewarders.powl.footprints import RelationWeights

AGGREGATES = st.sampled_from(["pooled", "macro"])
mixed_models = models(st.sampled_from("abcdefxyz"), max_leaves=8)


def likeness(one, other, *args, **options):
    return footprint_similarity(parse_text(one), parse_text(other), *args, **options)


@given(mixed_models, mixed_models)
def test_counted_in_masks_or_in_sets_it_is_the_same(one, other):
    a, b = footprint(one), footprint(other)
    tagged = [
        {(name, pair) for name in ("direct_succession", "concurrency", "exclusive") for pair in getattr(each, name)}
        for each in (a, b)
    ]
    labels = [set(a.activities), set(b.activities)]
    share = [len(x & y) / len(x | y) if x | y else 1.0 for x, y in (tagged, labels)]
    assert footprint_similarity(a, b) == share[0] * share[1]
    names = ("direct_succession", "concurrency", "exclusive")
    sets = [(getattr(a, name), getattr(b, name)) for name in names]
    first, second, third = (len(x & y) / len(x | y) if x | y else 1.0 for x, y in sets)
    assert footprint_similarity(a, b, "macro") == (first + second + third) / 3


@pytest.mark.parametrize(
    ("one", "other", "pooled", "macro"),
    [
        ("ACTIVITY(x)", "SEQUENCE(a, b, c)", 0.0, 2 / 3),
        ("SEQUENCE(a, b)", "SEQUENCE(b, a)", 0.0, 2 / 3),
        ("XOR(a, b)", "PARALLEL(a, b)", 0.0, 1 / 3),
        ("SEQUENCE(a, b)", "SEQUENCE(a, b, c)", 1 / 2 * 2 / 3, 5 / 6),
        ("ACTIVITY(a)", "ACTIVITY(a)", 1.0, 1.0),
        ("SILENT()", "SILENT()", 1.0, 1.0),
    ],
)
def test_macro_rewards_absent_relations_and_pooled_does_not(one, other, pooled, macro):
    assert (likeness(one, other), likeness(one, other, "macro")) == (pooled, pytest.approx(macro))


def test_weights_are_what_a_relation_counts():
    one, other = "SEQUENCE(a, XOR(b, c))", "SEQUENCE(a, PARALLEL(b, c))"
    assert likeness(one, other) == 2 / 6
    assert likeness(one, other, weights=RelationWeights(1, 0, 0)) == 1.0
    assert likeness(one, other, weights=RelationWeights(2, 1, 1)) == 4 / 8
    assert likeness(one, other, "macro", weights=RelationWeights(0.4, 0.3, 0.3)) == pytest.approx(0.4)
    assert likeness("ACTIVITY(a)", "ACTIVITY(a)", weights=RelationWeights(0, 1, 0)) == 1.0


@pytest.mark.parametrize("weights", [(0, 0, 0), (-1, 1, 1), (float("nan"), 1, 1), (float("inf"), 1, 1)])
def test_unusable_weights_are_refused(weights):
    with pytest.raises(ValueError, match="weights"):
        likeness("ACTIVITY(a)", "ACTIVITY(a)", weights=RelationWeights(*weights))


def test_what_cannot_be_compared_is_refused():
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


@given(small_models)
def test_an_unrelated_activity_scores_zero_when_pooled(model):
    assert footprint_similarity(Activity("unrelated"), model) == 0.0
