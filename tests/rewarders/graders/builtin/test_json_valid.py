"""``json_valid`` grades the whole completion, and "required" is Python's ``in``."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rewards.graders import answered, score

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def requiring(required) -> dict:
    return {"metadata": {"expected_json_schema": {"required": required}}}


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ('{"a": 1}', 1),
        ("null", 1),
        ("[NaN, Infinity, -Infinity]", 1),
        ('{"a": 1, "a": 2}', 1),
        (' \n\t{"a": 1}\r\n', 1),
        ('"\ud800"', 1),
        ("1e400", 1),
        ('\ufeff{"a": 1}', 0),
        ('\u00a0{"a": 1}', 0),
        ('{"a": 1}\u2028', 0),
        ("{'a': 1}", 0),
        ('{"a": 1,}', 0),
        ("", 0),
        ('```json\n{"a": 1}\n```', 0),
        (answered('{"a": 1}'), 0),
        ("[" * 100_000, 0),
        ("[" * 100_000 + "]" * 100_000, 0),
        ("9" * 4300, 1),
        ("9" * 4301, 0),
    ],
)
def test_the_completion_as_generated_is_what_python_reads_as_json(completion, expected):
    assert score("json_valid", completion) == expected


@pytest.mark.parametrize(
    ("completion", "required", "expected"),
    [
        ('{"answer": null}', ["answer"], 1),
        ('{"answer": 1}', ["answer", "reason"], 0),
        ('{"a": {"answer": 1}}', ["answer"], 0),
        ('["answer"]', ["answer"], 1),
        ("[1, [2]]", [True, [2]], 1),
        ('"the answer"', ["answer"], 1),
        ('"the answer"', [1], 0),
        ("42", ["answer"], 0),
        ("true", ["answer"], 0),
        ("null", ["answer"], 0),
        ('{"a": 1}', [["a"]], 0),
        ('{"a": 1}', [{"a": 1}], 0),
        ("[[1]]", [{"a": 1}], 0),
        ("42", [], 1),
        ("null", [], 1),
        ("42", "answer", 1),
        ("42", None, 1),
        ("42", {"answer": 1}, 1),
        ("42", 7, 1),
        ('{"a": 1}', ("answer",), 0),
    ],
)
def test_required_is_membership_as_python_has_it(completion, required, expected):
    assert score("json_valid", completion, requiring(required)) == expected


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        "x",
        7,
        {"metadata": None},
        {"metadata": ["expected_json_schema"]},
        {"metadata": {"expected_json_schema": "x"}},
        {"metadata": {"expected_json_schema": ["answer"]}},
        {"expected_json_schema": {"required": ["answer"]}},
    ],
)
def test_a_record_without_requirements_asks_for_json_only(record):
    assert score("json_valid", "7", record) == 1.0


def test_comparing_what_is_nested_too_deep_is_no_crash():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    assert score("json_valid", json.dumps(["x"]), requiring([deep])) == 0.0
    nested = "[" * 900 + "]" * 900
    assert score("json_valid", f"[{nested}]", requiring([json.loads(nested)])) in (0.0, 1.0)
    while deep:
        deep = deep[0]


@given(JSON, st.lists(JSON, max_size=3))
def test_any_json_against_any_requirement_follows_the_rule(value, required):
    text = json.dumps(value)
    try:
        expected = float(all(name in json.loads(text) for name in required))
    except TypeError:
        expected = 0.0
    assert score("json_valid", text, requiring(required)) == expected
