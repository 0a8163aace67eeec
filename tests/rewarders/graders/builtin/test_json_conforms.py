"""``json_conforms`` validates against the whole schema, fetches nothing, and guesses at nothing."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from tests.support.rewards.scoring import built, score, verdict, with_schema
from tests.support.vectors import rows_of
from tfgrpo.stores.errors import PipelineError, RewardError

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}, "c": {"$ref": "#/$defs/list"}},
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {"list": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
}
RIGHT = '{"a": 1}'
WRONG = '{"a": "1"}'


def reward(completion: str, of_item: object = SCHEMA, **options: Any) -> float:
    record = {"metadata": {} if of_item is None else {"schema": of_item}}
    return score("json_conforms", completion, record, **options)


@pytest.mark.parametrize(
    ("answer", "violation"),
    [
        *rows_of("json_conforms", "every_keyword_counts_and_the_evidence_names_the_first_violation"),
        (RIGHT, "conforms to the schema"),
        (WRONG, "$.a: '1' is not of type 'integer'"),
    ],
)
def test_every_keyword_counts_and_the_evidence_names_the_first_violation(answer, violation):
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


def test_a_schema_in_a_frozen_record_has_lists():
    assert reward('{"a": 1}', {"type": ("object",), "required": ("b",)}) == 0.0
