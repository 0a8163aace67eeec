"""Schemas of JSON and XML: keys that are looked for, what has to conform, and what is no answer."""

import json
import socket
import tracemalloc
from typing import Any

import pytest

from tests.support.rewards.scoring import answered, built, score, verdict, with_schema
from tests.support.vectors import rows_of
from tfgrpo.rewarders.graders.builtin import formats
from tfgrpo.stores.errors import PipelineError, RewardError

NEEDS = with_schema(required=["answer"])


def fence(body: str, opening: str = "```json\n") -> str:
    return f"{opening}{body}\n```"


def test_json_that_python_refuses_for_its_size_scores_zero_and_a_literal_that_would_take_gigabytes_is_not_read():
    for text in ("9" * 4301, '{"answer": ' + "9" * 4301 + "}", "[" * 99_999, "[" * 99_999 + "]" * 99_999):
        assert (score("json_schema", text, NEEDS), score("json_schema", text + fence('{"answer": 1}'), NEEDS)) == (0.0, 0.0)
    assert score("json_schema", fence('{"answer": 1}') + "9" * 4301, NEEDS) == 0.9
    for length, expected in ((200_000, 0.45), (200_002, 0.0)):
        assert score("json_schema", answered("1," * (length // 2)), with_schema(required=["a"])) == expected


def test_a_schema_that_requires_what_no_key_can_be_grades_no_object():
    for entry in (["answer"], {"answer": 1}, []):
        schema = with_schema(required=["answer", entry])
        with pytest.raises(RewardError, match="json_schema: an entry of the schema's required"):
            score("json_schema", '{"answer": 1}', schema)
        assert (score("json_schema", "[1]", schema), score("json_schema", "no JSON", schema)) == (0.5, 0.0)


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}, "c": {"$ref": "#/$defs/list"}},
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {"list": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
}
RIGHT = '{"a": 1}'


def reward(completion: str, of_item: object = SCHEMA, **options: Any) -> float:
    record = {"metadata": {} if of_item is None else {"schema": of_item}}
    return score("json_conforms", completion, record, **options)


def test_every_keyword_counts_and_the_evidence_names_the_first_violation():
    table = rows_of("json_conforms", "every_keyword_counts_and_the_evidence_names_the_first_violation")
    for answer, violation in (*table, (RIGHT, "conforms to the schema"), ('{"a": "1"}', "$.a: '1' is not of type 'integer'")):
        expected = 1.0 if violation.startswith("conforms") else 0.0
        for schema in (SCHEMA, json.dumps(SCHEMA)):
            assert (reward(answer, schema), reward(answer, None, schema=schema)) == (expected, expected)
        assert verdict("json_conforms", answer, with_schema(**SCHEMA)).evidence == violation


UNUSABLE = dict(rows_of("json_conforms", "unusable"))


@pytest.mark.parametrize(("schema", "reason"), UNUSABLE.items())
def test_an_unusable_schema_is_refused_as_an_option_and_leaves_an_item_ungraded(schema, reason, monkeypatch):
    monkeypatch.setattr(socket, "create_connection", None)
    with pytest.raises(PipelineError, match=rf"json_conforms: options.schema: got no usable schema: .*{reason}"):
        built("json_conforms", schema=schema)
    with pytest.raises(RewardError, match=f"metadata.schema is no schema: .*{reason}"):
        reward(RIGHT, schema)


WANTS = with_schema(root_tag="answer")


def test_a_lone_surrogate_scores_zero_even_with_a_fenced_block():
    for text in ("\ud800 so ```\n<answer/>\n```", "```\n<answer>\udfff</answer>\n```", "\ud800"):
        assert score("xml_schema", answered(text), WANTS) == 0.0, text


def bomb(levels: int, width: int) -> str:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * width}">' for n in range(1, levels))
    return f'<!DOCTYPE answer [<!ENTITY e0 "{"x" * 99}">{entities}]><answer>&e{levels - 1};</answer>'


def test_entities_that_multiply_cost_neither_time_nor_memory():
    quadratic = f'<!DOCTYPE answer [<!ENTITY e "{"x" * 100_000}">]><answer>{"&e;" * 100_000}</answer>'
    tracemalloc.start()
    assert score("xml_schema", answered(bomb(12, 12)), WANTS) == 0.0
    assert score("xml_schema", answered(quadratic), WANTS) == 0.0
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()
    assert score("xml_schema", answered(bomb(3, 3)), WANTS) == 1.0


def test_where_the_parser_does_not_stop_them_declared_entities_are_refused(monkeypatch):
    assert formats.ENTITIES_ARE_LIMITED
    monkeypatch.setattr(formats, "ENTITIES_ARE_LIMITED", False)
    assert score("xml_schema", answered(bomb(3, 3)), WANTS) == 0.0
    assert score("xml_schema", answered(f"{'<answer>' * 50_000}{'<a/>' * 50_000}{'</answer>' * 50_000}"), WANTS) == 1.0
