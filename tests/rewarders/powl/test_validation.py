"""All errors and warnings of a model are reported at once, with pointer and severity."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from tests.support.rewards.powl_models import any_models
from tfgrpo.rewarders.powl import Activity, Operator, Silent, parse_json, parse_text, to_value, validate

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
