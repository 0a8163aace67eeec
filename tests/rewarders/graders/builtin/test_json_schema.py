"""``json_schema`` looks for keys, in the answer or in what can be dug out of it."""

from __future__ import annotations

import ast
import json
import re
import warnings
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.rewards.graders import answered, score, with_schema
from tfgrpo.rewarders.graders.builtin.schema_grader import fenced_block, python_literal
from tfgrpo.stores.errors import RewardError

NEEDS = with_schema(required=["answer"])
STRICT = with_schema(required=["answer"], allow_additional_properties=False)


def fence(body: str, opening: str = "```json\n") -> str:
    return f"{opening}{body}\n```"


@pytest.mark.parametrize(
    ("answer", "record", "expected"),
    [
        ('{"answer": 1}', NEEDS, 1.0),
        ('{"answer": 1, "b": 2}', NEEDS, 1.0),
        ('{"answer": 1, "b": 2}', STRICT, 0.9),
        ('{"b": 2}', NEEDS, 0.8),
        ('{"b": 2}', STRICT, 0.7),
        ("{}", STRICT, 0.8),
        ("[1]", NEEDS, 0.5),
        ('"answer"', NEEDS, 0.5),
        ("0", NEEDS, 0.5),
        ("false", NEEDS, 0.5),
        ("null", NEEDS, 0.0),
        ("NaN", NEEDS, 0.5),
        ("{'answer': 1}", NEEDS, 0.9),
        ("{'answer': 1, 'b': 2}", STRICT, 0.81),
        ("{'b': 2}", NEEDS, 0.72),
        ("{'b': 2}", STRICT, 0.63),
        ("(1, 2)", NEEDS, 0.45),
        ("None", NEEDS, 0.0),
        ("prose", NEEDS, 0.0),
    ],
)
def test_keys_decide_and_a_detour_costs_a_tenth(answer, record, expected):
    assert score("json_schema", answered(answer), record) == pytest.approx(expected, abs=1e-9)
    assert score("json_schema", answer, record) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("answer", "record", "expected"),
    [
        ('{"b": 1}', with_schema(required=None), 1.0),
        ('{"b": 1}', with_schema(required=""), 1.0),
        ('{"b": 1}', with_schema(required={}), 1.0),
        ('{"b": 1}', with_schema(required="b"), 0.5),
        ('{"b": 1}', with_schema(required={"b": 1}), 0.5),
        ('{"b": 1}', with_schema(required=True), 0.5),
        ('{"b": 1}', with_schema(), 1.0),
        ('{"b": 1}', with_schema(allow_additional_properties=False), 0.9),
        ('{"b": 1}', with_schema(required=["b"], properties={"c": {}}, allow_additional_properties=False), 1.0),
        ('{"b": 1, "c": 1}', with_schema(required=["b"], properties={"c": {}}, allow_additional_properties=False), 0.9),
        ('{"b": "x"}', with_schema(required=["b"], properties={"b": {"type": "integer"}}), 1.0),
        ("[1]", with_schema(type="array"), 0.5),
        ('{"b": 1}', with_schema(additionalProperties=False), 1.0),
        ('{"b": 1}', with_schema(allow_additional_properties="false"), 1.0),
        ('{"b": 1}', with_schema(allow_additional_properties=None), 0.9),
        ('{"b": 1}', with_schema(allow_additional_properties=0), 0.9),
        ('{"b": 1}', with_schema(allow_additional_properties=""), 0.9),
        ('{"b": 1}', with_schema(required=["b", "b"], allow_additional_properties=False), 1.0),
        ('{"1": 1}', with_schema(required=[1]), 0.8),
        ("{1: 1}", with_schema(required=[1]), 0.9),
        ("{1: 1}", with_schema(required=[True], allow_additional_properties=False), 0.9),
        ("{None: 1}", with_schema(required=[None]), 0.9),
    ],
)
def test_only_two_words_of_the_schema_are_read(answer, record, expected):
    assert score("json_schema", answered(answer), record) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        "x",
        {},
        {"metadata": None},
        {"metadata": {}},
        {"metadata": {"schema": {"required": ["answer"]}}},
        {"metadata": {"schema": 7}},
        {"metadata": {"schema": None}},
        {"metadata": {"schema": ""}},
        {"metadata": {"schema": "[]"}},
        {"metadata": {"schema": "null"}},
        {"metadata": {"schema": "{} x"}},
        {"metadata": {"schema": "{'a': 1}"}},
        {"metadata": {"schema": "9" * 5000}},
        {"metadata": {"schema": "[" * 99_999}},
    ],
)
@pytest.mark.parametrize("name", ["json_schema", "xml_schema"])
def test_without_a_usable_schema_the_reward_is_the_one_set_for_that(name, record):
    for completion in (answered('{"answer": 1}'), answered("<answer/>"), "prose", ""):
        assert score(name, completion, record) == 0.0
        assert score(name, completion, record, reward_if_no_schema=0.25, require_answer=True) == 0.25


