"""Structured answers: found in text, checked by their schema, asked for again with the reason, and saved when cut off."""

from __future__ import annotations

import json

import pytest

from tfgrpo.stores.errors import ModelTimeout, RepairExhausted
from tfgrpo.tasks.learning.ask import complete_entries, parse_answer, repair
from tfgrpo.tasks.models.base import AnswerSchema, ChatReply, Message

SCHEMA = AnswerSchema(
    "thing", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
)
QUESTION = (Message("user", "q"),)


def parse(text):
    return int(parse_answer(text, SCHEMA.schema)["n"])


@pytest.mark.parametrize("text", [
    '{"n": 3}', ' \n{"n": 3}\n', '\ufeff{"n": 3}', '```json\n{"n": 3}\n```',
    'Here you are:\n```\n{"n": 3}\n```\nAnything else?', '<think>\nHm { "a" }\n</think>\n\n{"n": 3}',
    '<think></think>```json\n{"n": 3}\n```',
])  # fmt: skip
def test_an_answer_is_found_bare_or_in_one_fence_after_any_reasoning(text):
    assert parse(text) == 3
    fenced = json.dumps({"s": "```\n{}\n```\n"})
    assert parse_answer(fenced, {}) == {"s": "```\n{}\n```\n"}


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


async def repaired(*replies, attempts=3):
    """Answer, and the conversations asked."""
    left, conversations = list(replies), []

    async def ask(messages):
        conversations.append(messages)
        if isinstance(text := left.pop(0), Exception):
            raise text
        finish = "length" if text and text.endswith(": ") else "stop"
        return ChatReply(Message("assistant", text), finish, None, 0.0, None, "m")

    return await repair(parse, ask, QUESTION, SCHEMA, attempts), conversations


async def test_reply_reason_and_schema_are_appended_to_the_conversation_until_an_answer_is_valid():
    assert await repaired('{"n": 1}') == (1, [QUESTION])
    answer, conversations = await repaired("oops", '{"n": "x"}', '{"n": 2}')
    last = conversations[-1]
    assert (answer, [message.role for message in last]) == (2, ["user", "assistant", "user", "assistant", "user"])
    assert last[:3] == conversations[1]
    complaint = json.loads(last[2].content)
    assert (last[1].content, complaint["schema"]) == ("oops", SCHEMA.schema)
    assert "no JSON" in complaint["error"]


async def test_exhaustion_carries_every_attempt_and_a_broken_call_is_not_a_broken_answer():
    with pytest.raises(RepairExhausted) as caught:
        await repaired("one", None, '{"n": ')
    assert [text for text, _ in caught.value.attempts] == ["one", "", '{"n": ']
    assert "cut off at the token limit" in caught.value.attempts[2][1]
    with pytest.raises(ModelTimeout):
        await repaired(ModelTimeout("late"))
    with pytest.raises(ValueError, match="at least 1"):
        await repaired(attempts=0)


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
