"""Answers of the learning roles: found in text, checked, asked for again, and saved when cut off."""

import json
from dataclasses import replace

import jsonschema
import pytest

from tests.support.agents.steps import ScriptedModel, reply, runtime
from tests.support.models.strict_schemas import strict_fault
from tfgrpo.stores.errors import ModelTimeout
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.runs import CallKey
from tfgrpo.tasks.learning.ask import (
    CURATION,
    DIGEST,
    RECURRING,
    REFLECTION,
    SHORTENED,
    Answer,
    Question,
    Spend,
    ask,
    complete_entries,
    is_negated,
    parse_answer,
    shared_labels,
)
from tfgrpo.tasks.models.base import AnswerSchema


@pytest.mark.parametrize("schema", [REFLECTION, DIGEST, CURATION, RECURRING, SHORTENED])
def test_schemas_are_strict_all_the_way_down(schema):
    jsonschema.Draft202012Validator.check_schema(schema.schema)
    assert strict_fault(schema.schema) is None


INTENTS = {f"intent {chr(97 + at % 26)}{at}" for at in range(77)}


@pytest.mark.parametrize(("answers", "labels"), [
    (["Bug", "bug.", "billing"] * 4, {"bug", "billing"}), ([*INTENTS] * 4, INTENTS), (["yes", "no"], set()),
    (["bug"] * 20 + ["billing"] * 2 + ["account"] * 3, {"bug", "account"}), (["12", "13"] * 10, set()), ([], set()),
    ([f"Paris {number}" for number in range(30)], set()), ([f"class {number}" for number in range(201)] * 50, set()),
])  # fmt: skip
def test_a_label_is_what_several_of_all_items_share(answers, labels):
    assert shared_labels(answers) == labels


KNOWN = replace(REFLECTION, labels=("L1", "L2"))
WHOLE = {
    "first_difference": "A counts both ends, B one.",
    "cause": "The post at the start was left out.",
    "judgements": [{"lesson": "L1", "judgement": "helped"}, {"lesson": "L2", "judgement": "unused"}],
    "lessons": [{"polarity": "do", "text": "Count both ends."}],
}


def test_the_keys_of_a_reflection_come_in_any_order_and_unknown_ones_are_ignored():
    remarks = {"reasoning": "Hm.", "judgements": [each | {"why": "so"} for each in WHOLE["judgements"]]}
    given = (WHOLE.items(), reversed(WHOLE.items()), (WHOLE | remarks).items())
    first, *others = (KNOWN.read(json.dumps(dict(order))) for order in given)
    assert others == [first, first]
    assert [(each.lesson, each.judgement) for each in first.judgements] == [("L1", "helped"), ("L2", "unused")]


@pytest.mark.parametrize(("change", "named"), [
    *(({name: ...}, f"^{name}: Field required") for name in WHOLE),
    ({"judgements": [{"lesson": "L3", "judgement": "helped"}]}, "no lesson in force is 'L3'"),
    ({"judgements": [{"lesson": "L1", "judgement": "harmed"}]}, r"judgements\.0\.judgement"),
    ({"judgements": [WHOLE["judgements"][0]] * 2}, "judged twice"), ({"cause": None}, "cause"),
    ({"cause": "word " * 61}, "cause: .*61 words; at most 60"),
    ({"first_difference": "word " * 61}, "first_difference: .*at most 60"),
    ({"lessons": [{"polarity": "maybe", "text": "x"}]}, r"lessons\.0\.polarity"),
    ({"lessons": [{"polarity": "do", "text": 3}]}, r"lessons\.0\.text"),
])  # fmt: skip
def test_a_reflection_with_other_content_or_without_a_key_is_refused_by_name(change, named):
    with pytest.raises(ValueError, match=named):
        KNOWN.read(json.dumps({key: value for key, value in (WHOLE | change).items() if value is not ...}))


@pytest.mark.parametrize("fence", ["", "```json\n"])
def test_a_reflection_that_was_cut_off_keeps_its_complete_lessons(fence):
    whole = json.dumps(WHOLE | {"lessons": WHOLE["lessons"] * 2})
    read = KNOWN.read(fence + whole[:-20], cut=True)
    assert (read.cause, len(read.judgements), len(read.lessons)) == (WHOLE["cause"], 2, 1)


