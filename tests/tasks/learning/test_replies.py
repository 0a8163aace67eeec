from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest

from tfgrpo.tasks.learning.ask import CURATION, DIGEST, RECURRING, REFLECTION, SHORTENED, is_negated, shared_labels


@pytest.mark.parametrize("schema", [REFLECTION, DIGEST, CURATION, RECURRING, SHORTENED])
def test_schemas_are_strict_all_the_way_down(schema):
    jsonschema.Draft202012Validator.check_schema(schema.schema)

    def visit(node):
        if node.get("type") == "object":
            assert node["additionalProperties"] is False
            assert node["required"] == list(node["properties"])
            for child in node["properties"].values():
                visit(child)
        if node.get("type") == "array":
            visit(node["items"])

    visit(schema.schema)


@pytest.mark.parametrize(
    ("answers", "labels"),
    [
        (["Bug", "bug.", "billing"] * 4, {"bug", "billing"}),
        (["bug"] * 20 + ["billing"] * 2 + ["account"] * 3, {"bug", "account"}),
        (["bug"] * 100_000 + ["billing", "login"] * 3, {"bug", "billing", "login"}),
        (["yes", "no"], set()),
        (["12", "13"] * 10, set()),
        ([f"Paris {number}" for number in range(30)], set()),
        (
            [*(f"intent {chr(97 + at % 26)}{at}" for at in range(77))] * 4,
            {f"intent {chr(97 + at % 26)}{at}" for at in range(77)},
        ),
        ([*(f"class {number}" for number in range(201))] * 50, set()),
        ([], set()),
    ],
)
def test_a_label_is_what_several_of_all_items_share(answers, labels):
    assert shared_labels(answers) == labels


def test_an_answer_is_read_also_from_a_fence():
    text = '{"answers":[{"class":"new","proposals":["P1"],"targets":[],"polarity":"do","text":"Carry."}]}'
    for reply in (text, f"Sure:\n```json\n{text}\n```\n"):
        [one] = CURATION.read(reply).answers
        assert (one.class_, one.proposals, one.text) == ("new", ["P1"], "Carry.")


KNOWN = replace(REFLECTION, labels=("L1", "L2"))
WHOLE = {
    "first_difference": "A counts both ends, B one.",
    "cause": "The post at the start was left out.",
    "judgements": [{"lesson": "L1", "judgement": "helped"}, {"lesson": "L2", "judgement": "unused"}],
    "lessons": [{"polarity": "do", "text": "Count both ends."}],
}


def test_the_keys_of_a_reflection_come_in_any_order_and_unknown_ones_are_ignored():
    remarks = {"reasoning": "Hm.", "judgements": [each | {"why": "so"} for each in WHOLE["judgements"]]}
    given = (WHOLE.items(), reversed(WHOLE.items()), (WHOLE | remarks).items())
    first, *others = (KNOWN.read(json.dumps(dict(order))) for order in given)
    assert others == [first, first]
    assert [(each.lesson, each.judgement) for each in first.judgements] == [("L1", "helped"), ("L2", "unused")]


@pytest.mark.parametrize("name", WHOLE)
def test_a_missing_key_is_named(name):
    with pytest.raises(ValueError, match=f"^{name}: Field required"):
        KNOWN.read(json.dumps({key: value for key, value in WHOLE.items() if key != name}))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"judgements": [{"lesson": "L3", "judgement": "helped"}]}, "no lesson in force is 'L3'"),
        ({"judgements": [{"lesson": "L1", "judgement": "harmed"}]}, r"judgements\.0\.judgement"),
        ({"judgements": [WHOLE["judgements"][0]] * 2}, "judged twice"),
        ({"judgements": {"lesson": "L1", "judgement": "helped"}}, "judgements"),
        ({"cause": "word " * 61}, "cause: .*61 words; at most 60"),
        ({"first_difference": "word " * 61}, "first_difference: .*at most 60"),
        ({"cause": None}, "cause"),
        ({"lessons": [{"polarity": "maybe", "text": "x"}]}, r"lessons\.0\.polarity"),
        ({"lessons": [{"text": "x"}]}, r"lessons\.0\.polarity"),
        ({"lessons": [{"polarity": "do", "text": 3}]}, r"lessons\.0\.text"),
    ],
)
def test_a_reflection_with_other_content_is_refused_by_name(change, named):
    with pytest.raises(ValueError, match=named):
        KNOWN.read(json.dumps(WHOLE | change))


@pytest.mark.parametrize("text", ["null", "[]", "", "{", '{"answers": [{"proposals": []}]}'])
def test_an_invalid_answer_raises_with_the_reason(text):
    with pytest.raises(ValueError, match=r"\w"):
        CURATION.read(text)


@pytest.mark.parametrize("fence", ["", "```json\n"])
def test_a_reflection_that_was_cut_off_keeps_its_complete_lessons(fence):
    whole = json.dumps(WHOLE | {"lessons": WHOLE["lessons"] * 2})
    read = KNOWN.read(fence + whole[:-20], cut=True)
    assert (read.cause, len(read.judgements), len(read.lessons)) == (WHOLE["cause"], 2, 1)


@pytest.mark.parametrize("kept", [40, 120])
def test_a_reflection_that_was_cut_off_before_its_first_lesson_is_asked_for_again(kept):
    with pytest.raises(ValueError, match="no JSON"):
        KNOWN.read(json.dumps(WHOLE)[:kept], cut=True)


@pytest.mark.parametrize(
    ("text", "negated"),
    [
        *((text, True) for text in ("Do not round.", "don\u2019t round", "Never round.", '"Do  not round."')),
        *((text, False) for text in ("Rounding early.", "Adding what must never be added.", "Donating.")),
    ],
)
def test_an_avoid_text_may_not_begin_with_a_negation(text, negated):
    assert is_negated("avoid", text) is negated
    assert not is_negated("do", text)
