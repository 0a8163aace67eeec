"""A model is written so that it reads back, and keyed by what it means."""

from __future__ import annotations

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
