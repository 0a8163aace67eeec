"""Each format reads what it should, says what is wrong in words a model can act on, and gives answers a structure."""

from __future__ import annotations

import pickle
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.tasks.selection.formats import Flawed, JsonFormat, PowlFormat, Sound, TextFormat

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
ALL = [TextFormat(), JsonFormat(), JsonFormat(SCHEMA), PowlFormat(), PowlFormat("syntax")]


@pytest.mark.parametrize("each", ALL, ids=lambda each: each.name)
@given(st.text())
def test_no_text_makes_a_format_raise(each, text):
    assert isinstance(each.read(text), Sound | Flawed)


@pytest.mark.parametrize("each", ALL, ids=lambda each: each.name)
def test_formats_are_values(each):
    assert pickle.loads(pickle.dumps(each)) == each


def test_text_is_anything_but_blank():
    assert TextFormat().read("x") == Sound()
    assert TextFormat().read(" \n") == Flawed("parse_error", "the answer is empty")
    assert TextFormat().pattern(None) is None


def test_json_is_parsed_and_then_checked():
    fmt = JsonFormat(SCHEMA)
    assert fmt.read('```json\n{"n": 3}\n```') == Sound({"n": 3})
    broken, wrong = fmt.read('{"n": '), fmt.read('{"n": "3"}')
    assert (broken.name, "no JSON" in broken.reason) == ("parse_error", True)
    assert (wrong.name, "$.n" in wrong.reason) == ("validation_error", True)
    assert "JSON schema" in fmt.instructions
    assert "schema" not in JsonFormat().instructions
    assert JsonFormat().read("[1]") == Sound([1])


def test_only_syntax_is_sent_back_where_that_was_asked_for():
    fmt = JsonFormat(SCHEMA, "syntax")
    assert (fmt.read("{").repairable, fmt.read("{}").repairable) == (True, False)
    powl = PowlFormat("syntax")
    assert powl.read("SEQUENCE()").repairable
    assert not powl.read("LOOP(ACTIVITY(a))").repairable
    assert not powl.read("SEQUENCE(FOO(a))").repairable
    assert not powl.read("SEQUENCE(a,, b)").repairable
    assert not powl.read("SEQUENCE(SILENT(), SILENT())").repairable
    assert PowlFormat().read("LOOP(ACTIVITY(a))").repairable


def test_a_process_model_is_parsed_and_then_validated():
    fmt = PowlFormat()
    assert isinstance(fmt.read("Here:\nSEQUENCE(a, b)"), Sound)
    assert isinstance(fmt.read('{"type": "XOR", "children": [{"type": "ACTIVITY", "label": "a"}]}'), Sound)
    prose, silent = fmt.read("I cannot."), fmt.read("SEQUENCE(SILENT(), SILENT())")
    assert (prose.name, "line 1" in prose.reason) == ("parse_error", True)
    assert (silent.name, "no activity" in silent.reason) == ("validation_error", True)
    assert PowlFormat(aliases=True).read("SEQ(a, b)") == fmt.read("SEQUENCE(a, b)")


def test_the_example_a_model_is_given_is_one():
    example = PowlFormat().instructions.rpartition("Example: ")[2]
    assert isinstance(PowlFormat().read(example), Sound)


def test_structures_of_models_forget_what_makes_no_difference():
    fmt = PowlFormat()

    def structure(text):
        return fmt.pattern(fmt.read(text).value)

    assert structure("XOR(a, b)").structure == structure("XOR(b, XOR(a))").structure
    one, other = structure("SEQUENCE(a, b)"), structure("XOR(a, b)")
    assert (one.label, one.structure == other.structure) == (other.label, False)
    assert one.text == "SEQUENCE(ACTIVITY(a), ACTIVITY(b))"


def test_structures_of_json_are_keys_and_kinds():
    fmt = JsonFormat()
    one, other = fmt.pattern({"a": 1, "b": ["x", "y"]}), fmt.pattern({"b": ["z"], "a": 2.5})
    assert one == other
    assert one.label == "a → b"
    assert fmt.pattern({"a": "1", "b": ["x"]}).structure != one.structure
    assert fmt.pattern([{"a": None}, {"a": True}]).text == '[{"a":"boolean"},{"a":"null"}]'


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_a_value_nested_without_end_has_its_structure_at_once(opening, closing):
    fmt = JsonFormat()

    def nested(levels):
        return fmt.pattern(fmt.read(opening * levels + "1" + closing * levels).value)

    started = time.process_time()
    assert nested(200) == nested(300) != nested(20) != nested(21)
    assert "deeper" in nested(200).text
    assert time.process_time() - started < 2.0


def test_half_a_character_in_a_key_is_no_part_of_what_is_remembered():
    pattern = JsonFormat().pattern(JsonFormat().read(r'{"\ud83d": {"a": 1}}').value)
    assert pattern.label == "? → ?.a"
    assert pattern.text == '{"?":{"a":"number"}}'