@pytest.mark.parametrize(
    ("text", "block"),
    [
        (fence("{}"), "{}"),
        (f"x{fence('{}')}y", "{}"),
        (fence("{}", "```\n"), "{}"),
        (fence("{}", "```json-lines_2\n"), "{}"),
        (fence("{}", "```\u043e\u0442\u0432\u0435\u0442\n"), "{}"),
        ("````json\n{}\n````", "{}"),
        ("```json\n\u00a0{}\u2028```", "{}"),
        ("```json\n{}```", "{}"),
        (f"{fence('first')}\n{fence('second')}", "first"),
        (f"{fence('first', '``` json')}\nbetween\n```", "between"),
        (fence("{}", "```json \n"), None),
        (fence("{}", "```json\r\n"), None),
        (fence("{}", "```c++\n"), None),
        (fence("{}", "```json:file\n"), None),
        ("```json\n{}", None),
        ("```json {}```", None),
        ("`{}`", None),
        ("~~~json\n{}\n~~~", None),
        (fence(""), None),
        (fence(" \u00a0\n"), None),
    ],
)
def test_a_fenced_block_is_found_by_its_exact_form(text, block):
    assert fenced_block(text) == block


def test_only_the_first_block_counts_and_it_may_hold_python():
    assert score("json_schema", answered(fence('{"answer": 1}')), NEEDS) == 0.9
    assert score("json_schema", answered(fence("{'answer': 1}")), NEEDS) == 0.9
    assert score("json_schema", answered(fence("null")), NEEDS) == 0.0
    assert score("json_schema", answered(fence("x=1") + fence('{"answer": 1}')), NEEDS) == 0.0
    assert score("json_schema", answered(fence("") + '{"answer": 1}'), NEEDS) == 0.0


@pytest.mark.parametrize(
    "literal",
    [
        "{'answer': 1}",
        "{'answer': (1,)}",
        "{'answer': {1, 2}}",
        "{'answer': set()}",
        "{b'': 0, 'answer': b'1'}",
        "{'answer': 1+2j}",
        "{'answer': ...}",
        "{'answer': +5}",
        "{'answer': 0x1F}",
        "{'answer': 1_000}",
        "{'answer': 1} # so",
        "  \t{'answer': 1}",
        "\n{'answer': 1}",
        "{u'answer': 1}",
        "{r'answer': r'\\q'}",
        "{'answer': '\\q'}",
        "{'ans' 'wer': 1}",
        "{'answer': True}",
        "{'answer': 1,}",
        "{'''answer''': 1}",
        "#\n{'answer': '\\\n'}",
        "{'answer': \\\n 1}",
        "{'answer':\r\n '\\\r\n'}",
    ],
)
def test_python_literals_are_read_without_a_warning(literal):
    assert score("json_schema", literal, NEEDS) == 0.9


