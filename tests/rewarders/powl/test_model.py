"""A model is well-formed or does not exist; trees compare by structure, and the deepest one is no danger."""

import copy
import itertools
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rewards.powl_models import any_models
from tfgrpo.rewarders.powl import (
    Activity,
    Operator,
    PowlError,
    Silent,
    footprint,
    footprint_similarity,
    group_consensus,
    labels_of,
    parse_json,
    parse_text,
    self_consistency,
    structural_key,
    to_json,
    to_text,
    validate,
)
from tfgrpo.rewarders.powl.model import MAX_DEPTH, MAX_NODES, covering_pairs, predecessors, successors, walk

A, B, C = Activity("a"), Activity("b"), Activity("c")

RING = frozenset((place, (place + 1) % 20) for place in range(20))


def deepest(kind="SEQUENCE"):
    model = A
    for level in range(MAX_DEPTH):
        model = Operator(kind, (model, Activity(f"x{level}")))
    return model


def test_equality_is_of_structure_and_not_of_ids():
    assert Activity("a", id="1") == Activity("a", id="2")
    assert Operator("XOR", (Activity("a", id="1"), Silent(id="2")), id="3") == Operator("XOR", (A, Silent()))
    assert hash(Operator("XOR", (A, B), id="1")) == hash(Operator("XOR", (A, B)))
    assert Operator("XOR", (A, B)) != Operator("XOR", (B, A))
    assert Operator("XOR", (A, B)) != Operator("SEQUENCE", (A, B))
    assert Operator("XOR", (A, Operator("XOR", (B, C)))) != Operator("XOR", (A, B, C))
    assert Operator("XOR", (A,)) != A
    assert Operator("XOR", (A,)) != "XOR(a)"
    assert Silent() != A


def test_a_tree_that_breaks_a_rule_cannot_be_made():
    for what, reason in (
        (("",), "not blank"),
        ((None,), "not blank"),
        (("\ud800",), "half a surrogate"),
        (("AND", (A,)), "'AND' is no operator"),
        (("XOR", ()), "no children"),
        (("XOR", (A, "b")), "expected a process model, received str"),
        (("LOOP", (A,)), "exactly two"),
        (("SEQUENCE", (A, B), frozenset({(0, 1)})), "only PARTIAL_ORDER"),
        (("PARTIAL_ORDER", (A, B), frozenset({(0, 2)})), "names child 2"),
        (("PARTIAL_ORDER", (A, B, C), frozenset({(0, 1), (1, 2), (2, 1)})), "circle: 1 -> 2 -> 1"),
        (("PARTIAL_ORDER", (A,) * 20, RING), r"circle: (\d+ -> ){8}…"),
        (("SEQUENCE", (A,) * MAX_NODES), "more than 2,000 nodes"),
        (("SEQUENCE", (deepest(),)), "more than 100 levels"),
    ):
        with pytest.raises(PowlError, match=reason) as caught:
            Activity(*what) if len(what) == 1 else Operator(*what)
        assert (caught.value.line, caught.value.pointer) == (None, None)
    with pytest.raises(PowlError, match="an id"):
        Activity("a", id=" ")


def test_what_is_no_model_is_refused_and_not_taken_for_an_empty_one():
    uses = (to_text, to_json, validate, footprint, self_consistency, structural_key, labels_of)
    uses += (lambda one: footprint_similarity(A, one), lambda one: group_consensus([A, one]))
    for value in ("SEQUENCE(a, b)", None, 3):
        for use in uses:
            with pytest.raises(PowlError, match=f"expected a process model, received {type(value).__name__}"):
                use(value)


@given(any_models)
def test_models_survive_pickling_and_copying_with_their_ids(model):
    named = parse_json(to_json(model))
    for other in (pickle.loads(pickle.dumps(named)), copy.deepcopy(named)):
        assert other == named == model
        assert [node.id for node in walk(other)] == [node.id for node in walk(named)]


@pytest.mark.parametrize("kind", ["SEQUENCE", "XOR", "PARALLEL", "LOOP", "PARTIAL_ORDER"])
def test_the_deepest_model_fits_on_a_usual_stack(kind, request):
    model = deepest(kind)
    assert (model.depth, model.size) == (MAX_DEPTH, 2 * MAX_DEPTH + 1)

    def everything():
        assert model == pickle.loads(pickle.dumps(model)) == copy.deepcopy(model)
        assert parse_text(to_text(model)) == parse_json(to_json(model)) == model
        assert hash(model)
        assert repr(model)
        assert structural_key(model)
        assert validate(model).valid
        for mode in ("block", "direct", "order"):
            assert footprint_similarity(footprint(model, mode), footprint(model, mode)) == 1.0

    def at_depth(frames):
        return everything() if frames == 0 else at_depth(frames - 1)

    at_depth(400)


@given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7))))
def test_closure_and_reduction_of_any_order_are_those_of_its_definition(pairs):
    reach = set(pairs)
    for middle, one, other in itertools.product(range(8), repeat=3):
        if (one, middle) in reach and (middle, other) in reach:
            reach.add((one, other))
    if any(one == other for one, other in reach):
        with pytest.raises(PowlError, match="circle"):
            successors(8, pairs)
        return
    after = successors(8, pairs)
    assert {(one, other) for one in range(8) for other in range(8) if after[one] >> other & 1} == reach
    between = {(a, c) for a, b in reach for other, c in reach if b == other}
    assert covering_pairs(after) == reach - between
    assert predecessors(after) == tuple(sum(1 << one for one in range(8) if (one, other) in reach) for other in range(8))
