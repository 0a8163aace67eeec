"""JSON is parsed strictly: invalid JSON is reported with its line, an invalid model with a pointer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rewards.powl_models import attempt
from tests.support.vectors import rows_of
from tfgrpo.rewarders.powl import Activity, PowlError, parse_json, to_json
from tfgrpo.rewarders.powl.model import MAX_DEPTH, MAX_NODES

A = {"type": "ACTIVITY", "label": "a"}
B = {"type": "ACTIVITY", "label": "b"}


def test_unknown_fields_are_ignored_and_the_last_value_of_a_repeated_key_counts():
    for extra in ({"note": "x"}, {"children": []}, {"children": None}, {"order": []}):
        assert parse_json(json.dumps({**A, **extra})) == Activity("a"), extra
    assert parse_json(json.dumps(A)[:-1] + ', "label": "b"}') == Activity("b")


def test_what_is_no_model_is_refused_with_a_pointer():
    rows = rows_of("powl_json", "what_is_no_model_is_refused_with_a_pointer")
    for value, pointer, reason in (*rows, ({"type": "ACTIVITY", "label": "\ud800"}, "", "half a surrogate")):
        with pytest.raises(PowlError, match=reason) as caught:
            parse_json(json.dumps(value))
        assert str(caught.value).startswith(f"at {pointer or 'the root'}: "), value
        assert caught.value.pointer == pointer


def test_what_is_no_json_is_refused_with_line_and_column():
    for text, place, reason in (
        ('{"type": "XOR",\n  "children": [}', (2, 16), "this is no JSON"),
        ('{"a": 1} x', (1, 10), "this is no JSON"),
        ('{"type": "ACTIVITY", "label": "a", "x": -Infinity}', (None, None), "-Infinity, which is no JSON number"),
        (f'{{"type": {"9" * 5_000}}}', (None, None), "cannot be read"),
        *((start * 30_000, (None, None), "nested without end") for start in ("[", '{"a":', '{"type":"XOR","children":[')),
    ):
        with pytest.raises(PowlError, match=reason) as caught:
            parse_json(text)
        assert (caught.value.line, caught.value.column) == place


def test_a_reply_with_a_fence_around_is_taken_only_on_request():
    for text in (
        f"```json\n{json.dumps(A)}\n```",
        f"<think>{{</think>{json.dumps(A)}",
        f"Here it is:\n\n```json\n{json.dumps(B)}\n```\nor rather\n```\n{json.dumps(A, indent=2)}\n```\nDone.",
        f"```json\r\n{json.dumps(A)}\r\n```\r\nDone.",
        f"<think>\n```json\n{json.dumps(B)}\n```\n</think>\n{json.dumps(A)}",
    ):
        assert parse_json(text, fenced=True) == parse_json(json.dumps(A), fenced=True) == Activity("a")
        assert isinstance(attempt(parse_json, text), PowlError)
    with pytest.raises(PowlError) as caught:
        parse_json('Here:\n```json\n{"type": }\n```', fenced=True)
    assert (caught.value.line, caught.value.column) == (3, 10)


def test_limits_of_depth_and_size_hold_for_values_as_well():
    value = A
    for _ in range(MAX_DEPTH + 1):
        value = {"type": "XOR", "children": [value]}
    with pytest.raises(PowlError, match="more than 100 levels"):
        parse_json(value)
    assert parse_json(value["children"][0]).depth == MAX_DEPTH
    with pytest.raises(PowlError, match="more than 2,000 nodes"):
        parse_json({"type": "XOR", "children": [A] * MAX_NODES})
    endless = {"type": "XOR", "children": []}
    endless["children"].append(endless)
    with pytest.raises(PowlError):
        parse_json(endless)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from([A, B]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "id", "label", "children", "order", "x"]), inner, max_size=5)
        | st.fixed_dictionaries(
            {"type": st.sampled_from(["XOR", "LOOP", "PARTIAL_ORDER", "SILENT"]), "children": st.lists(inner, max_size=3)}
        )
    ),
    max_leaves=12,
)


@given(JSON, st.booleans())
def test_any_value_is_a_model_or_one_error_with_a_pointer(value, fenced):
    found = attempt(parse_json, value if isinstance(value, dict) else json.dumps(value, allow_nan=True), fenced=fenced)
    if isinstance(found, PowlError):
        assert found.pointer is not None or found.line is not None or "no JSON" in found.reason
    else:
        assert parse_json(to_json(found)) == found