@pytest.mark.parametrize(
    "text",
    [
        "\n  {'answer': 1}",
        "{'answer': f'1'}",
        "{'answer': x}",
        "{'answer': 1+1}",
        "dict(answer=1)",
        "{'answer': [1][0]}",
        "{[]: 1}",
        "{'answer': 1}\x00",
        "{'answer': '\ud800'}",
        "{'answer': not 1}",
        "__import__('os')",
        "{'answer': 1} {'answer': 1}",
        "{'answer': " + "9" * 4301 + "}",
        "{'answer': " + "[" * 5000,
        "{'answer': " + "-" * 99_999 + "1}",
    ],
)
def test_text_that_is_no_literal_is_refused(text):
    assert score("json_schema", text, NEEDS) == 0.0


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


def test_unfinished_reasoning_is_searched_unless_that_is_switched_off():
    for completion in (f"<think>{fence('{}')}", f"<think>{fence('{}')}</think>", "{'a': 1}"):
        assert score("json_schema", completion, with_schema()) == 0.9
        assert score("json_schema", completion, with_schema(), require_answer=True) == 0.0
    assert score("json_schema", f"<think>{fence('{}')}</think>x", with_schema()) == 0.0
    assert score("json_schema", answered("{}"), with_schema(), require_answer=True) == 1.0


def by_the_rule(text: str, schema: dict[str, Any]) -> float:
    def first(*readings: Any) -> Any:
        for read, source in readings:
            try:
                return read(source)
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                continue
        return None

    try:
        value, share = json.loads(text), 1.0
    except ValueError:
        found = re.search(r"(?s)```[\w-]*\n(.*?)```", text)
        candidate = (found[1].strip() if found else "") or text
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value, share = first((json.loads, candidate), (ast.literal_eval, candidate)), 0.9
    if value is None:
        return 0.0
    required = schema.get("required") or []
    if not isinstance(value, dict) or not isinstance(required, list):
        return share * 0.5
    missing = any(key not in value for key in required)
    extra = not schema.get("allow_additional_properties", True) and any(key not in required for key in value)
    return share * {(False, False): 1.0, (True, False): 0.8, (False, True): 0.9, (True, True): 0.7}[missing, extra]


PIECES = [
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "'a'",
    '"a"',
    '"b"',
    ":",
    ",",
    "1",
    " ",
    "\n",
    "\t",
    "```",
    "json",
    "#",
    "\\",
    "\\q",
    "\\x41",
    "True",
    "true",
    "None",
    "null",
    "b'x'",
    "set()",
    "r'\\q'",
    "x",
    "-",
    "+",
    "1j",
    "...",
    '"',
    "'",
    "<",
    "\u00a0",
    "\ufeff",
    "\r\n",
    "\uff53et()",
    "\f",
]
schemas = st.fixed_dictionaries(
    {},
    optional={
        "required": st.lists(st.sampled_from(["a", "b", 1, None, True]), max_size=2) | st.sampled_from([None, "a", 0]),
        "allow_additional_properties": st.sampled_from([True, False, None, "false", 0]),
    },
)
objects = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers() | st.none(), max_size=3)
texts = (
    st.lists(st.sampled_from(PIECES), max_size=10).map("".join)
    | objects.map(json.dumps)
    | objects.map(repr)
    | objects.map(repr).map(fence)
)


@given(texts, schemas)
@example("\uff53et()", {})
def test_every_mixture_of_json_python_and_fences_follows_the_rule(text, schema):
    assert score("json_schema", text, with_schema(**schema)) == pytest.approx(by_the_rule(text, schema), abs=1e-9)


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_reading_without_warnings_reads_the_same(text):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = repr(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        expected = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = repr(python_literal(text))
    except ValueError:
        found = None
    assert found == expected


@pytest.mark.parametrize(("length", "expected"), [(200_000, 0.45), (200_002, 0.0)])
def test_a_literal_that_would_take_gigabytes_is_not_read(length, expected):
    record = {"metadata": {"schema": '{"required": ["a"]}'}}
    assert score("json_schema", answered("1," * (length // 2)), record) == expected
