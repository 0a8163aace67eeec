"""What the description says is accepted is what is accepted, and any value can be put into an answer."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from tests.support.runs.pages import ROOT
from tfgrpo.pipelines.server.app import up_to
from tfgrpo.pipelines.server.limits import answer
from tfgrpo.pipelines.server.service import GradeItem, GradeRequest, SampleRequest

DESCRIPTION = yaml.safe_load((ROOT / "pipelines" / "server" / "openapi.yaml").read_text("utf-8"))
WHOLE_NUMBER = DESCRIPTION["components"]["schemas"]["GradeRequest"]["properties"]["iteration"]["anyOf"][2]["pattern"]
NUMBER = TypeAdapter(int)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None, exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.text("+-_.0123456789 \t\u00a0\u1680\u3000x\u0661e\ufeff\u200b", max_size=8))
def test_texts_that_are_described_as_whole_numbers_are_those_that_are_read_as_such(text):
    # pydantic drops leading zeros and reads 00-5 as -5, which no client writes.
    assume(not re.match(r"\s*0[0_]*-", text))
    try:
        NUMBER.validate_python(text)
    except ValidationError:
        read = False
    else:
        read = True
    assert (re.search(WHOLE_NUMBER, text) is not None and not text.endswith("\n")) is read


@pytest.mark.parametrize("model", [SampleRequest, GradeRequest, GradeItem])
def test_the_requests_that_are_described_are_those_that_are_read(model):
    described, read = DESCRIPTION["components"]["schemas"][model.__name__], model.model_json_schema()
    assert set(described["properties"]) == set(read["properties"])
    assert set(described["required"]) == set(read["required"])


@given(st.integers(0, 12_345), st.integers(0, 20_000))
def test_the_pattern_of_numbers_up_to_a_limit_matches_those_and_no_others(last, number):
    assert bool(re.fullmatch(up_to(last), str(number))) is (number <= last)


@pytest.mark.parametrize("last", [0, 1, 9, 10, 11, 19, 20, 99, 100, 101, 110, 199, 999, 1000])
def test_the_pattern_is_right_around_every_limit(last):
    pattern = re.compile(up_to(last))
    assert [number for number in range(1200) if pattern.fullmatch(str(number))] == list(range(last + 1))
    assert not pattern.fullmatch("00")
    assert not pattern.fullmatch("-0")


@given(JSON)
def test_any_value_becomes_json_that_every_reader_accepts(value):
    def refuse(name):
        raise AssertionError(name)

    raw = answer(value).body
    raw.decode()
    read = json.loads(raw, parse_constant=refuse)
    if "\\u" not in repr(value) and "nan" not in repr(value) and "inf" not in repr(value):
        assert read == value


def test_texts_are_sent_as_they_are():
    assert answer({"a": "é→"}).body == '{"a":"é→"}'.encode()
    assert answer({"a": "\ud800é", "b": [float("nan"), 1.5]}).body == b'{"a":"\\ud800\\u00e9","b":[null,1.5]}'
