"""A model is written so that it reads back, keyed by what it means, and checked as a whole."""

import json
import re

import pytest
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


@given(any_models, st.sampled_from(["Here it is:\n\n{}\n\nI hope it helps.", "```\n{}\n```", "<think>Hm.</think>\n{}"]))
def test_a_model_is_parsed_from_the_middle_of_an_answer(model, answer):
    if isinstance(model, Operator) and "<" not in to_text(model) and "`" not in to_text(model):
        assert parse_text(answer.format(to_text(model))) == model


@pytest.mark.parametrize(("label", "written"), rows_of("powl_rendering", "labels_are_written_plainly_where_that_reads_back"))
def test_labels_are_written_plainly_where_that_reads_back(label, written):
    assert to_text(Activity(label)) == written
    assert parse_text(written) == Activity(label)


def test_json_carries_ids_and_orders():
    model = Operator("PARTIAL_ORDER", (Activity("a", id="x"), Silent(), Activity("b")), frozenset({(0, 2)}), id="top")
    assert to_json(model) == (
        '{"type": "PARTIAL_ORDER", "id": "top", "children": [{"type": "ACTIVITY", "id": "x", "label": "a"}, '
        '{"type": "SILENT", "id": "n.1"}, {"type": "ACTIVITY", "id": "n.2", "label": "b"}], "order": [[0, 2]]}'
    )


# --- keys


SAME = rows_of("powl_rendering", "same")
DIFFERENT = rows_of("powl_rendering", "different")


@pytest.mark.parametrize(("one", "other"), [*SAME, *DIFFERENT])
def test_what_makes_no_difference_makes_no_other_key_and_a_difference_does(one, other):
    keys = structural_key(parse_text(one)), structural_key(parse_text(other))
    assert (keys[0] == keys[1]) == ((one, other) in SAME)


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


@given(small_models, small_models)
def test_equal_keys_are_equal_behaviour(one, other):
    if structural_key(one) == structural_key(other):
        for mode in ("direct", "order"):
            assert footprint(one, mode) == footprint(other, mode)


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SEQUENCE(a, XOR(b, SILENT()), PARTIAL_ORDER(c, d, e, ORDER(0->1)))", []),
        ("SEQUENCE(a, XOR(b, a))", [("repeated-label", "/children/0"), ("repeated-label", "/children/1/children/1")]),
        ("SEQUENCE(XOR(a), b)", [("single-child", "/children/0")]),
        ("PARTIAL_ORDER(a)", [("single-child", "")]),
        ("LOOP(SILENT(), SILENT())", [("no-activity", "")]),
        ("SILENT()", [("no-activity", "")]),
    ],
)
def test_warnings_have_the_pointer_of_their_node(text, expected):
    assert found(parse_text(text)) == expected


def test_labels_outside_an_allowed_set_are_errors():
    result = validate(parse_text("SEQUENCE(a, b, c)"), allowed_labels=["a", "c", "d"])
    assert [str(finding) for finding in result.errors] == ["error at /children/1: 'b' is none of the 3 allowed labels"]
    assert validate(parse_text("SEQUENCE(a)"), allowed_labels=["a"]).valid
    assert found(Activity("a"), allowed_labels=[]) == [("label-not-allowed", "")]


def test_errors_make_invalid_and_warnings_do_not():
    result = validate(Operator("XOR", (Silent(),)))
    assert [finding.code for finding in result.errors] == ["no-activity"]
    assert [finding.code for finding in result.warnings] == ["single-child"]


@given(any_models)
def test_every_pointer_leads_to_the_node_it_names(model):
    value = json.loads(json.dumps(to_value(model)))
    for finding in validate(model, allowed_labels=[]).findings:
        node = value
        for step in finding.pointer.split("/")[1:]:
            node = node[int(step)] if isinstance(node, list) else node[step]
        assert node["id"] == finding.node_id