@pytest.mark.parametrize(
    ("text", "negated"),
    [
        *((text, True) for text in ("Do not round.", "don\u2019t round", "Never round.", '"Do  not round."')),
        *((text, False) for text in ("Rounding early.", "Adding what must never be added.", "Donating.")),
    ],
)
def test_an_avoid_text_may_not_begin_with_a_negation(text, negated):
    assert is_negated("avoid", text) is negated
    assert not is_negated("do", text)


SCHEMA = AnswerSchema(
    "thing", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
)


def parse(text):
    return int(parse_answer(text, SCHEMA.schema)["n"])


@pytest.mark.parametrize(("text", "reason"), [
    ("", "empty"), ("  ", "empty"), ("null", "null"), ("```\nnull\n```", "null"), ("three", "no JSON"),
    ('{"n": 3,}', "no JSON"), ('{"n": 3} {"n": 4}', "no JSON"), ('{"n": "3"}', r"\$\.n"), ('{"n": true}', r"\$\.n"),
    ('{"n": null}', r"\$\.n"), ("{}", "required"), ('{"n": 3, "m": 1}', "m"), ("[3]", "object"), ('{"n": NaN}', "NaN"),
    ('{"n": 1, "n": 2}', "twice"), ('```\n{"n": 1}\n```\n```\n{"n": 2}\n```\n', "2 fenced blocks"),
    ("[" * 100_000, "nested"), ("<think> never closed {}", "JSON"), ('{"n": 3}<think>later</think>', "JSON"),
])  # fmt: skip
def test_an_invalid_answer_is_refused_with_a_reason(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse(text)


class Thing(Answer):
    n: int


THING = Question("thing", SCHEMA.schema, "reflect", Thing, "Count.")
KEY = CallKey(GroupKey(1, "train", "group", 0, "q1"), 0, 0, "reflect")


async def answered(tmp_path, *replies):
    """Answer, what it took, and the conversations asked."""
    left = list(replies)
    model = ScriptedModel(lambda *_: left.pop(0))
    spend = Spend()
    answer = await ask(THING, KEY, {"q": 1}, runtime(model, tmp_path), spend)
    return answer, spend, [request.messages for request, _ in model.requests]


async def test_reply_reason_and_schema_are_appended_to_the_conversation_until_an_answer_is_valid(tmp_path):
    answer, spend, conversations = await answered(tmp_path / "1", '{"n": 1}')
    assert (answer, spend.usage.calls, len(conversations)) == (Thing(n=1), 1, 1)
    answer, spend, conversations = await answered(tmp_path / "2", "oops", '{"n": "x"}', '{"n": 2}')
    first, last = conversations[0], conversations[-1]
    assert (answer, [message.role for message in last]) == (Thing(n=2), ["system", "user", *["assistant", "user"] * 2])
    assert (first[0].content, last[0].content, last[1]) == ("Count.", "Count.\n\nRepair. 32", first[1])
    complaint = json.loads(last[3].content)
    assert (last[2].content, complaint["schema"]) == ("oops", SCHEMA.schema)
    assert "no JSON" in complaint["error"]


async def test_exhaustion_is_a_failure_and_so_is_a_broken_call_which_can_be_recorded(tmp_path):
    cut = reply('{"n": ', finish="length")
    answer, spend, conversations = await answered(tmp_path / "1", "one", None, cut)
    assert (answer, spend.failure.error_type, spend.failure.call_key, len(conversations)) == (None, "RepairExhausted", None, 3)
    assert "cut off at the token limit" in spend.failure.reason
    answer, spend, _ = await answered(tmp_path / "2", ModelTimeout("late"))
    assert (answer, spend.failure.error_type, spend.broken) == (None, "ModelTimeout", [spend.failure])


@pytest.mark.parametrize(("text", "entries"), [
    ('{"operations": [{"op": "keep"}, {"op": "add", "text": "a', [{"op": "keep"}]),
    ('```json\n{"operations": [{"op": "keep"}, {"op"', [{"op": "keep"}]),
    ('<think>[{</think>{ "operations" : [ {"text": "]}{"} ,', [{"text": "]}{"}]),
    ('{"operations": [{"op": "keep"}]', [{"op": "keep"}]),
    ('{"operations": [{"op": "keep"}, {"op": 1, "op": 2}', [{"op": "keep"}]),
    ('{"operations": [{"op": "ke', None), ('{"lessons": [{"op": "keep"}', None),
    ('<think>{"operations": [{"op": "keep"}', None), ("", None),
])  # fmt: skip
def test_the_complete_entries_of_a_cut_off_list_are_read(text, entries):
    assert complete_entries(text, "operations") == (entries and {"operations": entries})
