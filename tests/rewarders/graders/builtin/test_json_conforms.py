"""``json_conforms`` validates against the whole schema, fetches nothing, and guesses at nothing."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from tests.support.rewards.graders import answered, score, verdict, with_schema
from tests.support.rewards.scoring import built
from tfgrpo.stores.errors import PipelineError, RewardError

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}, "c": {"$ref": "#/$defs/list"}},
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {"list": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
}
RIGHT = '{"a": 1}'
OTHER = '{"a": 2}'
WRONG = '{"a": "1"}'
FENCE = "```"


def reward(completion: str, of_item: object = SCHEMA, **options: Any) -> float:
    record = {"metadata": {} if of_item is None else {"schema": of_item}}
    return score("json_conforms", completion, record, **options)


@pytest.mark.parametrize(
    ("answer", "violation"),
    [
        (RIGHT, "conforms to the schema"),
        ('{"a": 1, "b": "x", "c": ["s", null]}', "conforms to the schema"),
        (WRONG, "$.a: '1' is not of type 'integer'"),
        ('{"b": "x"}', "$: 'a' is a required property"),
        ('{"a": 1, "b": "z"}', "$.b: 'z' is not one of ['x', 'y']"),
        ('{"a": 1, "d": 2}', "$: Additional properties are not allowed ('d' was unexpected)"),
        ('{"a": 1, "c": ["s", 3]}', "$.c[1]: 3 is not valid under any of the given schemas"),
        ("[1]", "$: [1] is not of type 'object'"),
        ("null", "$: None is not of type 'object'"),
        ("a is 1", "no JSON in the answer: Expecting value: line 1 column 1 (char 0)"),
        ("", "no JSON in the answer: Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_every_keyword_counts_and_the_evidence_names_the_first_violation(answer, violation):
    expected = 1.0 if violation.startswith("conforms") else 0.0
    for schema in (SCHEMA, json.dumps(SCHEMA)):
        assert (reward(answer, schema), reward(answer, None, schema=schema)) == (expected, expected)
    assert verdict("json_conforms", answer, with_schema(**SCHEMA)).evidence == violation


@pytest.mark.parametrize(
    "completion",
    [
        RIGHT,
        f"\ufeff {RIGHT}\r\n",
        f"{FENCE}json\n{RIGHT}\n{FENCE}",
        f"Here it is:\r\n{FENCE}JSON\r\n{RIGHT}\r\n{FENCE}\r\nand not {OTHER}.",
        f"~~~\n{RIGHT}\n~~~",
        f"Here it is: {RIGHT}. See [1] and [2, p. 3].",
        f'{RIGHT}, that is, {{"a":1}}',
        f"{FENCE}python\nprint({{}})\n{FENCE}\n{RIGHT}",
        f'{FENCE}json\n{RIGHT}\n{FENCE}\nonce more\n{FENCE}\n{{"a":1}}\n{FENCE}',
        answered(RIGHT),
        f"<think>{OTHER}</think>{RIGHT}",
        f"{OTHER}?</think>{RIGHT}",
    ],
)
def test_json_is_read_where_an_answer_has_one_value(completion):
    assert reward(completion, {"const": {"a": 1}}) == 1.0


@pytest.mark.parametrize(
    "completion",
    [
        f"{RIGHT} or {OTHER}",
        f"{FENCE}\n{RIGHT}\n{FENCE}\nor\n{FENCE}\n{OTHER}\n{FENCE}",
        f"<think>{RIGHT}",
        f"<think>{RIGHT}</think>",
        f"{RIGHT}}}",
        f"{{{RIGHT}",
        f'{{"x": {RIGHT}, oops}}',
        f'{FENCE}json\n{{"a": 1,}}\n{FENCE}\nthat is, {RIGHT}',
        "{'a': 1}",
        '{"a": NaN}',
        "[" * 100_000,
        '{"a":' * 100_000,
        "1" * 5_000,
    ],
)
def test_what_is_no_json_or_could_be_two_values_does_not_conform(completion):
    assert reward(completion, {}) == 0.0


def test_the_draft_is_that_of_the_schema():
    # In draft 4 the bound is exclusive by a flag, in 2020-12 by a number.
    bound = {"maximum": 1, "exclusiveMaximum": True}
    assert reward("1", {"$schema": "http://json-schema.org/draft-04/schema#", **bound}) == 0.0
    with pytest.raises(RewardError, match="exclusiveMaximum"):
        reward("1", bound)


UNUSABLE = {
    "": "Expecting value",
    "{": "Expecting property name",
    "true": "true, which is no object",
    '{"type": "objekt"}': r"\$.type: 'objekt' is not valid",
    '{"pattern": "("}': r"is not a 'regex'",
    '{"$schema": "http://elsewhere.example/draft"}': "the draft 'http://elsewhere.example/draft', which is not known",
    '{"$ref": "http://elsewhere.example/s.json"}': "nothing is fetched",
    '{"properties": {"a": {"$ref": "file:///etc/passwd"}}}': "nothing is fetched",
    '{"definitions": {"a": {"$ref": "other.json#/a"}}}': "nothing is fetched",
    '{"$ref": "#/$defs/none"}': "nothing is fetched",
    '{"$ref": "#"}': "a reference that leads to itself",
    '{"allOf": [{"$ref": "#/allOf/0"}]}': "a reference that leads to itself",
}


@pytest.mark.parametrize(("schema", "reason"), UNUSABLE.items())
def test_an_unusable_schema_is_refused_as_an_option_and_leaves_an_item_ungraded(schema, reason, monkeypatch):
    monkeypatch.setattr(socket, "create_connection", None)
    with pytest.raises(PipelineError, match=rf"json_conforms: options.schema: got no usable schema: .*{reason}"):
        built("json_conforms", schema=schema)
    with pytest.raises(RewardError, match=f"metadata.schema is no schema: .*{reason}"):
        reward(RIGHT, schema)


def test_references_within_a_schema_are_followed_by_name_address_and_path():
    own = {"$id": "http://here.example/a", "$defs": {"b": {"$id": "b", "$anchor": "c", "type": "array"}}}
    for reference in ("b", "b#c", "http://here.example/b", "#/$defs/b"):
        assert reward("[]", {**own, "$ref": reference}) == 1.0
        assert reward("{}", {**own, "$ref": reference}) == 0.0
    tree = {"type": "object", "additionalProperties": {"$ref": "#"}}
    assert (reward('{"a": {"b": {}}}', tree), reward('{"a": {"b": 1}}', tree)) == (1.0, 0.0)
    assert reward('{"$ref": "http://elsewhere.example"}', {"properties": {"$ref": {"type": "string"}}}) == 1.0


def test_without_a_schema_an_item_is_ungraded_and_with_two_both_count():
    with pytest.raises(RewardError, match=r"the item has no metadata\.schema"):
        reward(RIGHT, None)
    assert reward(RIGHT, {"required": ["b"]}, schema=SCHEMA) == 0.0
    assert reward(WRONG, {"required": ["a"]}, schema=SCHEMA) == 0.0
    assert reward(RIGHT, {"required": ["a"]}, schema=SCHEMA) == 1.0


def test_a_schema_in_a_frozen_record_has_lists():
    assert reward('{"a": 1}', {"type": ("object",), "required": ("b",)}) == 0.0
