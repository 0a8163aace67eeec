"""A model is written so that it reads back, keyed by what it means, and checked as a whole."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from tests.support.rewards.powl_models import any_models, small_models
from tests.support.vectors import rows_of
from tfgrpo.rewarders.powl import (
    Activity,
    Operator,
    Silent,
    footprint,
    label_fingerprint,
    parse_json,
    parse_text,
    structural_key,
    to_json,
    to_text,
    to_value,
    validate,
)


@given(any_models)
def test_text_and_json_and_model_are_the_same_thing(model):
    assert parse_text(to_text(model)) == model
    assert parse_text(to_text(model), aliases=True) == model
    named = parse_json(to_json(parse_text(to_text(model))))
    assert (named, to_json(named), parse_json(to_value(model))) == (model, to_json(model), model)
    assert "\n" not in to_text(model) + to_json(model)


def test_json_carries_ids_and_orders():
    model = Operator("PARTIAL_ORDER", (Activity("a", id="x"), Silent(), Activity("b")), frozenset({(0, 2)}), id="top")
    assert to_json(model) == (
        '{"type": "PARTIAL_ORDER", "id": "top", "children": [{"type": "ACTIVITY", "id": "x", "label": "a"}, '
        '{"type": "SILENT", "id": "n.1"}, {"type": "ACTIVITY", "id": "n.2", "label": "b"}], "order": [[0, 2]]}'
    )


# --- keys


def test_what_makes_no_difference_makes_no_other_key_and_a_difference_does():
    for table in ("same", "different"):
        for one, other in rows_of("powl_rendering", table):
            assert (structural_key(parse_text(one)) == structural_key(parse_text(other))) == (table == "same"), (one, other)


@given(small_models, st.randoms(use_true_random=False))
def test_shuffling_unordered_children_keeps_the_key_and_the_language(model, rng):
    def shuffled(node):
        if not isinstance(node, Operator):
            return node
        children = [shuffled(child) for child in node.children]
        if node.kind in ("SEQUENCE", "LOOP"):
            return Operator(node.kind, tuple(children))
        places = list(range(len(children)))
        rng.shuffle(places)
        order = frozenset((places.index(one), places.index(other)) for one, other in node.order)
        return Operator(node.kind, tuple(children[place] for place in places), order)

    other = shuffled(model)
    assert structural_key(other) == structural_key(model)
    assert footprint(other, "direct") == footprint(model, "direct")


def test_a_structural_key_is_a_digest_and_the_label_fingerprint_sorts_by_code_units():
    assert re.fullmatch("[0-9a-f]{64}", structural_key(Activity("a")))
    assert structural_key(Activity("a", id="x")) == structural_key(Activity("a", id="y"))
    assert label_fingerprint(parse_text("SEQUENCE(ﬀ, 🚀, B, a, B)")) == "B → B → a → 🚀 → ﬀ"


A = {"type": "ACTIVITY", "label": "a"}


def found(model, **options):
    return [(finding.code, finding.pointer) for finding in validate(model, **options).findings]


def test_an_id_of_a_node_above_is_an_error_and_of_another_a_warning():
    sibling = {"type": "XOR", "id": "r", "children": [{**A, "id": "x"}, {**A, "label": "b", "id": "x"}]}
    both = [("repeated-id", "/children/0"), ("repeated-id", "/children/1")]
    assert (found(parse_json(sibling)), validate(parse_json(sibling)).valid) == (both, True)
    below = {"type": "LOOP", "id": "r", "children": [A, {"type": "XOR", "children": [{"type": "SILENT", "id": "r"}]}]}
    result = validate(parse_json(below))
    (error,) = result.errors
    assert (error.code, error.pointer, error.node_id) == ("ancestor-id", "/children/1/children/0", "r")
    assert not result.valid
    # Ids that are missing are paths, and can clash with given ones.
    clash = Operator("XOR", (Activity("a", id="n"), Activity("b")))
    assert found(clash) == [("repeated-id", ""), ("ancestor-id", "/children/0")]
    assert found(Operator("XOR", (Activity("a"), Activity("b", id="n.0")))) == both


def test_warnings_have_the_pointer_of_their_node_and_only_errors_make_invalid():
    for text, expected in (
        ("SEQUENCE(a, XOR(b, SILENT()), PARTIAL_ORDER(c, d, e, ORDER(0->1)))", []),
        ("SEQUENCE(a, XOR(b, a))", [("repeated-label", "/children/0"), ("repeated-label", "/children/1/children/1")]),
        ("SEQUENCE(XOR(a), b)", [("single-child", "/children/0")]),
        ("LOOP(SILENT(), SILENT())", [("no-activity", "")]),
        ("XOR(SILENT())", [("no-activity", ""), ("single-child", "")]),
    ):
        result = validate(parse_text(text))
        assert [(finding.code, finding.pointer) for finding in result.findings] == expected
        assert [finding.code for finding in result.errors] == [code for code, _ in expected if code == "no-activity"]
        assert [finding.code for finding in result.warnings] == [code for code, _ in expected if code != "no-activity"]
        assert result.valid == (not result.errors)


def test_labels_outside_an_allowed_set_are_errors():
    result = validate(parse_text("SEQUENCE(a, b, c)"), allowed_labels=["a", "c", "d"])
    assert [str(finding) for finding in result.errors] == ["error at /children/1: 'b' is none of the 3 allowed labels"]
    assert validate(parse_text("SEQUENCE(a)"), allowed_labels=["a"]).valid
    assert found(Activity("a"), allowed_labels=[]) == [("label-not-allowed", "")]


@given(any_models)
def test_every_pointer_leads_to_the_node_it_names(model):
    value = json.loads(json.dumps(to_value(model)))
    for finding in validate(model, allowed_labels=[]).findings:
        node = value
        for step in finding.pointer.split("/")[1:]:
            node = node[int(step)] if isinstance(node, list) else node[step]
        assert node["id"] == finding.node_id
