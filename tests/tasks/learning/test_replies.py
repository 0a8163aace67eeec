from __future__ import annotations

import jsonschema
import pytest

from tfgrpo.tasks.learning.ask import LESSONS, OPERATIONS, SHORTENED


@pytest.mark.parametrize("schema", [LESSONS, OPERATIONS, SHORTENED])
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


def test_an_answer_by_schema_is_read():
    text = '{"operations":[{"op":"add","targets":[],"from":["P1"],"polarity":"do","text":"Carry."}]}'
    [operation] = OPERATIONS.read(text).operations
    assert (operation.op, operation.sources, operation.text) == ("add", ["P1"], "Carry.")


def test_a_fenced_answer_is_read():
    assert SHORTENED.read('Sure:\n```json\n{"text": "x"}\n```\n').text == "x"


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "[]",
        "",
        '{"lessons": {}}',
        '{"lessons": [{"polarity": "maybe", "text": "x"}]}',
        '{"lessons": [{"text": "x"}]}',
        '{"lessons": [], "more": 1}',
        '{"lessons": [{"polarity": "do", "text": 3}]}',
    ],
)
def test_an_invalid_answer_raises_with_the_reason(text):
    with pytest.raises(ValueError, match=r"\w"):
        LESSONS.read(text)


def test_the_offending_key_is_named():
    with pytest.raises(ValueError, match=r"lessons\.0\.polarity"):
        LESSONS.read('{"lessons": [{"polarity": "maybe", "text": "x"}]}')
