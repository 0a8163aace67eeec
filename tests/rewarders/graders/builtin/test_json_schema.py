"""``json_schema`` looks for keys, in the answer or in what can be dug out of it."""

from __future__ import annotations

import pytest

from tests.support.rewards.scoring import answered, score, with_schema
from tests.support.vectors import rows_of
from tfgrpo.stores.errors import RewardError

NEEDS = with_schema(required=["answer"])


def fence(body: str, opening: str = "```json\n") -> str:
    return f"{opening}{body}\n```"


@pytest.mark.parametrize("literal", rows_of("json_schema", "python_literals_are_read_without_a_warning"))
def test_python_literals_are_read_without_a_warning(literal):
    assert score("json_schema", literal, NEEDS) == 0.9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9" * 4301, 0.0),
        ('{"answer": ' + "9" * 4301 + "}", 0.0),
        ("[" * 99_999, 0.0),
        ("[" * 99_999 + "]" * 99_999, 0.0),
        ("[" * 99_999 + fence('{"answer": 1}'), 0.0),
        ("9" * 4301 + fence('{"answer": 1}'), 0.0),
        (fence('{"answer": 1}') + "9" * 4301, 0.9),
    ],
)
def test_json_that_python_refuses_for_its_size_scores_zero(text, expected):
    assert score("json_schema", text, NEEDS) == expected


@pytest.mark.parametrize("entry", [["answer"], {"answer": 1}, []])
def test_a_schema_that_requires_what_no_key_can_be_grades_no_object(entry):
    schema = with_schema(required=["answer", entry])
    with pytest.raises(RewardError, match="json_schema: an entry of the schema's required"):
        score("json_schema", '{"answer": 1}', schema)
    assert score("json_schema", "[1]", schema) == 0.5
    assert score("json_schema", "no JSON", schema) == 0.0


@pytest.mark.parametrize(("length", "expected"), [(200_000, 0.45), (200_002, 0.0)])
def test_a_literal_that_would_take_gigabytes_is_not_read(length, expected):
    record = {"metadata": {"schema": '{"required": ["a"]}'}}
    assert score("json_schema", answered("1," * (length // 2)), record) == expected
